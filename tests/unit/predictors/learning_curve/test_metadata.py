"""Which metadata of runs becomes a column."""

from predictors.learning_curve.metadata import MetadataEncoder


def test_a_category_that_all_runs_share_or_that_repeats_another_is_no_column() -> None:
    metas = [
        {"metric": "accuracy", "group": group, "source": f"of {group}", "sched": sched}
        for group, sched in [("a", "step"), ("a", "cos"), ("b", "step"), ("b", "cos")] * 3
    ]

    columns = MetadataEncoder.fit(metas)

    assert sorted(name for name, _ in columns.words) == ["group", "group", "sched", "sched"]


def test_a_string_that_is_unique_to_each_run_is_no_column() -> None:
    assert MetadataEncoder.fit([{"id": f"run {i}"} for i in range(12)]).words == ()
