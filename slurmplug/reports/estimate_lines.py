"""`slurmplug estimate` for people: what is expected of a job that was not submitted yet."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.reports import explain
from slurmplug.reports.job_request import JobRequest

_LATER = "later than all that was simulated"
_METHOD = {
    "simulated": "",
    "learnt": ", and by waits of jobs in such queues",
    "average": ", simulated, and by waits of jobs in such queues",
}


def lines(
    found: Mapping[str, Any], request: JobRequest, slurm_start: float, now: float, assumed: Sequence[str] = ()
) -> Iterator[str]:
    """The text. found: as `estimate.estimate` returns it. slurm_start: when Slurm expects to start the job. assumed:
    sentences about what is assumed of it."""
    limit = times.format_duration(request.time_limit, "no time limit")
    yield (
        f"{printable(request.name)}: {counted(request.gpus, 'GPU')}, {counted(request.cpus, 'CPU')}, "
        f"{limit}, partition {printable(request.partition)}."
    )
    ago = times.format_duration(now - found["as_of"])
    of = f"such forecasts, by {found['outcomes']} that came true" if found["outcomes"] else "the simulations"
    by = f"By the queue of {times.format_time(found['as_of'])}, {ago} ago{_METHOD[found['method']]}"
    yield f"{by}; in brackets 80 % of {of}:"
    yield f"  Start     {_time(found['start'])}"
    yield f"  End       {_time(found['end'])}"
    run_time = found["run_time"]
    middle, low, high = (times.format_duration(run_time[name], _LATER) for name in ("median", "low", "high"))
    source = explain.source(found["source"] or "time limit")
    yield f"  Run time  {middle} ({low} to {high}), by {source}"
    if found["deadline"] is not None:
        yield f"  Deadline  {times.format_time(found['deadline'])}: met in {found['in_time']:.0%} of them"
    if target := found["target"]:
        stated = f"{printable(target['quantity'])}{target['relation']}{target['value']:g}"
        runs = f"met by {target['met']} of your last {counted(target['runs'], 'run')} of that name that reported it"
        yield f"  Target    {stated}: {runs if target['runs'] else 'no run of that name has reported it'}"
    yield f"  Slurm     expects to start it {times.format_time(slurm_start)} (sbatch --test-only)"
    if found["changes"]:
        yield "What would change that:"
        yield from map(_change, found["changes"])
    yield from assumed
    yield (
        "Not known: jobs that are submitted later, changes of fairshare and priorities, limits on minutes and on "
        "submitted jobs, reservations that begin later, on which nodes the jobs before it start."
    )


def _change(change: Mapping[str, Any]) -> str:
    value = change["value"]
    what = {
        "time_limit": lambda: f"--time={times.format_duration(value)}",
        "gpus": lambda: counted(int(value), "GPU"),
        "partition": lambda: f"--partition={printable(value)}",
    }[change["change"]]()
    chance = "" if change["in_time"] is None else f", deadline met in {change['in_time']:.0%}"
    return f"  {what}: start {_time(change['start'])}, end {_time(change['end'])}{chance}"


def _time(estimate: Mapping[str, float | None]) -> str:
    middle, low, high = (times.format_time(estimate[name], _LATER) for name in ("median", "low", "high"))
    return f"{middle} ({low} to {high})"
