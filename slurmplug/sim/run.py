"""One workload under one policy, from the first job to the last."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, inf
from time import perf_counter
from typing import Any, Literal

import numpy as np

from policies.plan import Memory
from policies.policy import Policy
from slurmplug.config import Config
from slurmplug.cycle import Scheduler
from slurmplug.cycle_record import CycleRecord
from slurmplug.errors import UsageError
from slurmplug.operations import MOVES
from slurmplug.sim.cluster import SimCluster
from slurmplug.sim.engine import Engine
from slurmplug.sim.forecasts import SimForecaster
from slurmplug.sim.intake import SimIntake
from slurmplug.sim.job import SimJob, Workload
from slurmplug.sim.ledger import MemoryLedger
from slurmplug.sim.nodes import parse
from slurmplug.sim.outcome import Finished, RunResult
from slurmplug.sim.slurm_cluster import SlurmSimCluster
from slurmplug.sim.slurm_launcher import Settings as LauncherSettings
from slurmplug.sim.table import table

PATIENCE = 1_000
"""Cycles in which nothing can happen any more and the policy does nothing either, after which a run is cut short."""


@dataclass(frozen=True)
class Settings:
    """cluster: as `slurmplug.sim.nodes.parse` reads it. interval: seconds from one cycle to the next."""

    cluster: str
    interval: float = 60.0
    seed: int = 0
    stopping: bool = False
    launcher: Literal["direct", "slurm"] = "direct"
    slurm: LauncherSettings = field(default_factory=LauncherSettings)
    """of the simulated Slurm, where that is the launcher"""
    contention: float = 0.9
    """h_r: the share of a node's CPUs, memory or network above which it slows"""


class Simulation:
    """A workload, a policy, and the same cycle as live between them."""

    def __init__(self, workload: Workload, policy: Policy, settings: Settings) -> None:
        """
        Raises:
            UsageError: the cluster makes no sense, or is smaller than a job
        """
        self.workload, self.policy, self.settings = workload, policy, settings
        nodes = parse(settings.cluster)
        for job in workload.jobs:
            _check(job, sum(nodes.gpus), elastic=settings.launcher == "direct")
        direct = settings.launcher == "direct"
        launch = 0.0 if direct else settings.slurm.launch_seconds
        jobs = table([_launched(job, launch) for job in workload.jobs], all_managed=direct)
        self.engine = Engine(jobs, nodes, settings.contention, limits=not direct)
        self.port = SimCluster(self.engine) if direct else SlurmSimCluster(self.engine, settings.slurm)
        self.ledger = MemoryLedger()
        self.scheduler = Scheduler(
            port=self.port,
            intake=SimIntake(self.engine, self.port.labels, self.port.priority, settings.seed),
            forecaster=SimForecaster(self.engine, settings.seed),
            policy=policy,
            ledger=self.ledger,
            config=Config.model_validate({"mode": {"default": "act"}, "interval": settings.interval}),
        )
        self.decide_seconds: list[float] = []

    def run(self, tell: Callable[[int, int], Any] | None = None) -> RunResult:
        """Cycle until every job has ended. `tell` is called now and then with how many have, of how many."""
        began, engine, jobs = perf_counter(), self.engine, len(self.workload.jobs)
        idle = 0
        alive = self._pass(self._tick(engine.next_event())) if jobs else False
        while alive and idle < PATIENCE:
            refused = self.port.refused
            record = self.scheduler.run()
            assert record is not None, "a simulated cluster can always be read"
            self.decide_seconds.append(record.seconds["decide"])
            soonest = engine.next_event()
            idle = idle + 1 if soonest == inf and not record.commands else 0
            until = engine.now + self._pace()
            quiet = min(soonest, self._quiet_until(record, refused))
            if engine.now < quiet < inf:
                until = max(until, self._tick(quiet))
            alive = self._pass(until)
            if tell:
                tell(jobs - engine.left, jobs)
        return self._result(perf_counter() - began)

    def _pace(self) -> float:
        """Seconds to the next cycle: fewer while a job is being moved, as the daemon has it."""
        moving = any(
            each.kind in MOVES and each.step not in ("bound", "watch") for each in self.ledger.open_operations()
        )
        return (
            min(self.scheduler.config.operations.interval, self.settings.interval) if moving else self.settings.interval
        )

    def _pass(self, until: float) -> bool:
        return self.port.wait(until)

    def _tick(self, time: float) -> float:
        """The cycle at that time or next after it."""
        return ceil(time / self.settings.interval) * self.settings.interval

    def _quiet_until(self, record: CycleRecord, refused: int) -> float:
        """Until when the policy would do nothing if nothing happened, so that its cycles until then can be left out.

        Not at all where the guardrails left something to the next cycle. For ever, where nobody is there. Where a
        policy goes by what happens and not by time (`by_events`), if all it wanted was done; or where it places jobs
        and says how long (`until`), if it wanted nothing: until a job tells of another iteration, where it goes by that
        too (`by_reports`). And where nobody waits, the policy wants nothing but what jobs were asked for, and remembers
        what it did before, no node is overloaded, and none of those that run could be given other GPUs: until one of
        these tells of another iteration, if any could be stopped, or one that was asked to stop has had its time.
        """
        jobs, now = record.snapshot.jobs, self.engine.now
        if not len(jobs):
            return inf
        opened = self.ledger.open_operations()
        asked = {each.job for each in opened if (each.kind, each.step, each.last_status) == ("stop", "ask", "done")}
        left = record.verdict.frozen or record.postponed
        if left or len(asked) < len(opened) or self.port.refused > refused:
            return now
        given = min((each.limit for each in opened), default=inf)
        if getattr(self.policy, "by_events", False):
            return given
        if (until := getattr(self.policy, "until", None)) and self.settings.launcher == "direct":
            told = self.engine.next_report() if getattr(self.policy, "by_reports", False) else inf
            return now if record.commands else min(given, told, float(until(record.snapshot)))
        acts = any(action.kind != "stop" or action.job not in asked for action in record.plan.actions)
        if record.commands or acts or not _alike(record.memory, record.plan.memory):
            return now
        if (jobs.state == "pending").any() or (self.engine.nodes.slowdown > 1).any():
            return now
        if not ((jobs.gpus_min == jobs.gpus_max) & (jobs.gpus == jobs.gpus_min)).all():
            return now
        stoppable = (jobs.stop != "iterations") | (jobs.downgrade != "")
        return min(given, self.engine.next_report() if stoppable.any() else inf)

    def _result(self, wall: float) -> RunResult:
        engine, settings = self.engine, self.settings
        return RunResult(
            workload=self.workload.name,
            cluster=settings.cluster,
            policy=self.policy.name,
            launcher=settings.launcher,
            stopping=settings.stopping,
            seed=settings.seed,
            finished=tuple(finished(engine, training) for training in range(len(self.workload.jobs))),
            decide_seconds=np.array(self.decide_seconds),
            wall_seconds=wall,
            overload_seconds=engine.nodes.overloaded(engine.now),
        )


