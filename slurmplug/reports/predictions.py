"""The predictions for one job in sentences, and whether it can meet its deadline, for `slurmplug why`."""

from collections.abc import Callable, Iterator

from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.reports import deadlines, explain
from slurmplug.reports.job_view import Job
from slurmplug.reports.predicted_value import PredictedValue


def predictions(job: Job) -> Iterator[str]:
    """The predictions of a job's run time and final value, what it came to, and its deadline."""
    yield from _made_before(job)
    yield from _made_now(job)
    if by_the_queue := _by_the_queue(job):
        yield by_the_queue
    if job.directives and job.directives.deadline is not None and deadlines.in_time(job) is None:
        yield _deadline(job, job.directives.deadline)


def _made_before(job: Job) -> Iterator[str]:
    """The predictions when the job was first seen and at half of its iterations, with the actual values if it ended."""
    first, half = job.predicted, job.foreseen
    if first.value is not None:
        actual = ""
        if job.ended is not None and job.started is not None:
            outside = "" if job.stop else _outside(first.holds(job.elapsed))
            actual = f" It took {times.format_duration(job.elapsed)}{outside}."
        by = f"by {explain.source(job.columns['predicted_by'])}"
        run_time = f"{times.format_duration(first.value)}{_interval(first, times.format_duration)}"
        yield f"When first seen, a run time of {run_time}, {by}.{actual}"
    if half.value is not None and job.foreseen_at is not None and not job.live:
        actual = f" It came to {job.value:.4g}{_outside(half.holds(job.value))}." if job.did_all else ""
        yield (
            f"After {counted(int(job.foreseen_at), 'iteration')}, {printable(job.quantity)} {half.value:.4g}"
            f"{_interval(half, _four_digits)} at the end.{actual}"
        )


def _made_now(job: Job) -> Iterator[str]:
    """The predictions made in the last cycle."""
    left, final = job.remaining, job.final
    if job.ranking and left.value is not None:
        source = explain.source(job.ranking.forecast("source"))
        yield f"{times.format_duration(left.value)} are left{_interval(left, times.format_duration)}, by {source}."
    elif job.ranking and job.waits:
        yield f"No run time: {_why_nothing(job)}."
    if final.value is not None:
        between = _interval(final, _four_digits)
        yield f"{printable(job.quantity)} {final.value:.4g}{between} after the last iteration."
    if job.reach is not None:
        yield f"That meets its target with a probability of {job.reach:.1%}."


def _why_nothing(job: Job) -> str:
    """Why there is no run time: a policy that needs run times gets at least the time limit."""
    if job.facts.time_limit is None:
        return "slurmplug has seen no finished run like it, and it has no time limit"
    return "the policy needs no run times"


def _by_the_queue(job: Job) -> str:
    """When it starts and ends by the forecast of the queue, and whether it meets its deadline; empty where that tells
    nothing."""
    outlook, at = job.outlook, job.forecast_at
    if outlook is None or at is None or not deadlines.ends_by_queue(job):
        return ""
    said = [f"starts {_around(outlook.start, outlook.start_low, outlook.start_high, job.seen)}"] if job.waits else []
    if outlook.end is not None:
        said.append(f"ends {_around(outlook.end, outlook.end_low, outlook.end_high, job.seen)}")
    if not said:
        return ""
    text = f"By the queue {times.format_duration(job.seen - at)} before, it {' and '.join(said)}"
    share, found = deadlines.in_time(job), deadlines.chance(job)
    if share is not None and found in _CHANCES and job.directives and job.directives.deadline is not None:
        deadline = times.format_time(job.directives.deadline)
        text += f": its deadline, {deadline}, {_CHANCES[found]} (in {share:.0%} of the cases simulated)"
    if job.waits and outlook.start is not None and outlook.start_low is None:
        text += "; too few such forecasts have come true for an interval"
    return f"{text}."


def _around(median: float | None, low: float | None, high: float | None, seen: float) -> str:
    """A time and its interval, of which nothing is before the job was last seen."""
    if median is None:
        return _LATER
    shown = times.format_time(max(median, seen))
    if low is None:
        return shown
    last = _LATER if high is None else times.format_time(max(high, seen))
    return f"{shown} (80 %: {times.format_time(max(low, seen))} to {last})"


def _deadline(job: Job, deadline: float) -> str:
    named = f"its deadline, {times.format_time(deadline)},"
    if job.ended is not None:
        side = "before" if job.ended <= deadline else "after"
        return f"It ended {times.format_duration(abs(deadline - job.ended))} {side} {named[:-1]}."
    found = deadlines.chance(job)
    if found == "passed":
        return f"I{named[1:]} passed {times.format_duration(job.seen - deadline)} ago."
    end = deadlines.predicted_end(job)
    if end is None or found is None:
        return f"Whether {named} can be met is not predicted."
    ends = "It ends"
    if job.waits:
        ends = "If it started now, it would end" if job.expected is None else "Started when Slurm expects it, it ends"
    when = f"{times.format_time(end.median)}{_interval(PredictedValue(*end), times.format_time)}"
    return f"{ends} {when}: {named} {_CHANCES[found]}."


_LATER = "later than all that was simulated"
_CHANCES: dict[deadlines.Chance, str] = {
    "can be met": "can be met",
    "may be missed": "can be met, but may be missed",
    "will be missed": "will probably be missed",
    "cannot be met": "cannot be met",
}


def _interval(forecast: PredictedValue, format_value: Callable[[float], str]) -> str:
    if forecast.low is None or forecast.high is None or forecast.low == forecast.high:
        return ""
    return f" (90 %: {format_value(forecast.low)} to {format_value(forecast.high)})"


def _four_digits(value: float) -> str:
    return f"{value:.4g}"


def _outside(inside: bool | None) -> str:
    return ", which is outside of that" if inside is False else ""
