"""Iterations are counted, whether a program calls its first one 0 or 1."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey
from slurmplug.directives.changes import Change
from slurmplug.directives.parser import Directives, parse
from slurmplug.forecasting.curve_fans import resample_evenly
from slurmplug.intake.columns import ColumnCache, jobs_of
from slurmplug.intake.job_facts import JobFacts, Resources
from slurmplug.intake.job_record import JobRecord
from slurmplug.intake.site_factor import SiteFactor
from slurmplug.spool.values import Points


def record(first: int, count: int) -> JobRecord:
    values: dict[str, Any] = dict.fromkeys(JobFacts._fields, "")
    values |= {name: 0 for name, kind in JobFacts.__annotations__.items() if kind is not str}
    facts = JobFacts(**values)._replace(job_id=1, state="RUNNING", start=0.0, batch=True)
    iterations = np.arange(first, first + count, dtype=float)
    points = Points(iterations, 10.0 + iterations, {"accuracy": np.linspace(0.1, 0.9, count)}, first=first)
    return JobRecord(JobKey("c", 1, 0), facts, points=points)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_counting_from_0_or_from_1_gives_the_same_columns_and_curve(count: int) -> None:
    zero, one = (jobs_of([record(first, count)], *columns(1), 100.0)[0] for first in (0, 1))
    assert zero.iteration[0] == one.iteration[0] == count
    assert zero.accuracies.iterations.tolist() == one.accuracies.iterations.tolist()
    (curve, at), (other, _) = (resample_evenly(*jobs.accuracies.row(0), 40.0) for jobs in (zero, one))
    assert curve.tolist() == other.tolist()
    assert (len(curve), at) == (count, 40)


def test_a_curve_told_every_tenth_iteration_has_a_point_for_each_report() -> None:
    curve, at = resample_evenly(np.array([10.0, 20.0, 30.0]), np.array([0.3, 0.5, 0.6]), 90.0)
    assert curve.tolist() == [0.3, 0.5, 0.6]
    assert at == 9


def columns(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Priorities, expected starts and nice values of n jobs."""
    return np.zeros(n), np.zeros(n), np.zeros(n, int)


CHANGES: dict[str, tuple[Any, str]] = {
    "key": (JobKey("c", 1, 7), "submitted"),
    "facts": (record(1, 1).facts._replace(gpus=3, user="b"), "gpus"),
    "directives": (parse(b"#PLUG --urgency=3\n", submitted=0.0), "urgency"),
    "points": (Points(np.array([9.0]), np.array([1.0]), {"accuracy": np.array([0.5])}), "reported"),
    "points_run": (4, "resumed"),
    "earlier": (Points(np.array([0.5]), np.array([1.0]), {"accuracy": np.array([0.5])}), "accuracies"),
    "placed": (SiteFactor(5.0), "site_factor"),
    "surplus": (3.0, "surplus"),
    "requested": (Resources(8, 16, 99.0), "requested"),
    "waited_before": (60.0, "waited"),
    "attained_before": (60.0, "attained"),
    "admission": ("held", "awaits"),
    "changes": ((Change(1, 0.0, 1001, "ada", "", Directives(manage="off")),), "taken_out"),
    "in_doubt": (True, "managed"),
}
"""A field of a record, another value of it, and a column that shows it."""


class TestColumnCache:
    @pytest.mark.parametrize("name", CHANGES)
    def test_shows_what_was_assigned_to_a_record_since(self, name: str) -> None:
        value, column = CHANGES[name]
        job = record(1, 2)
        if name in ("admission", "in_doubt"):
            job.directives = parse(b"#PLUG --utility=50,0.5,12\n", submitted=0.0)
        cache = ColumnCache()
        shown: list[Any] = []
        for _ in range(2):
            jobs = cache.jobs_of([job], *columns(1), 100.0)[0]
            shown.append(jobs.accuracies.values.tolist() if column == "accuracies" else getattr(jobs, column).tolist())
            setattr(job, name, value)
        assert shown[0] != shown[1]

    def test_shows_every_field_but_those_by_which_a_job_is_recognized(self) -> None:
        """Only jobs that Slurm lists are in a snapshot."""
        assert {field.name for field in fields(JobRecord)} - {
            "listed",
            "digest",
            "version",
            "submitted_directives",
        } == set(CHANGES)

    def test_a_version_belongs_to_one_record_in_one_state(self) -> None:
        first, second = record(1, 1), record(1, 1)
        versions = [first.version, second.version]
        first.placed = SiteFactor(3.0)
        second.placed = second.placed
        versions += [first.version, second.version]
        assert len(set(versions)) == 4
        assert first.version > versions[0]

    def test_computes_a_row_anew_only_for_a_new_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        computed: list[JobRecord] = []

        def all_points(record: JobRecord) -> Points:
            computed.append(record)
            return record.points

        monkeypatch.setattr(JobRecord, "all_points", property(all_points))
        records = [record(1, 1) for _ in range(5)]
        for row, one in enumerate(records):
            one.facts = one.facts._replace(job_id=row)
        cache = ColumnCache()
        for rows in ([0, 1, 2], [2, 1, 0, 3], [3, 4]):
            cache.jobs_of([records[row] for row in rows], *columns(len(rows)), 100.0)
        records[4].placed = SiteFactor(2.0)
        cache.jobs_of(records[3:], *columns(2), 100.0)
        assert len(computed) == 6


@pytest.mark.parametrize(
    ("facts", "gpus", "kind", "part"),
    [
        ({"gpus": 2, "gpu_type": "a100"}, 2, "a100", False),
        ({"gpus": 2, "gpu_type": "", "gpu_type_held": "v100"}, 2, "v100", False),
        ({"gpus": 2, "gpu_type": "a100,v100"}, 2, "", False),
        ({"gpus": 2, "gpu_type": "1g.10gb"}, 0, "1g.10gb", True),
        ({"gpus": 1, "gpu_type": "", "gpu_type_held": "a100_3g.20gb"}, 0, "a100_3g.20gb", True),
        ({"gpus": 0, "shards": 4}, 0, "", True),
        ({"gpus": 0}, 0, "", False),
    ],
)
def test_of_parts_of_gpus_a_job_has_no_whole_one(facts: dict[str, Any], gpus: int, kind: str, part: bool) -> None:
    one = record(1, 1)
    one.facts = one.facts._replace(**{"state": "PENDING", "node_list": "n1", "cpus": 2, **facts})
    one.directives = parse(b"#PLUG --gpus=1..4 --checkpoint=USR1\n", submitted=0.0)
    jobs, _ = jobs_of([one], *columns(1), 100.0)
    assert (jobs.gpus[0], jobs.demand[0, 0], jobs.gpu_type[0], jobs.part_of_gpu[0]) == (gpus, gpus, kind, part)
    assert (jobs.gpus_min[0], jobs.gpus_max[0]) == ((0, 0) if part else (1, 4))
