"""Whatever is simulated: nothing is given out twice, nothing is lost, everything ends; and the ledgers agree."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.baselines.fair import Fair
from policies.baselines.optimus import Optimus
from policies.baselines.sjf import SRTF
from policies.baselines.tiresias import Tiresias, TiresiasSettings
from policies.plan import Action, Reason
from policies.snapshot import JobKey, Snapshot
from slurmplug.cluster.port import Outcome
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.intake.intake import Intake
from slurmplug.ledger.ledger import Ledger
from slurmplug.sim.adapters.ledger import MemoryLedger
from slurmplug.sim.engine.job import Part, SimJob, Speed
from slurmplug.sim.experiment.simulation import Simulation
from tests.fake_cluster import FakeCluster
from tests.sim_jobs import First, ScriptedPolicy, simulation

POLICIES: tuple[Any, ...] = (
    First(), SRTF(), Fair(), Optimus(), Tiresias(TiresiasSettings(queues=(300.0, 2000.0))),
)  # fmt: skip


@st.composite
def sim_jobs(draw: st.DrawFn) -> SimJob:
    gpus = draw(st.integers(1, 8))
    base = draw(st.floats(0.05, 2.0))
    elastic = draw(st.booleans())
    parts = tuple(Part(1, draw(st.integers(0, 2)), 0.0, parents=(at - 1,) if at else ()) for at in range(gpus))
    in_parts = draw(st.integers(0, 3)) == 0 and gpus > 1
    return SimJob(
        name="j",
        submit=draw(st.floats(0, 600)),
        gpus=gpus,
        iterations=draw(st.integers(1, 60)),
        speed=Speed(np.array([1, 8, 8]), np.array([1, 1, 2]), base * np.array([1.0, 4.0, 3.0])),
        user=draw(st.sampled_from(["ada", "bob"])),
        kind=draw(st.sampled_from(["", "resnet", "bert"])),
        gpus_min=1 if elastic and not in_parts else 0,
        gpus_max=8 if elastic and not in_parts else 0,
        cpus=sum(part.cpus for part in parts) if in_parts else draw(st.integers(0, 2 * gpus)),
        memory=draw(st.floats(0, 500)) if not in_parts else 0.0,
        traffic=draw(st.floats(0, 1e9)),
        checkpoint_every=draw(st.sampled_from([0.0, 50.0])),
        restart=draw(st.floats(0, 40)),
        runtime_noise=draw(st.sampled_from([0.0, 0.3])),
        time_limit=draw(st.sampled_from([float("nan"), 4000.0])),
        parts=parts if in_parts else (),
    )


def sound(made: Simulation) -> None:
    """What is held is what is used, and no more than there is."""
    engine = made.engine
    held = np.zeros_like(engine.nodes.used)
    for row, where in engine.allocations.holds.items():
        assert engine.gpus[row] == sum(share for _, share in where)
        for node, share in where:
            held[node] += engine.allocations.demand(row, share)
    assert np.allclose(held, engine.nodes.used, atol=1e-6)
    assert (held <= engine.nodes.capacity + 1e-6).all()
    assert set(engine.allocations.holds) == set(np.flatnonzero(engine.state == 2).tolist())


@given(
    st.lists(sim_jobs(), min_size=1, max_size=8),
    st.sampled_from(range(len(POLICIES))),
    st.sampled_from(["direct", "slurm"]),
)
@settings(max_examples=25)
def test_gpus_are_never_given_twice_every_job_ends_and_work_is_conserved(
    jobs: list[SimJob], which: int, launcher: str
) -> None:
    made = simulation(*jobs, policy=POLICIES[which], cluster="3x4", interval=60.0, launcher=launcher)
    result = made.run(lambda ended, count: sound(made))
    assert len(result.finished) == len(jobs)
    for finished in result.finished:
        assert finished.state in ("COMPLETED", "TIMEOUT")
        assert finished.submitted <= finished.started <= finished.ended
        assert (np.diff(finished.times) >= 0).all()
        done = finished.job.iterations if finished.state == "COMPLETED" else finished.iterations[-1]
        assert finished.iterations[-1] == done
        steps = np.diff(finished.iterations)
        assert steps[steps > 0].sum() + steps[steps < 0].sum() == np.float64(done) or np.isclose(steps.sum(), done)
        fastest = finished.job.speed.rate.max()
        assert finished.ended - finished.started >= done / fastest - 1e-6
        assert finished.gpu_seconds > 0
    sound(made)


class Both(Ledger):
    """A ledger on disk that passes every call on to one in memory."""

    def __init__(self) -> None:
        super().__init__(None)
        self.memory = MemoryLedger()

    def begin(self, record: CycleRecord) -> None:
        super().begin(record)
        self.memory.begin(record)

    def record_failed_read(self, policy: str, error: str, now: float) -> None:
        super().record_failed_read(policy, error, now)
        self.memory.record_failed_read(policy, error, now)

    def finish(
        self,
        cycle: int,
        outcomes: Sequence[Outcome],
        site_factors: Mapping[JobKey, float],
        now: float,
        seconds: Mapping[str, float],
    ) -> None:
        super().finish(cycle, outcomes, site_factors, now, seconds)
        self.memory.finish(cycle, outcomes, site_factors, now, seconds)


def restless(snapshot: Snapshot) -> tuple[Action, ...]:
    """Stop or preempt whatever runs, by its id."""
    jobs = snapshot.jobs
    kinds: tuple[Any, ...] = ("stop", "preempt")
    return tuple(
        Action(kinds[jobs.keys[row].job_id % 2], jobs.keys[row], Reason("test"))
        for row in np.flatnonzero(jobs.state == "running").tolist()
    )


SCRIPT = b"#!/bin/sh\n#PLUG --checkpoint=USR1 --max-iterations=90\ntrain\n"
NEVER_SEEN = JobKey("test", 999, 1)
EVENTS = ("submit", "start", "end", "checkpoint", "refuse", "accept", "unreachable", "nothing")


@given(
    st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from([5.0, 60.0, 1200.0, 4000.0])), min_size=5, max_size=30)
)
@settings(max_examples=15)
def test_the_ledger_in_memory_gives_the_guardrails_what_the_one_on_disk_gives(events: list[tuple[str, float]]) -> None:
    cluster = FakeCluster()
    for _ in range(2):
        cluster.start(cluster.submit(SCRIPT))
    limits = {"minimum_run": 0.0, "requeue_cooldown": 0.0, "first_seen": 60.0}
    config = Config.from_table({"mode": {"default": "act"}, "guardrails": limits})
    with closing(Both()) as disk:
        scheduler = Scheduler(cluster, Intake(), Forecaster(), ScriptedPolicy(restless), disk, config)
        for event, seconds in events:
            cluster.time += seconds
            happen(cluster, event)
            scheduler.run()
            jobs = [*(record.key for record in disk.live_records() if record.facts.live), NEVER_SEEN]
            assert disk.past(cluster.time, 60.0, jobs) == disk.memory.past(cluster.time, 60.0, jobs)
            assert disk.next_cycle() == disk.memory.next_cycle()
            stored, kept = disk.open_operations(), disk.memory.open_operations()
            assert sorted(stored, key=lambda each: each.id) == sorted(kept, key=lambda each: each.id)


def happen(cluster: FakeCluster, event: str) -> None:
    cluster.reachable = event != "unreachable"
    waiting = [job_id for job_id, fields in cluster.jobs.items() if fields["state"] == "PENDING"]
    running = [job_id for job_id, fields in cluster.jobs.items() if fields["state"] == "RUNNING"]
    if event == "submit":
        cluster.submit(SCRIPT)
    elif event == "start" and waiting:
        cluster.start(waiting[0])
    elif event == "end" and running:
        cluster.end(running[0])
    elif event == "checkpoint":
        for job_id in running:
            cluster.say(job_id, iteration=3, loss=1.0, checkpoint=3)
    elif event in ("refuse", "accept"):
        cluster.refuse = frozenset({"ask", "requeue", "update"}) if event == "refuse" else frozenset()
