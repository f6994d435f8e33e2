"""The predictions for one job in sentences, and whether it can meet its deadline, for `slurmplug why`."""

from collections.abc import Callable, Iterator

from slurmplug import times
from slurmplug.reports import explain
from slurmplug.reports.job_view import Forecast, Job
from slurmplug.table import counted, printable


def predictions(job: Job) -> Iterator[str]:
    """The predictions of a job's run time and final value, what it came to, and its deadline."""
    yield from _made_before(job)
    yield from _made_now(job)
    if job.record.directives and job.record.directives.deadline is not None:
        yield _deadline(job, job.record.directives.deadline)


def _made_before(job: Job) -> Iterator[str]:
    """When it was first seen and at half of its iterations, with the actual values where it has ended."""
    first, half = job.predicted, job.foreseen
    if first.value is not None:
        actual = ""
        if job.ended is not None and job.started is not None:
            outside = "" if job.stop else _outside(first.holds(job.elapsed))
            actual = f" It took {times.span(job.elapsed)}{outside}."
        by = f"by {explain.source(job.columns['predicted_by'])}"
        yield f"When first seen, a run time of {times.span(first.value)}{_interval(first, times.span)}, {by}.{actual}"
    if half.value is not None and job.foreseen_at is not None and not job.live:
        actual = f" It came to {job.value:.4g}{_outside(half.holds(job.value))}." if job.did_all else ""
        yield (
            f"After {counted(int(job.foreseen_at), 'iteration')}, {printable(job.record.quantity)} {half.value:.4g}"
            f"{_interval(half, _four_digits)} at the end.{actual}"
        )


def _made_now(job: Job) -> Iterator[str]:
    """In the last cycle."""
    left, final = job.remaining, job.final
    if job.ranking and left.value is not None:
        source = explain.source(job.ranking.forecast["source"])
        yield f"{times.span(left.value)} are left{_interval(left, times.span)}, by {source}."
    elif job.ranking and job.waits:
        yield f"No run time: {_why_nothing(job)}."
    if final.value is not None:
        between = _interval(final, _four_digits)
        yield f"{printable(job.record.quantity)} {final.value:.4g}{between} after the last iteration."
    if job.reach is not None:
        yield f"That meets its target with a probability of {job.reach:.1%}."


def _why_nothing(job: Job) -> str:
    """Where the policy needs run times, the time limit is used when nothing better is known."""
    if job.record.facts.time_limit is None:
        return "slurmplug has seen no finished run like it, and it has no time limit"
    return "the policy needs no run times"


def _deadline(job: Job, deadline: float) -> str:
    named, left = f"its deadline, {times.shown(deadline)},", job.remaining
    if job.ended is not None:
        side = "before" if job.ended <= deadline else "after"
        return f"It ended {times.span(abs(deadline - job.ended))} {side} {named[:-1]}."
    if job.seen > deadline:
        return f"I{named[1:]} passed {times.span(job.seen - deadline)} ago."
    if left.value is None:
        return f"Whether {named} can be met is not predicted."
    begins = job.seen if job.expected is None else job.expected
    end = Forecast(*(None if seconds is None else begins + seconds for seconds in left))
    ends = "It ends"
    if job.waits:
        ends = "If it started now, it would end" if job.expected is None else "Started when Slurm expects it, it ends"
    return f"{ends} {times.shown(begins + left.value)}{_interval(end, times.shown)}: {named} {_chance(end, deadline)}."


def _chance(end: Forecast, deadline: float) -> str:
    median = end.value or 0.0
    if median <= deadline:
        return "can be met" if (end.high or median) <= deadline else "can be met, but may be missed"
    return "cannot be met" if (end.low or median) > deadline else "will probably be missed"


def _interval(forecast: Forecast, shown: Callable[[float], str]) -> str:
    if forecast.low is None or forecast.high is None or forecast.low == forecast.high:
        return ""
    return f" (90 %: {shown(forecast.low)} to {shown(forecast.high)})"


def _four_digits(value: float) -> str:
    return f"{value:.4g}"


def _outside(inside: bool | None) -> str:
    return ", which is outside of that" if inside is False else ""
