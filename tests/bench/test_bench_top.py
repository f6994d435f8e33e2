"""The processor's time of `slurmplug top` at 10,000 jobs: a refresh, and a key of each kind.

    pytest tests/bench/test_bench_top.py --benchmark-only --benchmark-columns=median,iqr,rounds

What a refresh reads is read in a thread beside the screen. While it is shown keys wait, and a key is answered once the
screen is drawn: both are measured with what Textual draws.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from textual.widgets import Static

from slurmplug.commands.screen import app
from slurmplug.commands.screen.app import QueueScreen, Top
from slurmplug.commands.screen.job_list import JobList
from slurmplug.commands.screen.rows import Order
from slurmplug.commands.screen.source import Queue, Source
from slurmplug.console.table import counted
from tests.ledgers import Site

JOBS = int(os.environ.get("JOBS", "10000"))
SCRIPT = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --max-iterations=100 --deadline=3h\ntrain\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A tenth of the jobs run and have reported, a third has directives."""
    with Site(tmp_path_factory.mktemp("site")) as site:
        for number in range(JOBS):
            script = SCRIPT if number % 3 == 0 else b"#!/bin/sh\ntrain\n"
            site.cluster.submit(script, uid=3000 + number % 40, user=f"user{number % 40}", name=f"train-{number % 7}")
        site.cycle()
        for job in list(site.cluster.jobs)[: JOBS // 10]:
            site.cluster.start(job)
        site.cycle()
        for job in list(site.cluster.jobs)[: JOBS // 10]:
            site.cluster.say(job, iteration=1, accuracy=0.5, loss=1.0)
        site.cycle()
        yield Source(site.path.parent / "none.toml", site.path, unicode=True)


@pytest.mark.benchmark(timer=time.process_time)
def test_a_refresh_beside_the_screen(benchmark: BenchmarkFixture, source: Source) -> None:
    queue: Queue = benchmark.pedantic(source.queue, rounds=5, warmup_rounds=1)
    assert len(queue.values["jobid"]) == JOBS


class Pressed:
    """The application, run between calls."""

    def __init__(self, source: Source, runner: asyncio.Runner) -> None:
        self.top, self.run = Top(source), runner.run
        self._test = self.top.run_test(size=(80, 24))
        self._pilot = self.run(self._test.__aenter__())
        limit = time.monotonic() + 60
        while counted(JOBS, "job") not in str(self.screen.query_one("#summary", Static).render()):
            assert time.monotonic() < limit
            self.run(self._pilot.pause(0.1))

    @property
    def screen(self) -> QueueScreen:
        assert isinstance(self.top.screen, QueueScreen)
        return self.top.screen

    def press(self, key: str) -> None:
        self.run(self._pilot.press(key))

    def take(self, answer: "Future[Queue]") -> None:
        self.screen._take_queue(answer)
        self.run(self._pilot.pause())

    def end(self) -> None:
        self.run(self._test.__aexit__(None, None, None))


@pytest.fixture
def pressed(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pressed]:
    """Without a refresh of its own."""
    monkeypatch.setattr(app, "QUEUE_SECONDS", 1e6)
    with asyncio.Runner() as runner:
        made = Pressed(source, runner)
        yield made
        made.end()


@pytest.mark.benchmark(timer=time.process_time)
def test_a_refresh_shown(benchmark: BenchmarkFixture, source: Source, pressed: Pressed) -> None:
    answer: Future[Queue] = Future()
    answer.set_result(source.queue())
    benchmark.pedantic(pressed.take, args=(answer,), rounds=5, warmup_rounds=1)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("key", ["down", "pagedown"])
def test_a_move(benchmark: BenchmarkFixture, pressed: Pressed, key: str) -> None:
    benchmark.pedantic(pressed.press, args=(key,), rounds=20, warmup_rounds=1)
    assert pressed.screen.query_one(JobList).cursor > 0


@pytest.mark.benchmark(timer=time.process_time)
def test_a_letter_of_a_filter(benchmark: BenchmarkFixture, pressed: Pressed) -> None:
    pressed.press("slash")
    benchmark.pedantic(pressed.press, args=("e",), rounds=10, warmup_rounds=1)
    assert f" of {counted(JOBS, 'job')}" in str(pressed.screen.query_one("#summary", Static).render())


@pytest.mark.benchmark(timer=time.process_time)
def test_an_order_by_job_ids(benchmark: BenchmarkFixture, source: Source) -> None:
    values = source.queue().values
    rows = benchmark.pedantic(Order("JOBID", True).rows, args=(values,), rounds=5, warmup_rounds=1)
    assert len(rows) == JOBS
