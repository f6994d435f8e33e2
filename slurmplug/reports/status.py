"""`slurmplug status` in lines: the daemon, its last cycle, its operations, and its ledger."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from policies.plan import Reason
from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.reports import explain, model_view

MOST_NAMED = 10
"""jobs that are named behind a count"""


def status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """The lines that `slurmplug status` prints, from what `Reports.status` returns."""
    yield from _daemon_lines(status)
    yield f"policy      {printable(status['policy'])} (installed: {printable(', '.join(status['policies']))})"
    yield from model_view.in_charge_lines(status["models"])
    cycle = status["cycle"]
    if cycle["id"] is not None:
        seconds = ", ".join(f"{printable(name)} {value:.3f} s" for name, value in cycle["seconds"].items())
        yield (
            f"last cycle  {cycle['id']}: {counted(cycle['jobs'], 'job')}, {cycle['pending']} pending, "
            f"{cycle['running']} running, {cycle['managed']} managed"
        )
        yield f"            {seconds or 'no times'}; {cycle['postponed']} writes of priorities postponed to the next"
    if count := status["factors_by_others"]:
        yield f"priorities  {counted(count, 'job')} not ranked, as somebody else set the SiteFactor (set by others)"
        yield from _jobs(status["not_ranked"])
    if status["error"]:
        yield f"error       {printable(status['error'])}"
    frozen = explain.sentence(Reason(status["frozen"])) if status["frozen"] else "no"
    yield f"frozen      {frozen}; failed cycles in a row: {status['failures_in_a_row']}"
    open_ones = ", ".join(f"{each['jobs']} to {each['kind']} ({each['step']})" for each in status["operations"])
    yield f"operations  {printable(open_ones) or 'none open'}; stops in the last hour: {status['stops_last_hour']}"
    yield from _jobs_of(status["operations"])
    if status["unchangeable"]:
        forms = "; ".join(
            f"{printable(each['asked'])}: {counted(each['jobs'], 'job')}" for each in status["unchangeable"]
        )
        yield f"requests    Slurm cannot change: {forms} (in the last day)"
        yield from _jobs_of(status["unchangeable"])
    faults = ", ".join(f"{printable(each['rule'])} {each['count']}" for each in status["faults"])
    yield f"faults      {faults or 'none'} (of reports and scripts, in the last day)"
    yield from _jobs_of(status["faults"])
    yield from _forecast_lines(status["forecasts"])
    ledger = status["ledger"]
    yield (
        f"ledger      {printable(ledger['path'])}: {ledger['bytes'] / 2**20:.1f} MiB, "
        f"{counted(ledger['jobs'], 'job')}, {counted(ledger['cycles'], 'cycle')}"
    )


def _daemon_lines(status: Mapping[str, Any]) -> Iterator[str]:
    age = status["age"]
    last = "no cycle yet" if age is None else f"last cycle {times.format_duration(age)} ago"
    state = "alive" if status["alive"] else "late" if status["running"] else "not running"
    yield f"daemon      {state}: {last}, one every {status['interval']:g} s"
    if not status["alive"]:
        log = "journalctl -u slurmplugd" if status["journal"] else "what `slurmplug daemon` wrote where it was started"
        yield f"            its log says why: {log}"
    modes = status["modes"]
    own = [f"{name}: {mode}" for name, mode in modes.items() if name != "default" and mode]
    mode = modes.get("default") or "not known"
    yield f"mode        {mode}{'; ' if own else ''}{', '.join(own)}"
    if status["paused"] is not None:
        yield f"            paused, so it observes only: {printable(status['paused']) or 'no reason given'}"
    if status["hindered"]:
        yield f"            blocked by a failed check: {printable(status['hindered'])}"


def _forecast_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """When the queue was forecast last, and how starts and ends came that were forecast."""
    made = "of the queue of " + times.format_time(found["at"]) if found["at"] else "the queue is not forecast yet"
    yield f"forecasts   {made}"
    for name in ("start", "end"):
        of, held = found[name], ""
        if count := of["with_interval"]:
            held = f"; {of['held'] / count:.0%} of {counted(count, 'interval')} held (goal 80%)"
        if of["came"]:
            error = times.format_duration(of["error"])
            yield f"            {counted(of['came'], name)} came true in {found['days']} days: mean error {error}{held}"


def _jobs_of(counts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from _jobs(sorted({job for each in counts for job in each["job_ids"]}))


def _jobs(ids: Sequence[int]) -> Iterator[str]:
    """A line with these jobs, the first of many."""
    if ids:
        more = f" and {len(ids) - MOST_NAMED} more (--json)" if len(ids) > MOST_NAMED else ""
        yield f"            jobs {', '.join(map(str, ids[:MOST_NAMED]))}{more}"
