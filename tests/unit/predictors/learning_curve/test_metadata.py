"""Which of what is known of runs at their start becomes a column."""

from predictors.learning_curve.metadata import MetaColumns


def test_a_word_that_all_runs_have_and_one_that_goes_with_another_are_no_columns() -> None:
    metas = [
        {"metric": "accuracy", "group": group, "source": f"of {group}", "sched": sched}
        for group, sched in [("a", "step"), ("a", "cos"), ("b", "step"), ("b", "cos")] * 3
    ]

    columns = MetaColumns.of(metas)

    assert sorted(name for name, _ in columns.words) == ["group", "group", "sched", "sched"]


def test_a_text_of_its_own_a_run_is_no_column() -> None:
    assert MetaColumns.of([{"id": f"run {i}"} for i in range(12)]).words == ()
