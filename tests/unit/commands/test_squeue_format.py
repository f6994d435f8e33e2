"""The formats and the order of `slurmplug queue`."""

import re

from slurmplug.commands.squeue_format import parse_format, parse_long_format, parse_sort, sorted_rows
from tests.ledgers import run

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


def test_the_examples_of_the_help_are_accepted() -> None:
    text = " ".join(run("queue", "--help").output.split())
    format_ = re.search(r"-o, --format FORMAT squeue's: '(.*?)'", text)
    types = re.search(r"-O, --Format TYPES squeue's, or slurmplug's: (\S+)\. ", text)
    sort = re.search(r"-S, --sort TYPES By these types of both formats: (\S+)\. ", text)
    assert format_ is not None
    assert types is not None
    assert sort is not None
    assert [column.field for column in parse_format(format_[1])] == ["jobid", "jobname", "elapsed", "reasonlist"]
    assert [(column.heading, column.field) for column in parse_long_format(types[1])][1:] == [("SCORE", "rank")]
    assert parse_sort(sort[1]) == [("partition", False), ("rank", True)]
