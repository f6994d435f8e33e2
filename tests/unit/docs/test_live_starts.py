"""The figures of `tests.bench.live_starts`, and its table in docs/predictors.md."""

import json
import re
import shlex

import pytest

from tests.bench import live_starts
from tests.bench.start_records import SOURCES, JobRecord, Told, as_json, at_that_time, figures, summary, table

COMMANDS = re.findall(r"<!-- made by (python -m tests\.bench\.live_starts[^>]*) -->", live_starts.PAGE.read_text())
NAN = float("nan")


def record(
    started: float,
    *,
    slurm: tuple[Told, ...] = (),
    queue: Told | None = None,
    estimate: Told | None = None,
    submitted: float = 100.0,
) -> JobRecord:
    return JobRecord(submitted, started, True, 4.0, slurm, queue, None if queue is None else queue.at + 2.0, estimate)


RUN = [
    record(
        120.0,
        slurm=(Told(102.0, 180.0), Told(106.0, 150.0), Told(110.0, 140.0)),
        queue=Told(108.0, 125.0, 110.0, 130.0),
        estimate=Told(99.0, 110.0, 100.0, 115.0),
    ),
    record(160.0, slurm=(Told(101.0, 170.0),), estimate=Told(99.0, 180.0, 150.0, 200.0)),
    record(100.0, estimate=Told(99.0, 104.0)),
]


def test_errors_are_of_all_jobs_with_a_forecast_and_of_those_with_one_by_each() -> None:
    found = figures(RUN)
    expected = {
        "jobs": 3,
        "wait": (20 + 60 + 0) / 3,
        "slurm share": 2 / 3,
        "slurm mae": (60 + 10) / 2,
        "slurm mae of common": 60,
        "queue share": 1 / 3,
        "queue mae": 5,
        "queue mae of common": 5,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["estimate mae"] == pytest.approx((10 + 20 + 4) / 3)
    assert found["now mae"] == found["wait"]
    assert (found["slurm after"], found["queue after"], found["queue known"]) == (1.5, 8.0, 10.0)


def test_an_interval_counts_where_there_is_one() -> None:
    found = figures(RUN)
    assert (found["queue covers"], found["estimate covers"]) == (1.0, 0.5)
    assert found["slurm covers"] != found["slurm covers"], "Slurm tells none"


def test_at_equal_moments_slurms_last_estimate_by_then_counts() -> None:
    assert figures(RUN)["slurm then mae"] == 30.0
    assert at_that_time(RUN[0].slurm, 110.0) == Told(110.0, 140.0)
    assert at_that_time(RUN[0].slurm, 90.0) == RUN[0].slurm[0], "Slurm told nothing by then"
    assert at_that_time((), 90.0) is None


def test_records_come_back_from_json() -> None:
    assert [JobRecord.of(row) for row in json.loads(json.dumps(RUN))] == [
        each._replace(slurm=list(each.slurm)) for each in RUN
    ]


def test_the_table_has_a_line_a_source_and_leaves_out_what_is_not_known() -> None:
    lines = table([figures(RUN)] * 2).splitlines()
    assert len(lines) == 2 + len(SOURCES)
    slurm = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    assert slurm == [SOURCES["slurm"], "67 ± 0%", "1.5 ± 0.0 s", "35.0 ± 0.0 s", "60.0 ± 0.0 s", ""]
    assert "12.00 ± 0.00 (12.00, 12.00)" in summary([figures(RUN)] * 2)


def test_a_run_without_any_forecast_has_no_errors_and_is_no_failure() -> None:
    lines = table([figures([record(100.0)])]).splitlines()
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == [SOURCES["queue"], "0%", "", "", "", ""]


def test_json_has_null_where_nothing_is_known() -> None:
    [told] = json.loads(as_json([figures([record(100.0)])], first_seed=7), parse_constant=pytest.fail)
    assert (told["seed"], told["jobs"], told["queue mae"]) == (7, 1.0, None)


def test_jobs_request_more_than_they_run_and_every_other_one_has_no_directives() -> None:
    drawn = live_starts.jobs(1000, 40).jobs
    assert all(job.time_limit % 60 == 0 and job.time_limit >= live_starts.seconds(job) for job in drawn)
    assert [job.managed for job in drawn] == [True, False] * 20
    assert live_starts.jobs(1000, 40).jobs[7].time_limit == drawn[7].time_limit


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_the_page_names_writes_there(command: str) -> None:
    assert live_starts.command(live_starts.options().parse_args(shlex.split(command)[3:])) == command
