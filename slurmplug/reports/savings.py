"""`slurmplug savings`: GPU hours that stops saved or would have saved, and how often a stop would have been wrong."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import hypot, inf, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from policies.mlfs.load_control import LoadControlSettings
from slurmplug.console import table
from slurmplug.console.table import Field
from slurmplug.intake.job_record import NO_DIRECTIVES, JobRecord, judged_by
from slurmplug.ledger.run_queries import Report
from slurmplug.ledger.stop_queries import DecidedStop
from slurmplug.rules import idle_gpus

CONFIDENCE = 0.9
"""of every interval, as of the forecasts that the ledger keeps"""
FEWEST_STEPS = 3
"""steps from one report to the next that an estimate of a job's pace needs"""
HOUR = 3_600.0


class Estimate(NamedTuple):
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Saving:
    """What one stop saved or would have saved.

    gpu_hours: after its end, estimated, if it was stopped; else those that it used after it would have been stopped.
    None where they cannot be estimated. wrong: whether what the job then did shows that the stop would have been
    wrong; None where that is not known, as of a job that was stopped.
    """

    stop: DecidedStop
    gpu_hours: Estimate | None
    wrong: bool | None


BY: Mapping[str, Callable[[DecidedStop], str]] = {
    "user": lambda stop: stop.record.facts.user,
    "account": lambda stop: stop.record.facts.account,
    "rule": lambda stop: stop.reason.rule,
    "week": lambda stop: datetime.fromtimestamp(stop.at).strftime("%G-W%V"),
    "job": lambda stop: stop.record.facts.shown_id,
}
"""What savings are summed by: the week is that of the stop, as in ISO 8601."""


@dataclass(frozen=True)
class Sum:
    """The savings of all stops that are alike in what they are summed by.

    without_estimate: stops of which the saved GPU hours are not known, and not counted. wrong, right, open: stops that
    would have been so, and those of which it is not known. wrong_share: of those of which it is known.
    """

    by: tuple[str, ...]
    stops: int
    without_estimate: int
    gpu_hours: Estimate
    wrong: int
    right: int
    open: int
    wrong_share: Estimate


def savings(stops: Iterable[DecidedStop]) -> list[Saving]:
    """What each stop saved or would have saved."""
    return [
        Saving(stop, _after_its_end(stop), None) if stop.done else Saving(stop, _used_since(stop), _proved_wrong(stop))
        for stop in stops
    ]


def summed(found: Sequence[Saving], by: Sequence[str]) -> list[Sum]:
    """The sums, in the order of what they are summed by; one in all where `by` is empty and something was found."""
    groups: dict[tuple[str, ...], list[Saving]] = defaultdict(list)
    for each in found:
        groups[tuple(BY[name](each.stop) for name in by)].append(each)
    return [_sum(by_what, groups[by_what]) for by_what in sorted(groups)]


def _sum(by: tuple[str, ...], found: Sequence[Saving]) -> Sum:
    known = [each.gpu_hours for each in found if each.gpu_hours is not None]
    value = sum(each.value for each in known)
    wrong, right = (sum(each.wrong is judged for each in found) for judged in (True, False))
    return Sum(
        by,
        stops=len(found),
        without_estimate=len(found) - len(known),
        gpu_hours=Estimate(
            value,
            value - hypot(*(each.value - each.low for each in known)),
            value + hypot(*(each.high - each.value for each in known)),
        ),
        wrong=wrong,
        right=right,
        open=len(found) - wrong - right,
        wrong_share=share(wrong, wrong + right),
    )


def share(part: int, whole: int) -> Estimate:
    """A share, and its interval by Wilson's score (JASA 22, 1927); NaN of nothing."""
    if not whole:
        return Estimate(nan, nan, nan)
    z, p = float(ndtri((1 + CONFIDENCE) / 2)), part / whole
    centre, half = p + z * z / (2 * whole), z * sqrt(p * (1 - p) / whole + (z / (2 * whole)) ** 2)
    low, high = ((centre + sign * half) / (1 + z * z / whole) for sign in (-1, 1))
    return Estimate(p, min(low, p), max(high, p))


