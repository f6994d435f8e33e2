"""Iterations are counted, whether a program calls its first one 0 or 1."""

import numpy as np
import pytest

from policies.snapshot import JobKey
from slurmplug.columns import jobs_of
from slurmplug.fans import even
from slurmplug.progress import Points
from slurmplug.record import JobFacts, JobRecord


def record(first: int, count: int) -> JobRecord:
    texts = dict.fromkeys(JobFacts._fields, "")
    numbers = {name: 0 for name, kind in JobFacts.__annotations__.items() if kind is not str}
    facts = JobFacts(**{**texts, **numbers})._replace(job_id=1, state="RUNNING", start=0.0, batch=True)
    iterations = np.arange(first, first + count, dtype=float)
    points = Points(iterations, 10.0 + iterations, {"accuracy": np.linspace(0.1, 0.9, count)})
    return JobRecord(JobKey("c", 1, 0), facts, points=points)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_counting_from_0_or_from_1_gives_the_same_columns_and_curve(count: int) -> None:
    zero, one = (jobs_of([record(first, count)], np.zeros(1), np.zeros(1), 100.0)[0] for first in (0, 1))
    assert zero.iteration[0] == one.iteration[0] == count
    assert zero.accuracies.iterations.tolist() == one.accuracies.iterations.tolist()
    (curve, at), (other, _) = (even(*jobs.accuracies.row(0), 40.0) for jobs in (zero, one))
    assert curve.tolist() == other.tolist()
    assert (len(curve), at) == (count, 40)


def test_a_curve_told_every_tenth_iteration_has_a_point_for_each_report() -> None:
    curve, at = even(np.array([10.0, 20.0, 30.0]), np.array([0.3, 0.5, 0.6]), 90.0)
    assert curve.tolist() == [0.3, 0.5, 0.6]
    assert at == 9
