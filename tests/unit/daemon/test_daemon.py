"""The daemon's loop: what a reload may change, and what a stop waits for."""

import gc
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policies.snapshot import JobKey
from slurmplug.cluster.port import Command
from slurmplug.config import policy_registry
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.daemon import predictor_training
from slurmplug.daemon.daemon import Daemon, serve
from slurmplug.daemon.predictor_training import PredictorTraining
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.standby import FencedCluster
from slurmplug.errors import LedgerError
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.learning import schedule
from slurmplug.ledger import database, run_queries
from slurmplug.ledger.ledger import Ledger


def never_ends(*_: object) -> None:
    """As a training that takes longer than anybody waits."""
    time.sleep(3600)


class Running:
    """A daemon of a fake cluster, whose cycles call `each` before they begin; a call that returns ends it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "slurmplug.toml"
        self.configure("observe")
        self.events: list[Callable[[Daemon], None]] = []
        self.modes: list[str] = []

    def configure(self, mode: str, more: str = "") -> None:
        folder = self.path.parent
        self.path.write_text(
            f'policy = "fifo"\ninterval = 0.1\nmode.default = "{mode}"\nspool.path = "{folder}"\n'
            f'ledger.path = "{folder}/ledger.db"\nslurm.bin = "{folder}"\n{more}'
        )

    def cycle(self, scheduler: Scheduler) -> None:
        self.modes.append(scheduler.config.mode.of("rank"))
        if not self.events:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.events.pop(0)(self.daemon)

    def run(self) -> bool:
        self.daemon = Daemon.opened(self.path, ServiceNotifier())
        return self.daemon.run()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    one = Running(tmp_path)
    monkeypatch.setattr(Scheduler, "run", lambda scheduler: one.cycle(scheduler))  # noqa: PLW0108 it is bound
    yield one
    for number, handler in before.items():
        signal.signal(number, handler)


def hang_up(_: Daemon) -> None:
    os.kill(os.getpid(), signal.SIGHUP)


class TestReload:
    def test_while_the_ledger_cannot_be_written_the_daemon_goes_on(
        self, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def full(*_: object) -> None:
            raise LedgerError("the ledger cannot be used: database or disk is full")

        def fills_up(daemon: Daemon) -> None:
            monkeypatch.setattr(Ledger, "set_control", full)
            running.configure("act")
            hang_up(daemon)
            raise LedgerError("the ledger cannot be used: database or disk is full")

        running.events = [fills_up]
        assert running.run()
        assert running.modes == ["observe", "act"]
        assert "database or disk is full; the rest of this cycle is skipped" in caplog.text

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("interval = no", "the earlier configuration stays in use"),
            ("a = " + "[" * 5000, "the earlier configuration stays in use"),
            (None, "cannot be read: No such file or directory"),
        ],
    )
    def test_one_that_cannot_be_read_leaves_the_earlier(
        self, running: Running, caplog: pytest.LogCaptureFixture, content: str | None, said: str
    ) -> None:
        def breaks(daemon: Daemon) -> None:
            if content is None:
                running.path.unlink()
            else:
                running.path.write_text(content)
            hang_up(daemon)

        running.events = [breaks]
        assert running.run()
        assert running.modes == ["observe", "observe"]
        assert said in caplog.text

    def test_with_too_few_descriptors_it_goes_on_and_says_what_to_do(
        self, running: Running, caplog: pytest.LogCaptureFixture
    ) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)

        def uses_all(daemon: Daemon) -> None:
            running.configure("act")
            hang_up(daemon)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
            os.close(os.open(os.devnull, os.O_RDONLY))

        def gives_back(_: Daemon) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)

        running.events = [uses_all, gives_back]
        try:
            assert running.run()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        assert running.modes == ["observe"] * 3
        told = [record.message for record in caplog.records if "Too many open files" in record.message]
        assert len(told) == 2
        assert all("raise LimitNOFILE of its service" in each for each in told)

    def test_in_the_first_moments_it_ends_nothing(self, tmp_path: Path) -> None:
        """Before the daemon's own handlers are there: the predictors take a second to load."""
        slow = "import os, signal, sys; os.kill(os.getpid(), signal.SIGHUP); sys.exit(7)"
        (tmp_path / "slurmplug.toml").write_text("")
        code = f"""
import sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "slurmplug.daemon.daemon":
            {slow}
sys.meta_path.insert(0, Slow())
from slurmplug.commands.daemon import daemon
daemon(["--config", {str(tmp_path / "slurmplug.toml")!r}])
"""
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 7