def remaining_seconds(reports: Sequence[Report], most: float) -> Estimate | None:
    """The seconds that the iterations after the last report up to the `most`th would take, by the job's own pace.

    The interval is that of a sum of further steps whose times vary as those so far (a prediction interval of Student's
    t). None where too few steps were reported.
    """
    last = max((each.restarts for each in reports), default=0)
    points = np.array([(each.iteration, each.time) for each in reports if each.restarts == last], dtype=np.float64)
    steps = np.diff(points, axis=0) if len(points) else np.empty((0, 2))
    steps = steps[(steps > 0).all(axis=1)]
    if len(steps) < FEWEST_STEPS:
        return None
    iterations, seconds = steps.T
    done, left = iterations.sum(), max(0.0, most - points[-1, 0])
    pace = seconds.sum() / done
    variance = (iterations * (seconds / iterations - pace) ** 2).sum() / (len(steps) - 1)
    half = stdtrit(len(steps) - 1, (1 + CONFIDENCE) / 2) * sqrt(variance * left * (1 + left / done))
    return Estimate(float(left * pace), float(max(0.0, left * pace - half)), float(left * pace + half))


def _after_its_end(stop: DecidedStop) -> Estimate | None:
    """The GPU hours that a stopped job would have used, by its pace, else by the run time that was first predicted; no
    more than its time limit left."""
    facts, most = stop.record.facts, _last_iteration(stop.record)
    seconds = remaining_seconds(stop.reports, most) if most is not None else None
    ran = max(0.0, stop.at - facts.start - facts.suspended) if facts.start is not None else 0.0
    if seconds is None and stop.predicted is not None:
        low, median, high = (max(0.0, each - ran) for each in stop.predicted)
        seconds = Estimate(median, low, high)
    if seconds is None:
        return None
    limit = max(0.0, facts.time_limit - ran) if facts.time_limit is not None else inf
    return Estimate(*(facts.of_gpus.whole * min(each, limit) / HOUR for each in seconds))


def _used_since(stop: DecidedStop) -> Estimate:
    """The GPU hours that the job has used in its last run since it would have been stopped."""
    facts = stop.record.facts
    began = max(stop.at, facts.start if facts.start is not None else inf)
    until = stop.seen if facts.live or facts.end is None else facts.end
    hours = facts.of_gpus.whole * max(0.0, until - began) / HOUR
    return Estimate(hours, hours, hours)


def _proved_wrong(stop: DecidedStop) -> bool | None:
    """By what the job reported after it would have been stopped.

    Wrong is a stop as the training has diverged, if its loss became lower than ever before; as the target is out of
    reach, if it was met; as no better value is likely, if one came that is better by more than the tolerance. Right is
    any other, if the job went on to its end. A stop as the target is met is what its user asked for. One for idle GPUs
    is wrong if they were used later.
    """
    facts, record = stop.reason.facts, stop.record
    if stop.reason.rule == idle_gpus.RULE:
        used = record.points.gpu_use.used_at > stop.at
        return used or (None if record.facts.live else False)
    cause, iteration = facts.get("cause", ""), facts.get("iteration")
    if cause == "reached":
        return False
    if not isinstance(iteration, int | float):  # a stop of a site's own policy
        return None
    reported = {name for report in stop.reports for name in report.quantities}
    judged = judged_by(record.directives or NO_DIRECTIVES, reported)
    quantity, sign = ("loss", -1.0) if cause == "diverged" else judged
    at = iteration - _counted_from_0(record)
    before, after = (
        max((sign * each.quantities[quantity] for each in some if quantity in each.quantities), default=-inf)
        for some in ([each for each in stop.reports if (each.iteration > at) is later] for later in (False, True))
    )
    if before == -inf and cause != "diverged":
        return None
    if after > _worth_more_than(before, cause, facts):
        return True
    most = _last_iteration(record)
    did_all = most is not None and any(each.iteration >= most for each in stop.reports)
    return False if did_all or record.facts.state == "COMPLETED" else None


def _worth_more_than(before: float, cause: object, facts: Mapping[str, Any]) -> float:
    """What a later value has to exceed for the stop to have been wrong."""
    if cause == "misses" and "target" in facts:
        return float(np.nextafter(facts["target"], -inf))
    if cause == "diverged":
        return before
    return before + float(facts.get("epsilon", LoadControlSettings.epsilon)) * abs(before)


