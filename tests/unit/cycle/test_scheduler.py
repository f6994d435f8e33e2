"""The way through one cycle: nothing has an effect that was not written first, and no trouble of a part spreads."""

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from policies.mlfs.mlfs import MLFS
from policies.plan import Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts
from slurmplug.cluster.port import Command, Outcome
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.errors import LedgerError
from slurmplug.ledger.codec import loads, rebuild
from slurmplug.ledger.ledger import Ledger
from slurmplug.operations import Operation
from tests.builders import NOW
from tests.fake_cluster import Crash, FakeCluster
from tests.schedulers import begun

ACT: dict[str, Any] = {"mode": {"default": "act"}}


class Site:
    """A cluster in memory, a ledger, and the scheduler between them."""

    def __init__(self, ledger: Ledger, policy: Policy | None = None, **settings: Any) -> None:
        self.cluster = FakeCluster()
        self.ledger = ledger
        self.policy: Policy = policy or MLFS()
        self.config = Config.from_table({**ACT, **settings})
        self.restart()

    def restart(self) -> None:
        self.scheduler = begun(self.cluster, self.policy, self.ledger, self.config)

    def cycle(self, after: float = 60.0) -> CycleRecord:
        self.cluster.time += after
        record = self.scheduler.run()
        assert record is not None
        return record

    def trains(self, job_id: int, *values: float, first: int = 1) -> None:
        self.cluster.start(job_id)
        for iteration, value in enumerate(values, first):
            self.cluster.time += 1.0
            self.cluster.say(job_id, iteration=iteration, accuracy=value)


class Ranks(Policy):
    """A policy that ranks by job id, or does what a test says."""

    name = "ranks"
    settings = None

    def __init__(self, decide: Any = None) -> None:
        self._decide = decide

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        if self._decide is not None:
            result: Plan = self._decide(snapshot)
            return result
        return Plan(np.array([key.job_id for key in snapshot.jobs.keys], dtype=float))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


def site_factors(site: Site) -> dict[int, int]:
    return {job_id: job.get("label", 0) for job_id, job in site.cluster.jobs.items()}


def statuses(ledger: Ledger) -> list[str]:
    return [row["status"] for row in ledger.query("SELECT status FROM commands ORDER BY id")]


def test_an_empty_queue_is_a_cycle(ledger: Ledger) -> None:
    site = Site(ledger)
    record = site.cycle()
    assert (record.commands, record.error, len(record.snapshot.jobs)) == ((), "", 0)
    assert ledger.query("SELECT id, jobs FROM cycles") == [{"id": 1, "jobs": 0}]


