"""status, pause and resume."""

import fcntl
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from policies.snapshot import Snapshot
from slurmplug.commands import opened
from slurmplug.config import policy_names
from slurmplug.config.schema import Config
from slurmplug.console import times
from slurmplug.ledger.lock import daemon_runs
from slurmplug.reports import daemon_status
from slurmplug.reports.service import LedgerReports
from slurmplug.reports.viewer import Viewer
from slurmplug.spool.values import SpoolFault
from tests.builders import NOW
from tests.ledgers import Planned, Site
from tests.moving import ELASTIC, SETTINGS, DoesWhatItIsTold


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


@contextmanager
def locked(site: Site) -> Iterator[None]:
    """As long as a daemon serves the ledger."""
    with site.path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    """The clock of the command is the cluster's."""
    monkeypatch.setattr(time, "time", lambda: site.cluster.time + 5.0)


def test_a_daemon_that_holds_its_lock_and_cycles_is_alive(site: Site, now: None) -> None:
    site.cycle()
    with locked(site):
        assert "daemon      alive: last cycle 00:00:05 ago, one every 60 s" in site.ask("status")


def test_a_daemon_that_holds_its_lock_and_does_not_cycle_is_late(site: Site, now: None) -> None:
    site.cycle()
    site.cluster.time += 600
    with locked(site):
        assert "daemon      late: last cycle 00:10:05 ago" in site.ask("status", code=1)


def test_without_the_lock_it_is_not_running(site: Site, now: None) -> None:
    site.cycle()
    assert "daemon      not running" in site.ask("status", code=1)


@pytest.mark.parametrize("asked", [("queue",), ("prio",), ("why", "1")])
def test_on_a_terminal_answers_without_a_daemon_say_of_what_time_they_are(
    site: Site, now: None, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...]
) -> None:
    site.cluster.submit()
    site.cycle()
    as_of = f"The daemon is not alive (slurmplug status); this is as of {times.format_time(site.cluster.time)}."
    assert as_of not in site.ask(*asked)
    monkeypatch.setattr(opened, "stderr_is_terminal", lambda: True)
    assert as_of in site.ask(*asked)
    with locked(site):
        assert "not alive" not in site.ask(*asked)


def test_a_fresh_ledger_has_no_cycle_yet(site: Site, now: None) -> None:
    assert "no cycle yet" in site.ask("status", code=1)


def test_the_last_cycle_in_figures(site: Site, now: None) -> None:
    site.cluster.start(site.cluster.submit())
    site.cluster.submit()
    site.cluster.submit(b"#!/bin/sh\ntrain\n")
    site.cycle(2)
    output = site.ask("status", code=1)
    assert "last cycle  2: 3 jobs, 2 pending, 1 running, 2 managed" in output
    assert re.search(r"^ +(\w+ \d+\.\d{3} s, )+apply \d+\.\d{3} s; 0 writes", output, re.MULTILINE)
    assert f"policy      mlfs (installed: {', '.join(policy_names.names())})" in output
    assert "ledger.db: " in output


def test_a_failed_read_is_told_beside_the_last_cycle_that_worked(site: Site, now: None) -> None:
    site.cluster.submit()
    site.cycle()
    site.cluster.reachable = False
    site.cluster.time += 60
    assert site.scheduler.run() is None
    output = site.ask("status", code=1)
    assert "error       squeue did not answer" in output
    assert "last cycle  1: 1 job, " in output


def test_modes_of_each_kind(tmp_path: Path) -> None:
    with Site(tmp_path, mode={"default": "act", "stop": "advise"}) as site:
        site.cycle()
        assert "mode        act; stop: advise" in site.ask("status", code=1)


def test_open_operations_and_faults_are_counted(site: Site, now: None) -> None:
    site.cluster.start(site.cluster.submit())
    site.train(1, dict.fromkeys(range(1, 8), 0.95))
    site.cluster.faults += [SpoolFault(1, "owner", "uid 5", 2), SpoolFault(2, "owner", "uid 6", 1)]
    site.cycle()
    output = site.ask("status", code=1)
    assert "operations  1 to stop (ask); stops in the last hour: 1\n            jobs 1\n" in output
    assert "faults      owner 3 (of reports and scripts, in the last day)\n            jobs 1, 2\n" in output


def test_of_many_jobs_the_first_are_named(site: Site, now: None) -> None:
    site.cluster.faults += [SpoolFault(job, "owner", "uid 5", 1) for job in range(1, 13)]
    site.cycle()
    assert "jobs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more (--json)" in site.ask("status", code=1)
    [fault] = json.loads(site.ask("status", "--json", code=1))["faults"]
    assert fault["job_ids"] == list(range(1, 13))