def _counted_from_0(record: JobRecord) -> int:
    return int(record.points.first == 0)


def _last_iteration(record: JobRecord) -> float | None:
    """The number that the job gives its last iteration; None where it did not state how many it has."""
    most = record.directives.max_iterations if record.directives else None
    return most - _counted_from_0(record) if most else None


def as_json(found: Sequence[Saving], by: Sequence[str]) -> dict[str, Any]:
    """What `slurmplug savings --json` prints: the sums of the stops `done` and of those `prevented`, each in `total`
    and in `rows`."""
    parts = {"done": [each for each in found if each.stop.done], "prevented": [s for s in found if not s.stop.done]}
    return {
        "confidence": CONFIDENCE,
        **{
            name: {
                "total": next((_row_as_json(row, ()) for row in summed(part, ())), None),
                "rows": [_row_as_json(row, by) for row in summed(part, by)],
            }
            for name, part in parts.items()
        },
    }


def _row_as_json(row: Sum, by: Sequence[str]) -> dict[str, Any]:
    figures = {name: value for name, value in vars(row).items() if name != "by"}
    return {
        **dict(zip(by, row.by, strict=True)),
        **figures,
        "gpu_hours": row.gpu_hours._asdict(),
        "wrong_share": {name: None if value != value else value for name, value in row.wrong_share._asdict().items()},
    }


def lines(found: Sequence[Saving], by: Sequence[str]) -> Iterator[str]:
    """What `slurmplug savings` prints."""
    done, prevented = ([each for each in found if each.stop.done is which] for which in (True, False))
    if not found:
        yield "No job was stopped, and none would have been."
    if done:
        yield "Stopped. GPU hours that the jobs would have used after that, estimated:"
        yield from _table(done, by, (*_ESTIMATED, *_INTERVAL))
    if prevented:
        yield "Would have been stopped, in the mode observe or advise. GPU hours that the jobs used after that:"
        yield from _table(prevented, by, _JUDGED)


def _table(found: Sequence[Saving], by: Sequence[str], fields: Sequence[Field[Sum]]) -> Iterator[str]:
    rows = summed(found, by)
    if by:
        rows += [replace(row, by=("total", *[""] * (len(by) - 1))) for row in summed(found, ())]
    named = [Field(name.upper(), "text", 24, "", _of_group(place), left=True) for place, name in enumerate(by)]
    shown = [*named, *fields]
    lines = table.format_lines(shown, table.columns(shown, rows), rule=False, fit=True)
    yield from (f"  {line.rstrip()}" for line in lines)


def _of_group(place: int) -> Callable[[Sum], str]:
    return lambda row: row.by[place]


def _hours(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _percent(value: float) -> str | None:
    return None if value != value else f"{value:.0%}"


_ESTIMATED: Sequence[Field[Sum]] = (
    Field("STOPS", "integer", 7, "", lambda row: row.stops),
    Field("GPUHOURS", "text", 10, "", lambda row: _hours(row.gpu_hours.value)),
)
_INTERVAL: Sequence[Field[Sum]] = (
    Field("LOW", "text", 10, "", lambda row: _hours(row.gpu_hours.low)),
    Field("HIGH", "text", 10, "", lambda row: _hours(row.gpu_hours.high)),
    Field("NOTKNOWN", "integer", 8, "", lambda row: row.without_estimate),
)
_JUDGED: Sequence[Field[Sum]] = (
    *_ESTIMATED,
    Field("RIGHT", "integer", 7, "", lambda row: row.right),
    Field("WRONG", "integer", 7, "", lambda row: row.wrong),
    Field("NOTKNOWN", "integer", 8, "", lambda row: row.open),
    Field("WRONG%", "text", 6, "", lambda row: _percent(row.wrong_share.value), "-"),
    Field("LOW", "text", 5, "", lambda row: _percent(row.wrong_share.low), "-"),
    Field("HIGH", "text", 5, "", lambda row: _percent(row.wrong_share.high), "-"),
)
