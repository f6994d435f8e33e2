"""Whatever happens between two cycles, stops are gentle, keep off what is not theirs, and come to an end."""

from contextlib import closing
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from policies.plan import Action, Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.cluster.states import LIVE_STATES
from slurmplug.config.schema import Config
from slurmplug.errors import LedgerError
from slurmplug.ledger.ledger import Ledger
from slurmplug.operations import MAX_TRIES
from tests.fake_cluster import Crash, FakeCluster
from tests.schedulers import begun

GRACE = 100.0
CONFIG = Config.from_table({
    "mode": {"default": "act"}, "stop": {"grace": GRACE, "cancel": True},
    "guardrails": {"exclude_users": ["eve"], "breaker_failures": 3, "breaker_rest": 600.0},
})  # fmt: skip
PLAIN = b"#PLUG --urgency=5\ntrain\n"
SIGNALLED = b"#PLUG --checkpoint=USR1:batch@200\ntrain\n"
JOBS: list[tuple[bytes, dict[str, Any]]] = [
    (PLAIN, {}),
    (SIGNALLED, {}),
    (PLAIN, {"user": "eve"}),
    (b"train\n", {}),
    (b"#PLUG --urgency=5 --manage=off\n", {}),
    (PLAIN, {"batch": False, "comment": "plug: urgency=5"}),
]
OURS = {1, 2}


class StopsWhatItIsTold(Policy):
    """A policy that wants to stop these jobs, whatever they are."""

    name = "told"
    settings = None

    def __init__(self) -> None:
        self.wanted: set[int] = set()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        actions = tuple(
            Action("stop", key, Reason("target"))
            for key in snapshot.jobs.keys
            if key.job_id in self.wanted
            for _ in "ab"
        )
        return Plan(np.arange(len(snapshot.jobs), dtype=float), actions=actions)


EVENTS = st.one_of(
    st.tuples(st.sampled_from(["start", "end", "requeue", "suspend", "resume", "hold"]), st.integers(1, len(JOBS))),
    st.tuples(st.just("purge"), st.integers(1, len(JOBS))),
    st.tuples(st.sampled_from(["pause", "resume all", "restart"]), st.just(0)),
)
TROUBLE = st.sampled_from([*[""] * 6, "lose", "refuse", "crash at once", "crash later", "disk full", "unreachable"])


class Stops(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.cluster = FakeCluster()
        self.ledger = Ledger(None)
        self.policy = StopsWhatItIsTold()
        self.free_since: dict[tuple[int, int], float] = {}
        for script, given in JOBS:
            self.cluster.start(self.cluster.submit(script, **given))
        self.restart()

    def restart(self) -> None:
        self.scheduler = begun(self.cluster, self.policy, self.ledger, CONFIG)

    def happens(self, what: str, job_id: int) -> None:
        if what == "restart":
            self.restart()
        elif what in ("pause", "resume all"):
            self.ledger.set_control("paused", "x" if what == "pause" else None)
        elif job_id in self.cluster.jobs:
            self.happens_to(what, self.cluster.jobs[job_id])

    def happens_to(self, what: str, job: dict[str, Any]) -> None:
        job_id, state = job["job_id"], job["state"]
        if what == "start" and state == "PENDING":
            self.cluster.start(job_id)
            job["priority"] = 1000.0
        elif what == "hold" and state == "PENDING":
            job |= {"reason": "JobHeldUser", "priority": 0.0}
        elif what == "end" and state in LIVE_STATES:
            self.cluster.end(job_id)
        elif what == "purge" and state not in LIVE_STATES:
            self.cluster.purge(job_id)
        elif what == "requeue" and state in LIVE_STATES - {"PENDING"}:
            self.cluster.requeue(job_id)
        elif what == "suspend" and state == "RUNNING":
            job["state"] = "SUSPENDED"
        elif what == "resume" and state == "SUSPENDED":
            job["state"] = "RUNNING"

    @rule(
        events=st.lists(EVENTS, max_size=3),
        wanted=st.sets(st.integers(1, len(JOBS))),
        seconds=st.sampled_from([1.0, 60.0, 99.0, 101.0, 199.0, 700.0]),
        trouble=TROUBLE,
    )
    def cycle(self, events: list[tuple[str, int]], wanted: set[int], seconds: float, trouble: str) -> None:
        for event in events:
            self.happens(*event)
        self.cluster.time += seconds
        self.policy.wanted = wanted
        self.cluster.lose = trouble == "lose"
        self.cluster.reachable = trouble != "unreachable"
        self.cluster.refuse = frozenset({"ask", "signal", "cancel", "update"} if trouble == "refuse" else ())
        self.cluster.crash_after = {"crash at once": 0, "crash later": 1}.get(trouble)
        self.ledger.db.execute(f"PRAGMA query_only = {int(trouble == 'disk full')}")
        done = len(self.cluster.done)
        try:
            self.scheduler.run()
        except LedgerError:
            assert trouble == "disk full"
            assert len(self.cluster.done) == done
        except Crash:
            self.restart()
        finally:
            self.ledger.db.execute("PRAGMA query_only = 0")
            self.cluster.crash_after = None
        if self.ledger.control("paused") is not None:
            assert {each.verb for each in self.cluster.done[done:]} <= {"withdraw"}

    @invariant()
    def nobody_elses_job_is_touched(self) -> None:
        assert {done.job_id for done in self.cluster.done} <= OURS

    @invariant()
    def only_what_was_asked_and_had_its_grace_is_signalled_or_cancelled(self) -> None:
        asked: dict[tuple[int, int], float] = {}
        for done in self.cluster.done:
            run = done.job_id, done.restarts
            if done.verb == "ask":
                asked.setdefault(run, done.at)
            elif done.verb == "withdraw":
                asked.pop((done.job_id, int(done.fields["restart"])), None)
            elif done.verb in ("signal", "cancel"):
                assert done.at - asked[run] >= (GRACE if done.job_id == 1 else 200.0)
                if done.verb == "cancel" and done.job_id == 2:
                    assert done.at - asked[run] >= 400.0

    @invariant()
    def a_job_has_one_open_operation_at_most(self) -> None:
        jobs = [operation.job for operation in self.ledger.open_operations()]
        assert len(set(jobs)) == len(jobs)
        assert self.ledger.db.execute("PRAGMA foreign_key_check").fetchall() == []

    def teardown(self) -> None:
        """In peace, every operation comes to its end, whatever the job does, and nothing is asked any longer."""
        if not hasattr(self, "cluster"):
            return
        with closing(self.ledger):
            self.comes_to_peace()

    def comes_to_peace(self) -> None:
        self.ledger.set_control("paused", None)
        for job in self.cluster.jobs.values():
            if job["state"] == "SUSPENDED":
                job["state"] = "RUNNING"
        for _ in range(2 * MAX_TRIES + 4):
            self.cycle([], set(), 700.0, "")
        assert self.ledger.open_operations() == []
        runs = {(job_id, job["restarts"]) for job_id, job in self.cluster.jobs.items() if job["state"] == "RUNNING"}
        assert {(job_id, restarts) for job_id, restarts, _ in self.cluster.requests} & runs == set()


Stops.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestStops = Stops.TestCase
