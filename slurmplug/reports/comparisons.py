"""What was forecast of a job beside what came."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from slurmplug.reports.job_view import Job
from slurmplug.reports.predicted_value import PredictedValue


class Comparison(NamedTuple):
    """A forecast and what came: the run time in seconds as first predicted, or the final value as it was predicted at
    half of the iterations."""

    quantity: Literal["run_time", "final_value"]
    forecast: PredictedValue
    actual: float | None


def comparisons(job: Job) -> Iterator[Comparison]:
    """The forecasts of a job that has ended by itself beside what came; the final value only if the job reported it."""
    if job.live or job.facts.state != "COMPLETED" or job.stop:
        return
    yield Comparison("run_time", job.predicted, job.elapsed)
    if job.did_all:
        yield Comparison("final_value", job.foreseen, job.value)
