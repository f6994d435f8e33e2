"""A daemon that restarts from the ledger knows what one knows that did not."""

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from policies.snapshot import Curves, Jobs
from slurmplug.intake.intake import Intake
from slurmplug.intake.job_record import Changes
from slurmplug.ledger.ledger import Ledger
from tests.fake_cluster import FakeCluster, report

QUANTITIES = st.dictionaries(st.sampled_from(["loss", "accuracy", "perplexity"]), st.floats(0, 10), max_size=2)
LINES = st.lists(
    st.builds(
        lambda iteration, told: {"iteration": iteration, **told}, st.integers(0, 400) | st.floats(0, 400), QUANTITIES
    )
    | st.builds(
        lambda iteration, told, trial: {"iteration": iteration, "loss": 1.0, **told, **trial},
        st.integers(0, 2),
        QUANTITIES,
        st.just({}) | st.sampled_from([{"trial": "a"}, {"trial": 7}, {"trial": ""}]),
    )
    | st.builds(lambda at: {"checkpoint": at}, st.integers(0, 400))
    | st.sampled_from([b"\xff\n", b"{}\n", b'{"iteration": 1e300}\n']),
    max_size=5,
)


def every_step(start: int, count: int) -> list[dict[str, float]]:
    return [{"iteration": i, "loss": float(i % 7)} for i in range(start, start + count)]


def columns(jobs: Jobs) -> dict[str, Any]:
    """Each column in a form that compares, NaN equal to NaN."""
    expected: dict[str, Any] = {}
    for name, column in vars(jobs).items():
        parts = vars(column) if isinstance(column, Curves) else {"": column}
        for part, values in parts.items():
            expected[f"{name} {part}"] = np.asarray(values).astype(str).tolist()
    return expected


def points(changes: Changes) -> list[Any]:
    """Each point in a form that compares."""
    listed = [{} if p.quantities is None else p.quantities for p in changes.points]
    return [
        (*point.primary_key, str(point.time), sorted(item for item in each.items() if not np.isnan(item[1])))
        for point, each in zip(changes.points, listed, strict=True)
    ]


JOBS = st.integers(0, 3)
EVENTS = st.one_of(
    st.tuples(st.just("submit"), st.just(0), st.fixed_dictionaries({}, optional={"array_id": st.just(1)})),
    st.tuples(st.just("submit"), st.just(0), st.just({"batch": False})),
    st.tuples(st.sampled_from(["start", "end", "purge", "requeue", "suspend"]), JOBS, st.none()),
    st.tuples(st.just("report"), JOBS, LINES),
    st.tuples(st.just("report"), JOBS, st.builds(every_step, st.integers(0, 3_000), st.integers(61, 2_500))),
)


class Restarts(RuleBasedStateMachine):
    """Two intakes see the same; one is made anew from the ledger before each look."""

    @initialize()
    def begin(self) -> None:
        self.cluster = FakeCluster()
        self.ledger = Ledger(None)
        self.stays = Intake()
        self.cycle = 0
        self.unwritten: Changes | None = None
        for _ in range(3):
            self.cluster.start(self.cluster.submit())

    def happens(self, what: str, number: int, more: Any) -> None:
        if what == "submit":
            self.cluster.submit(**more)
            return
        if not self.cluster.jobs:
            return
        job_id = sorted(self.cluster.jobs)[number % len(self.cluster.jobs)]
        ended = self.cluster.jobs[job_id]["state"] == "COMPLETED"
        if what == "report":
            self.reports(job_id, more)
        elif what == "requeue":
            self.cluster.requeue(job_id)
        elif what == "purge" and ended:
            self.cluster.purge(job_id)
        elif what == "start" and not ended:
            self.cluster.start(job_id)
        elif what == "end" and not ended:
            self.cluster.end(job_id)
        elif what == "suspend" and self.cluster.jobs[job_id]["state"] == "RUNNING":
            self.cluster.jobs[job_id]["state"] = "SUSPENDED"

    def reports(self, job_id: int, lines: list[bytes | dict[str, float]]) -> None:
        """Each a moment after the one before."""
        said = []
        for line in lines:
            self.cluster.time += 0.001
            said.append(line if isinstance(line, bytes) else report(time=self.cluster.time, **line))
        self.cluster.reports[job_id] = self.cluster.reports.get(job_id, b"") + b"".join(said)

    @rule(
        events=st.lists(EVENTS, max_size=4), seconds=st.integers(1, 5_000), written=st.sampled_from([True, True, False])
    )
    def looks(self, events: list[tuple[str, int, Any]], seconds: int, written: bool) -> None:
        """One that could not write writes with the next, and cannot restart meanwhile."""
        for event in events:
            self.happens(*event)
        self.cluster.time += seconds
        self.cycle += 1
        restarted = Intake(self.ledger.live_records()) if self.unwritten is None else None
        reading = self.cluster.read(self.stays.known, self.stays.alive)
        if restarted is not None:
            assert (restarted.known, restarted.alive) == (self.stays.known, self.stays.alive)
        snapshot, changes = self.stays.absorb(reading, self.cycle)
        if restarted is not None:
            again, same = restarted.absorb(reading, self.cycle)
            assert columns(again.jobs) == columns(snapshot.jobs)
            assert points(same) == points(changes)
            assert {record.key for record in same.records} == {record.key for record in changes.records}
        changes = changes.after(self.unwritten)
        if written:
            with self.ledger._transaction():
                self.ledger._write_changes(changes)
        self.unwritten = None if written else changes

    @invariant()
    def one_row_a_job(self) -> None:
        rows = self.ledger.query("SELECT job_id, count(*) AS n FROM jobs GROUP BY job_id")
        assert all(row["n"] == 1 for row in rows)

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()


Restarts.TestCase.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)
TestRestarts = Restarts.TestCase
