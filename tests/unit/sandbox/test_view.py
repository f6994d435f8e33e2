"""The demo's view shows what happened, and no text of a user controls the terminal."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId
from slurmplug.sandbox.view import EMPTY_QUEUE, MIN_OVERTAKEN, EventPrinter, LiveTable, QueueState, events, make_view
from tests.ledgers import Site

SCRIPT = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=60\ntrain\n"
URGENT = b"#!/bin/sh\n#PLUG --urgency=10 --deadline=2m\ntrain\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def current_state(site: Site) -> QueueState:
    ledger = Ledger(site.path, readonly=True)
    try:
        return QueueState.of(ledger, [JobId(number) for number in site.cluster.jobs])
    finally:
        ledger.close()


def test_every_event_of_a_job_is_shown_once(site: Site) -> None:
    shown_events: list[str] = []
    before = EMPTY_QUEUE

    def show_changes() -> None:
        nonlocal before
        after = current_state(site)
        shown_events.extend(events(before, after))
        before = after

    job = site.cluster.submit(SCRIPT, name="digits", gpus=2)
    site.cycle(seconds=2)
    show_changes()
    site.cluster.start(job, "n1")
    site.cycle(seconds=2)
    show_changes()
    site.train(job, {iteration: iteration / 10 for iteration in range(1, 10)}, loss=0.5)
    site.cycle(seconds=2)
    show_changes()
    show_changes()
    site.cluster.end(job)
    site.cycle(seconds=2)
    show_changes()

    assert shown_events == [
        "started    1 digits: 2 GPUs on n1",
        "stop       1 digits: its accuracy of 0.9 meets the target of 0.9 that the job set, after iteration 9 of 60",
        "ended      1 digits: COMPLETED after 00:00:13, 51 iterations saved",
    ]


def test_a_job_that_overtakes_many_pending_ones_is_shown(site: Site) -> None:
    for _ in range(MIN_OVERTAKEN):
        site.cluster.submit(SCRIPT)
    site.cycle()
    before = current_state(site)
    site.cluster.submit(SCRIPT, name="last")
    site.cluster.submit(URGENT, name="urgent")
    site.cycle()

    assert list(events(before, current_state(site))) == [
        f"rank       7 urgent: now 1 of {MIN_OVERTAKEN + 2} pending jobs"
    ]


def test_a_terminal_gets_a_table_and_a_file_lines() -> None:
    assert isinstance(make_view(Console(force_terminal=True), 4), LiveTable)
    assert type(make_view(Console(file=io.StringIO()), 4)) is EventPrinter


@pytest.mark.parametrize("kind", [EventPrinter, LiveTable])
def test_a_job_name_moves_no_cursor_and_is_no_markup(site: Site, kind: type[EventPrinter]) -> None:
    job = site.cluster.submit(SCRIPT, name="[red]\x1b]0;x\x07\n")
    site.cluster.start(job)
    site.cycle()
    file = io.StringIO()
    console = Console(file=file, force_terminal=kind is LiveTable, width=160, height=40, color_system=None)

    with kind(console, 4) as shown:
        shown.show(current_state(site))

    assert "[red]\\x1b" in file.getvalue()
    assert "\x1b]" not in file.getvalue()
    assert "\x07" not in file.getvalue()


def test_the_table_has_running_jobs_then_pending_ones_by_rank_then_ended_ones(site: Site) -> None:
    ended, waiting, urgent, running = (
        site.cluster.submit(script, name=name)
        for name, script in (("done", SCRIPT), ("waits", SCRIPT), ("urgent", URGENT), ("runs", SCRIPT))
    )
    site.cluster.start(running)
    site.cluster.start(ended)
    site.cycle()
    site.cluster.end(ended)
    site.cycle()
    file = io.StringIO()

    with LiveTable(Console(file=file, force_terminal=True, width=160, height=40, color_system=None), 4) as table:
        table.show(current_state(site))

    rows = [line.split()[0] for line in file.getvalue().splitlines() if " ada " in line]
    assert rows[:4] == [str(job) for job in (running, urgent, waiting, ended)]