def test_who_may_not_see_all_jobs_is_told_counts_alone(site: Site, now: None) -> None:
    site.cluster.faults += [SpoolFault(1, "owner", "uid 5", 1)]
    site.cycle()
    user = LedgerReports(site.ledger, site.path, Config(), Viewer(uid=1002, sees_all=False))
    assert [fault["job_ids"] for fault in user.status(site.cluster.time)["faults"]] == [[]]


@pytest.mark.parametrize(
    ("there", "said"), [(True, "journalctl -u slurmplugd"), (False, "what `slurmplug daemon` wrote")]
)
@pytest.mark.usefixtures("now")
def test_a_log_is_looked_for_where_there_is_one(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, said: str
) -> None:
    monkeypatch.setattr(daemon_status, "JOURNAL", tmp_path if there else tmp_path / "none")
    site.cycle()
    assert f"its log says why: {said}" in site.ask("status", code=1)
    with locked(site):
        assert "its log" not in site.ask("status")


def test_jobs_that_cannot_be_resized_are_counted_by_how_they_requested_their_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = DoesWhatItIsTold()
    with Site(tmp_path, policy, **SETTINGS) as site:
        for form in ("gres_per_socket", "gres_per_task", "gres_per_socket", ""):
            job = site.cluster.submit(ELASTIC, gpus=2)
            site.cluster.jobs[job]["request"] = {form: "gres:gpu:2"} if form else {}
            policy.wanted[job] = {"kind": "resize", "gpus": 1}
        site.cycle(2)
        monkeypatch.setattr(time, "time", lambda: site.cluster.time)
        forms = "GPUs per socket (--gpus-per-socket): 2 jobs; GPUs by several options: 1 job (in the last day)"
        assert f"requests    Slurm cannot change: {forms}\n" in site.ask("status", code=1)
        assert json.loads(site.ask("status", "--json", code=1))["unchangeable"] == [
            {"asked": "GPUs per socket (--gpus-per-socket)", "jobs": 2, "job_ids": [1, 3]},
            {"asked": "GPUs by several options", "jobs": 1, "job_ids": [2]},
        ]


def test_a_frozen_cycle_is_explained(tmp_path: Path) -> None:
    with Site(tmp_path, guardrails={"breaker_failures": 1}) as site:
        site.cluster.submit()
        site.cluster.submit(time_limit=600.0)
        site.cluster.refuse = frozenset({"update"})
        site.cycle(2)
        output = site.ask("status", code=1)
        assert "frozen      Commands failed in too many cycles in a row, so no commands are sent for a while" in output
        assert "No commands were sent in the last cycle. Commands failed" in site.ask("why", "1")


def test_a_policys_failure_is_told_fit_for_a_terminal(tmp_path: Path) -> None:
    def fail(_: Snapshot) -> NoReturn:
        raise RuntimeError("\x1b[2J")

    with Site(tmp_path, Planned(fail)) as site:
        site.cluster.submit()
        site.cycle()
        assert "error       policy planned failed: RuntimeError: \\x1b[2J" in site.ask("status", code=1)


def test_json_tells_the_same(site: Site, now: None) -> None:
    site.cycle()
    with locked(site):
        report = site.json("status")
    assert (report["alive"], report["age"], report["cycle"]["id"], report["paused"]) == (True, 5.0, 1, None)
    assert report["cycle"]["started"] == NOW + 60


class TestPause:
    def test_a_pause_vetoes_and_leaves_no_label_until_it_is_over(self, site: Site) -> None:
        for urgency in (1, 9):
            site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=%d\ntrain\n" % urgency)
        site.ask("pause")
        site.cycle()
        assert site.cluster.done == []
        site.ask("resume")
        site.cycle()
        assert site.cluster.verbs() == ["update", "update"]

    def test_status_tells_who_paused_and_why(self, site: Site, now: None) -> None:
        site.ask("pause", "disk", "is", "full\x1b")
        site.cycle()
        output = site.ask("status", code=1)
        assert "paused, so it observes only: disk is full\\x1b (" in output

    def test_resuming_tells_what_it_was_paused_for(self, site: Site) -> None:
        site.ask("pause", "upgrade")
        assert "resumed; it was paused: upgrade (" in site.ask("resume")
        assert "it was not paused" in site.ask("resume")


class TestDaemonRuns:
    def test_it_does_while_the_lock_is_held(self, site: Site) -> None:
        with locked(site):
            assert daemon_runs(site.path)
        assert not daemon_runs(site.path)

    def test_it_does_not_where_there_never_was_a_lock(self, tmp_path: Path) -> None:
        assert not daemon_runs(tmp_path / "ledger.db")
