"""`slurmplug status`: is the daemon alive, what may it do, and what did it do last?"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from policies.plan import Reason
from slurmplug.commands.options import answering, emit, json_option, ledger_options
from slurmplug.console import times
from slurmplug.console.table import as_json, counted, printable
from slurmplug.reports import explain


@click.command()
@ledger_options
@json_option
def status(*, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Tell whether the daemon is alive, what it may do, and what its last cycle did. It ends with 1 where it is not."""
    with answering(config_path, ledger_path) as answers:
        told = answers.status(time.time())
    emit([as_json(told)] if wants_json else _lines(told))
    if not told["alive"]:
        raise SystemExit(1)


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    yield from _of_daemon(told)
    yield f"policy      {printable(told['policy'])} (installed: {printable(', '.join(told['policies']))})"
    cycle = told["cycle"]
    if cycle["id"] is not None:
        seconds = ", ".join(f"{printable(name)} {value:.3g} s" for name, value in cycle["seconds"].items())
        yield (
            f"last cycle  {cycle['id']}: {counted(cycle['jobs'], 'job')}, {cycle['pending']} pending, "
            f"{cycle['running']} running, {cycle['managed']} managed"
        )
        yield f"            {seconds or 'no times'}; {cycle['postponed']} priorities wait for the next"
    if told["error"]:
        yield f"error       {printable(told['error'])}"
    frozen = explain.sentence(Reason(told["frozen"])) if told["frozen"] else "no"
    yield f"frozen      {frozen}; failed cycles in a row: {told['failures_in_a_row']}"
    open_ones = ", ".join(f"{each['jobs']} to {each['kind']} ({each['step']})" for each in told["operations"])
    yield f"operations  {printable(open_ones) or 'none open'}; stops in the last hour: {told['stops_last_hour']}"
    faults = ", ".join(f"{printable(each['rule'])} {each['count']}" for each in told["faults"])
    yield f"faults      {faults or 'none'} (of reports, in the last day)"
    ledger = told["ledger"]
    yield (
        f"ledger      {printable(ledger['path'])}: {ledger['bytes'] / 2**20:.1f} MiB, "
        f"{counted(ledger['jobs'], 'job')}, {counted(ledger['cycles'], 'cycle')}"
    )


def _of_daemon(told: Mapping[str, Any]) -> Iterator[str]:
    age = told["age"]
    last = "no cycle yet" if age is None else f"last cycle {times.span(age)} ago"
    state = "alive" if told["alive"] else "late" if told["running"] else "not running"
    yield f"daemon      {state}: {last}, one every {told['interval']:g} s"
    if not told["alive"]:
        yield "            its log says why: journalctl -u slurmplugd"
    modes = told["modes"]
    own = [f"{name}: {mode}" for name, mode in modes.items() if name != "default" and mode]
    mode = modes.get("default") or "not known"
    yield f"mode        {mode}{'; ' if own else ''}{', '.join(own)}"
    if told["paused"] is not None:
        yield f"            paused, so it observes only: {printable(told['paused']) or 'no reason given'}"
    if told["hindered"]:
        yield f"            something needed is missing: {printable(told['hindered'])}"
