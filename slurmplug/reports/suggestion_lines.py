"""`slurmplug suggest`: suggestions as text."""

from collections.abc import Iterator, Sequence
from typing import get_args

from slurmplug.console import table, times
from slurmplug.console.table import Field, counted
from slurmplug.reports.interface import FEWEST_MEASURED, FEWEST_RUNS, Suggestion, Suggestions, What


def lines(found: Suggestions) -> Iterator[str]:
    """What `slurmplug suggest` prints."""
    of = {what: [each for each in found.suggestions if each.what == what] for what in get_args(What)}
    changes = [each for each in found.suggestions if each.what in ("GPUs in use", "size")]
    if changes:
        yield "GPU hours that these jobs used, and that a change could have left to others, at most:"
        yield from _table(changes, _CHANGES)
        yield from map(_because, changes)
    if limits := of["time limit"]:
        yield "GPU hours that time limits reserved beyond what such jobs need; backfill may start shorter ones sooner:"
        yield from _table(limits, _LIMITS)
    if splits := of["array split"]:
        yield "GPU hours that arrays reserved for short elements by the time limit of long ones, if these were apart:"
        yield from _table(splits, _SPLITS)
        yield from map(_split, splits)
    if throttles := of["array throttle"]:
        yield "GPU hours that idled while elements of arrays waited for the throttle of their array alone, at most:"
        yield from _table(throttles, _THROTTLES)
        yield from map(_throttle, throttles)
    if not found.suggestions:
        yield f"Nothing to suggest of {counted(found.jobs, 'job')} that ended."
    yield from _not_judged(found)


def _table(found: Sequence[Suggestion], fields: Sequence[Field[Suggestion]]) -> Iterator[str]:
    lines = table.format_lines(fields, table.columns(fields, found), rule=False, fit=True)
    yield from (f"  {line.rstrip()}" for line in lines)


def _because(each: Suggestion) -> str:
    kind, why, gpus = table.printable(each.kind), each.because, counted(each.gpus, "GPU")
    better = counted(int(each.better), "GPU") if each.better else ""
    if each.what == "size":
        interval = f"({why['gpu_time_low']:.2g} to {why['gpu_time_high']:.2g})"
        slower = f"{why['times_as_long']:.2g} times as long"
        took = "is forecast to take" if "forecast_from" in why else "took"
        return (
            f"{kind}: on {better} in place of {each.gpus}, an iteration {took} {slower}; "
            f"on {gpus} it takes {why['gpu_time']:.2g} times as much GPU time {interval}."
        )
    fewer = f"ask for {better}, or " if better else ""
    return (
        f"{kind}: its {gpus} did something in {why['share']:.0%} of the time in which that was measured; {fewer}find "
        "out what the training waits for, such as its data."
    )


def _split(each: Suggestion) -> str:
    why, better = each.because, times.format_duration(each.better)
    said = (
        f"{table.printable(each.kind)}: submit the elements {each.elements} apart, with --time={better}; they took "
        f"{times.format_duration(why['longest'])} at most, others {times.format_duration(why['longest_of_others'])}."
    )
    if "start" not in why:
        return said
    start, then = (times.format_duration(why[name]) for name in ("start", "start_better"))
    return f"{said} Of those that wait now, the first is forecast to start in {then} so, and in {start} as they are."


def _throttle(each: Suggestion) -> str:
    why = each.because
    return (
        f"{table.printable(each.kind)}: while its last array waited for its throttle, for "
        f"{times.format_duration(why['waited'])}, there was room for {why['more']:.3g} more elements on average; with "
        f"--array=...%{each.better:.0f} it would have been done about {times.format_duration(why['sooner'])} sooner."
    )


def _not_judged(found: Suggestions) -> Iterator[str]:
    """What there is too little history for."""
    judged, groups = found.judged, found.groups
    if not groups:
        yield (
            "None of them had whole GPUs, of which suggestions are made." if found.jobs else "There is no history yet."
        )
        return
    told_apart = f"of {counted(groups, 'kind')} of jobs, told apart by user, type or name, and GPUs"
    if judged["time limit"] < groups:
        few = groups - judged["time limit"]
        yield f"Time limits: too little history of {few} {told_apart}; {FEWEST_RUNS} completed jobs are needed."
    if judged["GPUs in use"] < groups:
        few = groups - judged["GPUs in use"]
        yield (
            f"Use of GPUs: not known of {few} {told_apart}; {FEWEST_MEASURED} jobs that report it are needed "
            "(slurmplug-report[load])."
        )
    if not judged["size"]:
        yield (
            f"Numbers of GPUs: nothing to compare; {FEWEST_MEASURED} jobs of one kind that report their progress are "
            "needed on each of two numbers of GPUs."
        )


def _hours(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


_OF: Sequence[Field[Suggestion]] = (
    Field("USER", "text", 12, "", lambda each: each.user, left=True),
    Field("KIND", "text", 24, "", lambda each: each.kind, left=True),
    Field("JOBS", "integer", 7, "", lambda each: each.jobs),
)
_GAIN: Field[Suggestion] = Field("GPUHOURS", "text", 10, "", lambda each: _hours(each.gpu_hours))
_CHANGES: Sequence[Field[Suggestion]] = (
    *_OF,
    Field("WHAT", "text", 12, "", lambda each: each.what, left=True),
    Field("GPUS", "integer", 6, "", lambda each: each.gpus),
    Field("BETTER", "integer", 6, "", lambda each: each.better, "-"),
    _GAIN,
)
_LIMITS: Sequence[Field[Suggestion]] = (
    *_OF,
    Field("GPUS", "integer", 6, "", lambda each: each.gpus),
    Field("TIMELIMIT", "text", 13, "", lambda each: times.format_duration(each.now)),
    Field("BETTER", "text", 13, "", lambda each: times.format_duration(each.better)),
    Field("LONGEST", "text", 13, "", lambda each: times.format_duration(each.because["longest"])),
    _GAIN,
)
_SPLITS: Sequence[Field[Suggestion]] = (
    *_OF,
    Field("GPUS", "integer", 6, "", lambda each: each.gpus),
    Field("ELEMENTS", "text", 24, "", lambda each: each.elements, left=True),
    Field("TIMELIMIT", "text", 13, "", lambda each: times.format_duration(each.now)),
    Field("BETTER", "text", 13, "", lambda each: times.format_duration(each.better)),
    _GAIN,
)
_THROTTLES: Sequence[Field[Suggestion]] = (
    *_OF,
    Field("GPUS", "integer", 6, "", lambda each: each.gpus),
    Field("THROTTLE", "integer", 8, "", lambda each: each.now),
    Field("BETTER", "integer", 6, "", lambda each: each.better),
    _GAIN,
)
