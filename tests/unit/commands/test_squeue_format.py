"""The order of `slurmplug queue --sort`."""

from slurmplug.commands.squeue_format import parse_sort, sorted_rows

IDS = ["10_2", "8", "10_11", "100", "9"]


def test_job_ids_are_ordered_as_numbers() -> None:
    ordered = [IDS[row] for row in sorted_rows(parse_sort("i"), {"jobid": IDS}, len(IDS))]
    assert ordered == ["8", "9", "10_2", "10_11", "100"]
    ordered = [IDS[row] for row in sorted_rows(parse_sort("-i"), {"jobid": IDS}, len(IDS))]
    assert ordered == ["100", "10_11", "10_2", "9", "8"]


def test_values_that_are_no_finite_numbers_come_last() -> None:
    losses = ["nan", 0.5, None, 0.25]
    assert sorted_rows(parse_sort("Loss"), {"loss": losses}, 4) == [3, 1, 0, 2]
    assert sorted_rows(parse_sort("-Loss"), {"loss": losses}, 4) == [1, 3, 0, 2]