def _alike(some: Memory, others: Memory) -> bool:
    return some.keys() == others.keys() and all(np.array_equal(some[name], others[name]) for name in some)


def finished(engine: Engine, training: int) -> Finished:
    """What came of a training."""
    story, rows = engine.stories[training], engine.table.rows_of(training)
    here = slice(rows.start, rows.stop)
    holds = np.nan_to_num(engine.gpus[here] * (engine.now - engine.started[here]))
    state = story.state
    if state == "PENDING" and any(row in engine.holds for row in rows):
        state = "RUNNING"
    return Finished(
        job=engine.table.jobs[training],
        submitted=float(engine.table.submit[training]),
        started=float(engine.first_started[training]),
        ended=float(engine.ended[training]),
        state=state,
        stopped=story.stopped,
        times=np.array(story.times),
        iterations=np.array(story.iterations),
        wait=story.wait,
        gpu_seconds=float((engine.attained[here] + holds).sum()),
        bandwidth_bytes=float(story.bandwidth),
        preemptions=story.preemptions,
        migrations=story.migrations,
        resizes=story.resizes,
    )


def _launched(job: SimJob, seconds: float) -> SimJob:
    """The job, each start of which takes so much longer."""
    return replace(job, startup=job.startup + seconds, restart=job.restart + seconds) if seconds else job


def _check(job: SimJob, gpus: int, *, elastic: bool) -> None:
    """A job that never fits would wait for ever; an elastic one starts with fewer GPUs where the policy places it."""
    least = job.gpus_min if elastic and job.gpus_min else job.gpus
    wanted = max(least, sum(part.gpus for part in job.parts))
    if wanted > gpus:
        raise UsageError(f"job {job.name} asks for {wanted} GPUs, and the cluster has {gpus}")