def test_each_cycle_is_in_the_log_of_who_wants_it_verbose(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(ledger, Ranks())
    site.cluster.submit()
    site.cycle()
    assert "cycle 1" not in caplog.text
    with caplog.at_level("DEBUG"):
        site.cycle()
    assert re.search(r"cycle 2: 1 jobs, 0 commands, [0-9.]+ s", caplog.text)


@pytest.mark.parametrize(
    ("kind", "step", "seconds"),
    [
        ("preempt", "ask", 5.0),
        ("resize", "settle", 5.0),
        ("migrate", "bound", 60.0),
        ("resize", "watch", 60.0),
        ("release", "let", 5.0),
        ("stop", "ask", 60.0),
    ],
)
def test_the_next_cycle_comes_sooner_while_a_job_is_moved_whoever_cycles(kind: Any, step: Any, seconds: float) -> None:
    opened = Operation("o", kind, JobKey("test", 1, 1), Reason("test"), 0.0, step, 0.0, 1e9, 0)
    sooner = {"interval": 60.0, "operations": {"interval": 5.0}}
    with closing(Ledger(None)) as ledger:
        site = Site(ledger, Ranks(), **sooner)
        assert site.scheduler.seconds_to_next() == 60.0
        site.scheduler.ledger = cast(Ledger, SimpleNamespace(open_operations=lambda: [opened]))
        assert site.scheduler.seconds_to_next() == seconds


def test_the_next_cycle_comes_at_its_time_where_the_ledger_cannot_be_read(ledger: Ledger) -> None:
    def unreadable() -> list[Operation]:
        raise LedgerError("disk I/O error")

    scheduler = Site(ledger, Ranks(), interval=60.0).scheduler
    scheduler.ledger = cast(Ledger, SimpleNamespace(open_operations=unreadable))
    assert scheduler.seconds_to_next() == 60.0


def test_scores_become_site_factors_in_their_order_and_are_written_once(ledger: Ledger) -> None:
    site = Site(ledger, Ranks())
    for _ in range(4):
        site.cluster.submit()
    site.cycle()
    written = site_factors(site)
    assert sorted(written, key=written.__getitem__) == [1, 2, 3, 4]
    assert set(statuses(ledger)) == {"done"}
    assert site.cycle().commands == ()
    site.restart()
    assert site.cycle().commands == ()


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_a_daemon_that_does_not_act_commands_nothing_even_with_labels_in_place(ledger: Ledger, mode: str) -> None:
    site = Site(ledger, Ranks())
    for _ in range(3):
        site.cluster.submit()
    site.cycle()
    before, done = site_factors(site), len(site.cluster.done)
    site.config = Config.from_table({"mode": {"default": mode}})
    site.restart()
    site.trains(1, *np.linspace(0.5, 0.95, 9))
    record = site.cycle()
    assert record.commands == ()
    assert (site_factors(site), len(site.cluster.done)) == (before, done)


def test_a_job_that_meets_its_target_is_asked_stops_and_is_told_as_stopped(ledger: Ledger) -> None:
    site = Site(ledger)
    job_id = site.cluster.submit()
    site.trains(job_id, *np.linspace(0.5, 0.95, 9))
    assert [command.verb for command in site.cycle().commands] == ["ask"]
    assert site.cluster.asked(job_id)
    site.cluster.end(job_id)
    site.cycle()
    assert ledger.query("SELECT stop FROM stops") == [{"stop": "target"}]
    assert ledger.query("SELECT state FROM jobs") == [{"state": "COMPLETED"}]
    assert ledger.query("SELECT * FROM history") == []
    assert site.cluster.requests == set()


def test_a_job_that_was_asked_and_failed_is_not_told_as_stopped(ledger: Ledger) -> None:
    site = Site(ledger)
    job_id = site.cluster.submit()
    site.trains(job_id, *np.linspace(0.5, 0.95, 9))
    site.cycle()
    site.cluster.end(job_id, "FAILED", 1)
    site.cycle()
    assert ledger.open_operations() == []
    assert ledger.query("SELECT stop FROM stops") == []


def test_a_cluster_that_cannot_be_read_is_left_alone_and_nothing_is_forgotten(ledger: Ledger) -> None:
    site = Site(ledger, Ranks(), priority={"compare": 1e6})
    for _ in range(2):
        site.cluster.submit()
    site.cycle()
    done = len(site.cluster.done)
    site.cluster.reachable = False
    assert site.scheduler.run() is None
    assert len(site.cluster.done) == done
    assert ledger.query("SELECT error FROM cycles WHERE id = 2") == [{"error": "squeue did not answer"}]
    site.cluster.reachable = True
    record = site.cycle()
    assert (record.snapshot.cycle, len(record.snapshot.jobs), record.changes.records) == (3, 2, ())


def leaves(_: Snapshot) -> Plan:
    raise SystemExit("a policy that would end the daemon")


def fails(_: Snapshot) -> Plan:
    raise ZeroDivisionError("somebody else's policy")


@pytest.mark.parametrize(
    ("decide", "error"),
    [
        (leaves, "policy ranks failed: SystemExit: a policy that would end the daemon"),
        (fails, "policy ranks failed: ZeroDivisionError: somebody else's policy"),
        (lambda seen: Plan(np.zeros(99)), "policy ranks failed: ValueError: score is one number per job"),
        (lambda seen: Plan(np.zeros(2), notes={JobKey("", 9, 9): Reason("x")}), "not in the snapshot"),
        (lambda seen: Plan(np.zeros(2), memory={"x": np.array([object()])}), "memory is arrays"),
        (lambda seen: None, "policy ranks failed: AttributeError"),
    ],
)  # fmt: skip
def test_a_policy_that_fails_leaves_the_queue_to_slurm_for_this_cycle(ledger: Ledger, decide: Any, error: str) -> None:
    site = Site(ledger, Ranks())
    for _ in range(2):
        site.cluster.submit()
    site.cycle()
    before = site_factors(site)
    site.scheduler.use(site.scheduler.config, Ranks(decide), None)
    record = site.cycle()
    assert error in record.error
    assert (record.commands, site_factors(site)) == ((), before)
    assert error in ledger.query("SELECT error FROM cycles WHERE id = 2")[0]["error"]


def test_what_a_policy_remembers_comes_back_after_a_restart_and_after_its_failure(ledger: Ledger) -> None:
    seen: list[list[float]] = []

    class Counts(Ranks):
        def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
            seen.append(list(memory.get("count", np.zeros(1))))
            if len(seen) == 3:
                raise ValueError
            return Plan(np.zeros(0), memory={"count": np.array([seen[-1][0] + 1])})

    site = Site(ledger, Counts())
    for _ in range(5):
        site.cycle()
        site.restart()
    assert seen == [[0.0], [1.0], [2.0], [2.0], [3.0]]


# --- what the ledger cannot take --------------------------------------------------------------------------------------


def broken(site: Site, broken: bool) -> None:
    site.ledger.db.execute(f"PRAGMA max_page_count = {1 if broken else 1_000_000}")


def test_where_the_ledger_cannot_be_written_nothing_is_applied_and_nothing_is_lost(ledger: Ledger) -> None:
    site = Site(ledger, Ranks(), priority={"compare": 1e6})
    for _ in range(300):
        site.cluster.submit()
    site.trains(1, 0.1, 0.2)
    broken(site, True)
    for _ in range(3):
        with pytest.raises(LedgerError, match="full"):
            site.cycle()
        site.trains(1, 0.3, 0.4, first=3)
        site.cluster.submit()
    assert site.cluster.done == []
    assert ledger.query("SELECT * FROM cycles") == []
    broken(site, False)
    record = site.cycle()
    assert len(record.changes.records) == 303
    assert ledger.query("SELECT count(*) AS n FROM jobs") == [{"n": 303}]
    assert [row["iteration"] for row in ledger.query("SELECT iteration FROM progress")] == [1.0, 2.0, 3.0, 4.0]
    assert len(site.cluster.done) == len(record.commands) > 0
    assert site.cycle().changes.records == ()


def test_circular_garbage_is_looked_for_between_cycles_however_they_end(ledger: Ledger) -> None:
    def decide(snapshot: Snapshot) -> Plan:
        looked.append(gc.isenabled())
        return Plan(np.zeros(len(snapshot.jobs)))

    looked: list[bool] = []
    site = Site(ledger, Ranks(decide))
    for _ in range(300):
        site.cluster.submit()
    broken(site, True)
    with pytest.raises(LedgerError):
        site.cycle()
    assert (looked, gc.isenabled()) == ([False], True)


def test_reports_are_not_lost_to_a_ledger_that_cannot_be_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(ledger, Ranks())
    site.cluster.submit()
    site.cycle()
    site.trains(1, 0.1, 0.2)

    def locked(*_: object) -> Any:
        raise LedgerError("locked")

    for name in ("next_cycle", "site_factors_set_elsewhere", "recall", "past", "open_operations", "begin"):
        with monkeypatch.context() as patch:
            patch.setattr(ledger, name, locked)
            with pytest.raises(LedgerError):
                site.cycle()
    assert site.cycle().snapshot.jobs.iteration.tolist() == [2.0]
    assert ledger.query("SELECT count(*) AS n FROM progress") == [{"n": 2}]


def test_what_was_applied_and_could_not_be_written_down_is_unknown_and_judged_by_what_is_seen(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(ledger)
    job_id = site.cluster.submit()
    site.trains(job_id, *np.linspace(0.5, 0.95, 9))

    def locked(*_: object) -> None:
        raise LedgerError("locked")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "finish", locked)
        with pytest.raises(LedgerError):
            site.cycle()
    assert site.cluster.verbs() == ["ask"]
    assert statuses(ledger) == ["unknown"]
    site.cycle()
    assert site.cluster.verbs() == ["ask", "ask"]
    assert [operation.last_status for operation in ledger.open_operations()] == ["done"]


@pytest.mark.parametrize("stage", ["read", "decide", "_write_operations"])
def test_a_cycle_that_is_ended_before_its_commands_leaves_nothing(
    ledger: Ledger, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the daemon does when it is to stop, wherever a cycle is while `applying` is false."""
    site = Site(ledger, Ranks())
    site.cluster.submit()
    site.cluster.submit(priority=1.0)
    applying = []

    def ends(*_: object) -> None:
        applying.append(site.scheduler.applying)
        raise Crash

    part = {"read": site.cluster, "decide": site.policy, "_write_operations": ledger}[stage]
    with monkeypatch.context() as patch:
        patch.setattr(part, stage, ends)
        with pytest.raises(Crash):
            site.cycle()
    assert applying == [False]
    assert ledger.query("SELECT * FROM cycles") == ledger.query("SELECT * FROM jobs") == []
    apply = site.cluster.apply

    def applies(commands: Sequence[Command]) -> Sequence[Outcome]:
        applying.append(site.scheduler.applying)
        return apply(commands)

    monkeypatch.setattr(site.cluster, "apply", applies)
    site.restart()
    assert site.cycle().commands
    assert applying == [False, True]
    assert not site.scheduler.applying


@pytest.mark.parametrize("after", [0, 1, 3])
def test_after_a_crash_among_its_commands_a_daemon_brings_the_order_about(ledger: Ledger, after: int) -> None:
    site = Site(ledger, Ranks())
    for _ in range(5):
        site.cluster.submit()
    site.cluster.crash_after = after
    with pytest.raises(Crash):
        site.cycle()
    assert len(site.cluster.done) == after
    assert set(statuses(ledger)) == {"unknown"}
    site.restart()
    site.cycle()
    written = site_factors(site)
    assert sorted(written, key=written.__getitem__) == [1, 2, 3, 4, 5]
    assert len(set(written.values())) == 5
    assert site.cycle().commands == ()


def test_jobs_whose_answers_got_lost_are_left_until_slurm_shows_their_site_factors(ledger: Ledger) -> None:
    site = Site(ledger, Ranks())
    for _ in range(3):
        site.cluster.submit(eligible=NOW + 200.0)
    site.cluster.lose = True
    written = {command.job.job_id for command in site.cycle().commands}
    site.cluster.lose = False
    site.cluster.submit()
    assert not written & {command.job.job_id for command in site.cycle().commands}
    site.cycle(200.0)
    jobs = site.cluster.jobs
    assert sorted(jobs, key=lambda job: jobs[job]["priority"] + jobs[job].get("label", 0)) == [1, 2, 3, 4]
    assert site.cycle().commands == ()


def test_the_breaker_opens_rests_and_closes(ledger: Ledger) -> None:
    site = Site(ledger, Ranks(), guardrails={"breaker_failures": 2, "breaker_rest": 600.0})
    for _ in range(2):
        site.cluster.submit()
    site.cluster.refuse = frozenset({"update"})
    tried = [len(site.cycle().commands) > 0 for _ in range(4)]
    assert tried == [True, True, False, False]
    assert site.cycle(500.0).commands  # it rested; one try, and it opens again
    assert site.cycle().commands == ()
    site.cluster.refuse = frozenset()
    assert site.cycle(600.0).commands
    site.cluster.submit()
    assert site.cycle().commands


def test_cycles_whose_updates_slurm_puts_off_do_not_open_the_breaker(ledger: Ledger) -> None:
    site = Site(ledger, Ranks(), guardrails={"breaker_failures": 2, "breaker_rest": 600.0})
    site.cluster.put_off = True
    for _ in range(2):
        site.cluster.submit()
    assert all(site.cycle(70.0).commands for _ in range(6))


def test_writes_beyond_the_budget_wait_and_are_counted(ledger: Ledger) -> None:
    site = Site(ledger, Ranks(), guardrails={"writes_per_cycle": 2})
    for _ in range(6):
        site.cluster.submit()
    first = site.cycle()
    assert (len(first.commands), first.postponed) == (2, 4)
    while site.cycle().commands:
        pass
    jobs = site.cluster.jobs
    assert sorted(jobs, key=lambda job: jobs[job]["priority"] + jobs[job].get("label", 0)) == [1, 2, 3, 4, 5, 6]


def test_a_job_that_an_operator_gives_back_is_not_written_to_again(ledger: Ledger) -> None:
    site = Site(ledger, Ranks())
    for _ in range(3):
        site.cluster.submit()
    site.cycle()
    ledger.give_back([1, 3])
    site.cluster.submit()
    written = [command.job.job_id for command in site.cycle().commands]
    assert set(written) <= {2, 4}


def test_a_recorded_cycle_is_decided_again_to_the_same_plan(ledger: Ledger) -> None:
    site = Site(ledger)
    for script in (b"", b"#PLUG --deadline=2h --urgency=7\n", b"#PLUG --target=loss<=0.1 --stop=target\n"):
        site.cluster.submit(b"#!/bin/sh\n" + script)
    job_id = site.cluster.submit()
    site.trains(job_id, *np.linspace(0.5, 0.95, 9))
    records = [site.cycle() for _ in range(3)]
    assert records[0].commands
    for record in records:
        rows = ledger.query("SELECT inputs FROM cycles WHERE id = ?", record.snapshot.cycle)
        if rows[0]["inputs"] is None:
            assert record.commands == ()
            continue
        snapshot, forecasts, memory, *_ = loads(rows[0]["inputs"])
        again = MLFS().decide(rebuild(Snapshot, snapshot), rebuild(Forecasts, forecasts), memory)
        np.testing.assert_array_equal(again.score, record.plan.score)
        assert again.terms.keys() == record.plan.terms.keys()
        for name, term in again.terms.items():
            np.testing.assert_array_equal(term, record.plan.terms[name])
        assert again.actions == record.plan.actions
        assert {name: list(array) for name, array in again.memory.items()} == {
            name: list(array) for name, array in record.plan.memory.items()
        }


def test_jobs_come_and_go_through_many_cycles(ledger: Ledger) -> None:
    site = Site(ledger)
    for number in range(12):
        job_id = site.cluster.submit(dependency=f"afterok:{number}(unfulfilled)" if number % 3 == 2 else "")
        if number % 2:
            site.trains(job_id, *np.linspace(0.1, 0.8, number))
        if number % 4 == 3:
            site.cluster.end(job_id)
        if number % 4 == 1:
            site.cluster.requeue(job_id)
        if number == 8:
            site.cluster.purge(4)
        site.cycle()
    assert ledger.query("SELECT count(*) AS n FROM jobs") == [{"n": 12}]
    assert {row["id"] for row in ledger.query("SELECT id FROM cycles")} == set(range(1, 13))
    assert ledger.query("SELECT error FROM cycles WHERE error != ''") == []


def test_who_was_passed_is_counted_over_cycles_and_a_restart_and_goes_first(ledger: Ledger) -> None:
    """A job that came later took all GPUs an hour ago; the limit of 600 s is what is known of the run times."""
    site = Site(ledger, Ranks())
    passed = site.cluster.submit(gpus=4, time_limit=600.0)
    site.cluster.time += 1.0
    later = site.cluster.submit(gpus=4, time_limit=600.0)
    waiting = site.cluster.submit(gpus=4, time_limit=600.0)
    site.cluster.start(later)
    for _ in range(30):
        site.cycle()
    site.restart()
    for _ in range(30):
        record = site.cycle()
    keys = {key.job_id: row for row, key in enumerate(record.snapshot.jobs.keys)}
    score = record.plan.score
    assert score[keys[passed]] > score[keys[waiting]]
    told = record.plan.notes[record.snapshot.jobs.keys[keys[passed]]]
    assert told.rule == "passed too often"
    assert isinstance(told.facts["times"], float)
    assert told.facts["times"] > 3