@pytest.mark.parametrize("stage", ["read", "signal", "kept inputs"])
def test_where_no_thread_can_be_started_it_goes_on_and_says_what_to_do(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def uses_all(daemon: Daemon) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", none_left)
            if stage == "read":
                daemon.parts.port.read((), {})
            elif stage == "signal":
                daemon.parts.port._client.signal([Command("1", "cancel", JobKey("c", 1, 0))], ["1"])
            else:
                daemon.parts.ledger._encoder.submit(len, "")

    running.events = [uses_all]
    assert running.run()
    assert running.modes == ["observe", "observe"]
    assert "raise TasksMax of its service (ulimit -u); the rest of this cycle is skipped" in caplog.text


def test_work_between_cycles_goes_on_after_a_clock_that_was_ahead(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = 0.0
    done: list[str] = []
    monkeypatch.setattr(FencedCluster, "now", lambda _: time.time() + offset)
    monkeypatch.setattr(Ledger, "thin", lambda *_: done.append("thinned"))
    monkeypatch.setattr(Ledger, "delete_old", lambda *_: done.append("deleted"))
    monkeypatch.setattr(PredictorTraining, "begin", lambda *_: done.append("trained"))
    monkeypatch.setattr(run_queries, "finished_run_counts", lambda _, since: (0 if since else 9, 9))

    def is_ahead(_: Daemon) -> None:
        nonlocal offset
        offset = 30 * 86_400.0

    def is_right(_: Daemon) -> None:
        nonlocal offset
        offset = 0.0

    running.events = [is_ahead, lambda _: None, is_right, lambda _: None]
    assert running.run()
    assert sorted(done) == ["deleted"] * 2 + ["thinned"] * 2 + ["trained"] * 2


class TestStopping:
    def test_it_waits_for_no_program_of_slurm(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        for program in ("squeue", "sinfo", "scontrol", "sacctmgr", "sacct"):
            file = running.path.with_name(program)
            file.write_text(f"#!/bin/sh\necho {program} >>{running.path.parent}/begun\nexec sleep 3600\n")
            file.chmod(0o755)
        running.configure("act", "slurm.timeout = 600\n")
        begun = running.path.with_name("begun")
        start = "from slurmplug.commands import main; main()"
        command = [sys.executable, "-c", start, "daemon", "--config", str(running.path)]
        with subprocess.Popen(command) as process:
            while not begun.exists() or "squeue" not in begun.read_text():
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0

    def test_it_waits_for_no_other_process_that_writes_to_the_ledger(
        self, running: Running, caplog: pytest.LogCaptureFixture
    ) -> None:
        other: list[sqlite3.Connection] = []

        def writes(daemon: Daemon) -> None:
            daemon.parts.scheduler.applying = True  # else the cycle is ended where it is
            other.append(sqlite3.connect(running.path.with_name("ledger.db"), isolation_level=None))
            other[0].execute("BEGIN IMMEDIATE")
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            daemon.parts.ledger.set_control("paused", "")

        running.events = [writes]
        monkey = pytest.MonkeyPatch()
        monkey.setattr(database, "BUSY_SECONDS", 3600.0)
        try:
            assert running.run()
        finally:
            monkey.undo()
            other[0].close()
        assert "another process has held it for long" in caplog.text

    def test_it_ends_a_stage_that_would_take_long(self, running: Running) -> None:
        def computes(_: Daemon) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(0.0)

        running.events = [computes]
        assert running.run()

    def test_it_ends_while_the_daemon_begins(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        def begins(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(0.0)

        monkeypatch.setattr(policy_registry, "policy", begins)
        monkeypatch.setattr(gc, "freeze", lambda: None)
        serve(running.path)
        assert running.modes == []

    def test_one_that_comes_between_beginning_and_running_is_not_lost(
        self, running: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        got_ready: list[int] = []
        monkeypatch.setattr(Forecaster, "get_ready", lambda *_: got_ready.append(1))
        running.daemon = Daemon.opened(running.path, ServiceNotifier())
        os.kill(os.getpid(), signal.SIGTERM)
        assert running.daemon.run()
        assert not got_ready

    def test_it_ends_while_predictors_are_loaded(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        def computes(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(0.0)

        monkeypatch.setattr(Forecaster, "get_ready", computes)
        assert running.run()
        assert running.modes == []

    def test_it_waits_for_commands_that_are_being_applied(self, running: Running) -> None:
        ended = []

        def applies(daemon: Daemon) -> None:
            daemon.parts.scheduler.applying = True
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append("not before")
            daemon.parts.scheduler.applying = False
            os.kill(os.getpid(), signal.SIGTERM)

        running.events = [applies]
        assert running.run()
        assert ended

    def test_it_ends_a_statement_of_the_ledger_that_would_take_long(
        self, running: Running, caplog: pytest.LogCaptureFixture
    ) -> None:
        endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"

        def computes(daemon: Daemon) -> None:
            daemon.parts.scheduler.applying = True
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            daemon.parts.ledger.value(endless)

        running.events = [computes]
        assert running.run()
        assert "interrupted" in caplog.text

    def test_it_waits_for_no_training(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(predictor_training, "train", never_ends)
        monkeypatch.setattr(schedule, "training_is_due", lambda *_: True)
        running.events = [lambda _: None, lambda _: None]
        assert running.run()
