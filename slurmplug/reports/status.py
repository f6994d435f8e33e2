"""`slurmplug status` in lines: the daemon, its last cycle, its operations, and its ledger."""

from collections.abc import Iterator, Mapping
from typing import Any

from policies.plan import Reason
from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.reports import explain


def status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """The lines that `slurmplug status` prints, from what `Reports.status` returns."""
    yield from _daemon_lines(status)
    yield f"policy      {printable(status['policy'])} (installed: {printable(', '.join(status['policies']))})"
    cycle = status["cycle"]
    if cycle["id"] is not None:
        seconds = ", ".join(f"{printable(name)} {value:.3g} s" for name, value in cycle["seconds"].items())
        yield (
            f"last cycle  {cycle['id']}: {counted(cycle['jobs'], 'job')}, {cycle['pending']} pending, "
            f"{cycle['running']} running, {cycle['managed']} managed"
        )
        yield f"            {seconds or 'no times'}; {cycle['postponed']} priorities wait for the next"
    if count := status["factors_by_others"]:
        yield f"priorities  {counted(count, 'job')} not ranked, as somebody else set the SiteFactor (set by others)"
    if status["error"]:
        yield f"error       {printable(status['error'])}"
    frozen = explain.sentence(Reason(status["frozen"])) if status["frozen"] else "no"
    yield f"frozen      {frozen}; failed cycles in a row: {status['failures_in_a_row']}"
    open_ones = ", ".join(f"{each['jobs']} to {each['kind']} ({each['step']})" for each in status["operations"])
    yield f"operations  {printable(open_ones) or 'none open'}; stops in the last hour: {status['stops_last_hour']}"
    if status["unchangeable"]:
        forms = "; ".join(
            f"{printable(each['asked'])}: {counted(each['jobs'], 'job')}" for each in status["unchangeable"]
        )
        yield f"requests    Slurm cannot change: {forms} (in the last day)"
    faults = ", ".join(f"{printable(each['rule'])} {each['count']}" for each in status["faults"])
    yield f"faults      {faults or 'none'} (of reports and scripts, in the last day)"
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
        yield "            its log says why: journalctl -u slurmplugd"
    modes = status["modes"]
    own = [f"{name}: {mode}" for name, mode in modes.items() if name != "default" and mode]
    mode = modes.get("default") or "not known"
    yield f"mode        {mode}{'; ' if own else ''}{', '.join(own)}"
    if status["paused"] is not None:
        yield f"            paused, so it observes only: {printable(status['paused']) or 'no reason given'}"
    if status["hindered"]:
        yield f"            blocked by a failed check: {printable(status['hindered'])}"
