"""Whatever happens between two cycles, moves leave nothing behind, keep off what is not theirs, and come to an end."""

from contextlib import closing
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slurmplug.cluster.states import LIVE_STATES
from slurmplug.errors import LedgerError
from slurmplug.operations.values import RESERVATION_PREFIX
from tests.fake_cluster import Crash
from tests.moving import ADMITTED, ELASTIC, SIGNALLED, MovingSite

HELD = {"priority": 0.0, "reason": "JobHeldUser"}
JOBS: list[tuple[bytes, dict[str, Any]]] = [
    (ELASTIC, {"gpus": 2}),
    (SIGNALLED, {"gpus": 1}),
    (b"#PLUG --gpus=1..8\n", {"gpus": 2}),  # it cannot be requeued
    (b"train\n", {"gpus": 1}),  # not ours
    (ADMITTED, {"gpus": 1, **HELD}),
    (ELASTIC, {"gpus": 1, **HELD}),  # its user's hold
]
MAY_BE_REQUEUED, WAITS, USER_HELD, NOT_OURS = {1, 2}, 5, 6, 4
EVENTS = st.tuples(
    st.sampled_from(
        ["start", "end", "requeue", "saves", "saves", "saves", "trains", "hold", "let go", "restart", "pause", "go on"]
    ),
    st.integers(1, len(JOBS)),
)
WANTED = st.dictionaries(
    st.integers(1, len(JOBS)),
    st.sampled_from(
        [{"kind": "resize", "gpus": n} for n in (1, 2, 4)]
        + [{"kind": kind} for kind in ("migrate", "preempt", "stop", "release", "hold")]
    ),
    max_size=3,
)
TROUBLE = st.sampled_from([*[""] * 6, "lose", "refuse", "crash at once", "crash later", "disk full", "unreachable"])
VERBS = frozenset("ask signal cancel update requeue reserve unreserve hold release".split())


class Moves(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.site = MovingSite(guardrails={"requeues_per_job": 3})
        self.held_by_user: set[int] = {USER_HELD}
        self.saves: list[tuple[int, float]] = []
        for script, given in JOBS:
            job = self.site.cluster.submit(script, **given)
            if not given.get("reason"):
                self.site.cluster.start(job, f"n{job % 3 + 1}")
                self.site.trains(job, 5)

    def happens(self, what: str, job_id: int) -> None:
        cluster = self.site.cluster
        job = cluster.jobs[job_id]
        waits, held = job["state"] == "PENDING", job["priority"] == 0
        if what == "restart":
            self.site.restart()
        elif what in ("pause", "go on"):
            self.site.ledger.set_control("paused", "x" if what == "pause" else None)
        elif what == "start" and waits and not held:
            cluster.start(job_id, "n3")
        elif what == "end" and job["state"] in LIVE_STATES and not held:
            cluster.end(job_id)
        elif what == "requeue" and job["state"] == "RUNNING":
            cluster.requeue(job_id)
        elif what == "saves" and job["state"] == "RUNNING":
            self.site.saves(job_id)
            self.saves.append((job_id, cluster.time))
        elif what == "trains" and job["state"] == "RUNNING":
            self.site.trains(job_id, 6)
        elif what == "hold" and waits and not held:
            job |= HELD
            self.held_by_user.add(job_id)
        elif what == "let go" and job_id in self.held_by_user:
            job |= {"priority": 1000.0, "reason": "Priority"}
            self.held_by_user.discard(job_id)

    @rule(
        events=st.lists(EVENTS, max_size=3),
        wanted=WANTED,
        seconds=st.sampled_from([1.0, 10.0, 60.0, 101.0, 400.0]),
        trouble=TROUBLE,
    )
    def cycle(
        self, events: list[tuple[str, int]], wanted: dict[int, dict[str, Any]], seconds: float, trouble: str
    ) -> None:
        cluster, ledger = self.site.cluster, self.site.ledger
        for event in events:
            self.happens(*event)
        self.site.policy.wanted = wanted
        cluster.time += seconds
        cluster.schedule()
        cluster.lose = trouble == "lose"
        cluster.reachable = trouble != "unreachable"
        cluster.refuse = VERBS if trouble == "refuse" else frozenset()
        cluster.crash_after = {"crash at once": 0, "crash later": 1}.get(trouble)
        ledger.db.execute(f"PRAGMA query_only = {int(trouble == 'disk full')}")
        done = len(cluster.done)
        try:
            self.site.scheduler.run()
        except LedgerError:
            assert trouble == "disk full"
            assert len(cluster.done) == done
        except Crash:
            self.site.restart()
        finally:
            ledger.db.execute("PRAGMA query_only = 0")
            cluster.crash_after = None

    @invariant()
    def nobody_elses_job_is_touched(self) -> None:
        assert NOT_OURS not in {done.job_id for done in self.site.cluster.done}

    @invariant()
    def only_jobs_that_saved_in_this_run_are_requeued(self) -> None:
        since: dict[int, float] = {}
        for done in self.site.cluster.done:
            if done.verb == "requeue":
                assert done.job_id in MAY_BE_REQUEUED
                assert any(since.get(job, 0.0) < at <= done.at for job, at in self.saves if job == done.job_id)
                since[done.job_id] = done.at

    @invariant()
    def what_its_user_holds_stays_held(self) -> None:
        for job_id in self.held_by_user:
            job = self.site.cluster.jobs[job_id]
            assert job["priority"] == 0 or job["state"] not in ("PENDING",)

    @invariant()
    def no_job_is_requeued_more_often_than_it_may_be(self) -> None:
        requeued = [done.job_id for done in self.site.cluster.done if done.verb == "requeue"]
        assert all(requeued.count(job) <= 3 + len(self.site.operations()) for job in MAY_BE_REQUEUED)

    @invariant()
    def a_job_has_one_operation_that_acts(self) -> None:
        jobs = [o.job for o in self.site.ledger.open_operations() if o.step not in ("bound", "lift")]
        assert len(set(jobs)) == len(jobs)

    def teardown(self) -> None:
        """In peace every operation comes to its end, and nothing of ours is left in Slurm."""
        if not hasattr(self, "site"):
            return
        with closing(self.site.ledger):
            self.comes_to_peace()

    def comes_to_peace(self) -> None:
        cluster = self.site.cluster
        self.site.ledger.set_control("paused", None)
        for seconds in (*(10.0,) * 8, 400.0, *(10.0,) * 8, 2000.0, *(10.0,) * 12):
            self.cycle([], {}, seconds, "")
        opened = self.site.ledger.open_operations()
        assert {operation.step for operation in opened} <= {"bound"}
        assert not [each for each in cluster.reservations if each.name.startswith(RESERVATION_PREFIX)]
        for job_id, job in cluster.jobs.items():
            assert not job["reservation"]
            if job["state"] == "PENDING":
                assert not job.get("excluded"), job_id
        runs = {(job_id, job["restarts"]) for job_id, job in cluster.jobs.items() if job["state"] == "RUNNING"}
        assert {(job_id, restarts) for job_id, restarts, _ in cluster.requests} & runs == set()
        self.what_its_user_holds_stays_held()


Moves.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
TestMoves = Moves.TestCase
