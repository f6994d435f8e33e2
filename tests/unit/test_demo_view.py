"""The demo's view tells what happened, and what a user chose moves no cursor."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId
from slurmplug.sandbox.view import LEAP, NOTHING, Board, Lines, Scene, events, view
from tests.ledgers import Site

SCRIPT = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=60\ntrain\n"
URGENT = b"#!/bin/sh\n#PLUG --urgency=10 --deadline=2m\ntrain\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def scene(site: Site) -> Scene:
    ledger = Ledger(site.path, readonly=True)
    try:
        return Scene.of(ledger, [JobId(number) for number in site.cluster.jobs])
    finally:
        ledger.close()


def test_it_tells_the_story_of_a_job_once(site: Site) -> None:
    told: list[str] = []
    before = NOTHING

    def look() -> None:
        nonlocal before
        after = scene(site)
        told.extend(events(before, after))
        before = after

    job = site.cluster.submit(SCRIPT, name="digits", gpus=2)
    site.cycle(seconds=2)
    look()
    site.cluster.start(job, "n1")
    site.cycle(seconds=2)
    look()
    site.train(job, {iteration: iteration / 10 for iteration in range(1, 10)}, loss=0.5)
    site.cycle(seconds=2)
    look()
    look()
    site.cluster.end(job)
    site.cycle(seconds=2)
    look()

    assert told == [
        "started    1 digits: 2 GPUs on n1",
        "stop       1 digits: its accuracy of 0.9 meets the target of 0.9 that the job set, after iteration 9 of 60",
        "ended      1 digits: COMPLETED after 00:00:13, 51 iterations saved",
    ]


def test_it_tells_who_goes_before_many_that_waited_longer(site: Site) -> None:
    for _ in range(LEAP):
        site.cluster.submit(SCRIPT)
    site.cycle()
    before = scene(site)
    site.cluster.submit(SCRIPT, name="last")
    site.cluster.submit(URGENT, name="urgent")
    site.cycle()

    assert list(events(before, scene(site))) == [f"rank       7 urgent: now 1 of {LEAP + 2} that wait"]


def test_on_a_terminal_it_is_a_table_and_elsewhere_lines() -> None:
    assert isinstance(view(Console(force_terminal=True), 4), Board)
    assert type(view(Console(file=io.StringIO()), 4)) is Lines


@pytest.mark.parametrize("kind", [Lines, Board])
def test_a_name_moves_no_cursor_and_is_no_markup(site: Site, kind: type[Lines]) -> None:
    job = site.cluster.submit(SCRIPT, name="[red]\x1b]0;x\x07\n")
    site.cluster.start(job)
    site.cycle()
    file = io.StringIO()
    console = Console(file=file, force_terminal=kind is Board, width=160, height=40, color_system=None)

    with kind(console, 4) as shown:
        shown.show(scene(site))

    assert "[red]\\x1b" in file.getvalue()
    assert "\x1b]" not in file.getvalue()
    assert "\x07" not in file.getvalue()


def test_the_table_shows_who_runs_first_then_who_waits_by_rank_then_who_ended(site: Site) -> None:
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

    with Board(Console(file=file, force_terminal=True, width=160, height=40, color_system=None), 4) as board:
        board.show(scene(site))

    rows = [line.split()[0] for line in file.getvalue().splitlines() if " ada " in line]
    assert rows[:4] == [str(job) for job in (running, urgent, waiting, ended)]
