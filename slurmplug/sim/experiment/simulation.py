"""One workload under one policy, from the first job to the last."""

from collections.abc import Callable, Container, Generator
from dataclasses import dataclass, field, replace
from math import ceil, inf
from time import perf_counter
from typing import Any, Literal

import numpy as np

from policies.plan import Memory
from policies.policy import Policy
from slurmplug.config.schema import Config, Guardrails
from slurmplug.cycle.observed import Decided, Observed
from slurmplug.cycle.record import CycleRecord
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.cycle.timing import gc_paused
from slurmplug.errors import UsageError
from slurmplug.forecasting.forecast_cache import CachePolicies
from slurmplug.sim.adapters.cluster import SimCluster
from slurmplug.sim.adapters.forecaster import SimForecaster
from slurmplug.sim.adapters.intake import SimIntake
from slurmplug.sim.adapters.ledger import MemoryLedger
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.engine.workload_table import workload_table
from slurmplug.sim.experiment.result import FinishedJob, RunResult
from slurmplug.sim.slurm.cluster import SlurmSimCluster
from slurmplug.sim.slurm.settings import LauncherSettings
from slurmplug.sim.slurm.whole_nodes import with_whole_nodes

NO_CONTENTION = 1.0
"""h_r for the past of a site, whose jobs took as long as they ran, however full their nodes were"""
MAX_IDLE_CYCLES = 1_000
"""Cycles in which nothing can happen any more and the policy does nothing either, after which a run is cut short."""

STEP = 3600.0
"""seconds that are simulated at once where no cycles run"""


@dataclass(frozen=True)
class SimulationSettings:
    """How a simulation runs.

    cluster: as `slurmplug.sim.engine.nodes.parse` reads it. interval: seconds from one cycle to the next.
    """

    cluster: str
    interval: float = 60.0
    seed: int = 0
    stopping: bool = False
    run_times: Literal["told", "forecast"] = "told"
    """by the workload, with an error; or learnt from the jobs that ended before, as by a daemon"""
    launcher: Literal["direct", "slurm"] = "direct"
    slurm: LauncherSettings = field(default_factory=LauncherSettings)
    """of the simulated Slurm, where that is the launcher"""
    contention: float = 0.9
    """h_r: the share of a node's CPUs, memory or network above which it slows"""
    guardrails: Guardrails = field(default_factory=Guardrails)
    cycles: bool = True
    """whether cycles run; without any, Slurm does what it does without slurmplug, in less time"""


class Simulation:
    """A workload, a policy, and the same cycle as live between them."""

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        settings: SimulationSettings,
        caches: CachePolicies | None = None,
        fallback: Policy | None = None,
    ) -> None:
        """caches: `once_grown()`, the same one for simulations that may share forecasts. fallback: decides where the
        policy, a learnt one, may not, as in the daemon; without it, the policy decides in states that it does not know.

        Raises:
            UsageError: the cluster cannot be read, or is smaller than a job
        """
        self.workload, self.policy, self.settings = workload, policy, settings
        nodes = parse(settings.cluster)
        for job in workload.jobs:
            check_size(job, sum(nodes.gpus), elastic=settings.launcher == "direct")
        direct = settings.launcher == "direct"
        launch = 0.0 if direct else settings.slurm.launch_seconds
        there = {*nodes.gpu_type, ""} if workload.of_slurm else None
        as_given = workload.jobs if direct else with_whole_nodes(workload.jobs, nodes, settings.slurm)
        jobs = workload_table([_as_here(job, launch, there) for job in as_given], all_managed=direct)
        self.engine = Engine(jobs, nodes, settings.contention, limits=not direct)
        self.port = SimCluster(self.engine) if direct else SlurmSimCluster(self.engine, settings.slurm)
        self.ledger = MemoryLedger()
        port = self.port
        intake = SimIntake(
            self.engine, port.site_factors, port.priority, port.reservations, settings.seed,
            node_sets=port.node_sets, set_of=port.set_of,
        )  # fmt: skip
        self.scheduler = Scheduler(
            port=self.port,
            intake=intake,
            forecaster=SimForecaster(self.engine, settings.seed, caches, told=settings.run_times == "told"),
            policy=policy,
            ledger=self.ledger,
            fallback=fallback,
            clock=_no_time,
            config=Config.from_table(
                {"mode": {"default": "act"}, "interval": settings.interval, "guardrails": settings.guardrails}
            ),
        )
        self.decide_seconds: list[float] = []
        self.errors: list[str] = []
        """of each cycle with managed jobs, why it did not follow the policy; empty where it did"""
        self._in_use: list[tuple[float, float]] = []

    def run(self, on_progress: Callable[[int, int], Any] | None = None) -> RunResult:
        """Cycle until every job has ended.

        on_progress: called after each cycle with the number of jobs that have ended, and of all.
        """
        began, jobs = perf_counter(), len(self.workload.jobs)
        if not self.settings.cycles:
            self._run_without_cycles(on_progress)
            return self.result(perf_counter() - began)
        cycles, decided = self.cycles(), None
        while True:
            with gc_paused():
                try:
                    observed = cycles.send(decided)
                except StopIteration:
                    return self.result(perf_counter() - began)
                decided = self.scheduler.decide(observed)
            if on_progress:
                on_progress(jobs - self.engine.unfinished, jobs)

    def _run_without_cycles(self, on_progress: Callable[[int, int], Any] | None) -> None:
        """Until every job has ended, or nothing happens any more."""
        engine, idle, alive = self.engine, 0, bool(self.workload.jobs)
        while alive and idle < 2:  # what happens at the end of a step is followed by a scheduling pass
            next_event = engine.next_event()
            idle = idle + 1 if next_event == inf else 0
            with gc_paused():
                alive = self.port.wait(max(engine.now, next_event if next_event < inf else 0.0) + STEP)
            if on_progress:
                on_progress(len(self.workload.jobs) - engine.unfinished, len(self.workload.jobs))

    def cycles(self) -> Generator[Observed, Decided | None, None]:
        """Every cycle until all jobs have ended: yields what it observed, and is sent what it carries out, as
        `Scheduler.decide` returns it."""
        engine, idle = self.engine, 0
        alive = self.port.wait(self._cycle_at(engine.next_event())) if self.workload.jobs else False
        while alive and idle < MAX_IDLE_CYCLES:
            refused = self.port.refused
            observed = self.scheduler.observe()
            assert observed is not None, "a simulated cluster can always be read"
            decided = yield observed
            assert decided is not None, "a plan is sent for each cycle"
            record = self.scheduler.carry_out(decided)
            if record.snapshot.jobs.managed.any():
                self.errors.append(record.error)
            self.decide_seconds.append(record.seconds.get("decide", 0.0))
            self._in_use.append((engine.now, float(engine.nodes.used[:, 0].sum())))
            next_event = engine.next_event()
            idle = idle + 1 if next_event == inf and not record.commands else 0
            until = engine.now + self.scheduler.seconds_to_next()
            useful = min(next_event, self.next_useful_cycle(record, refused, decided.observed.policy))
            if engine.now < useful < inf:
                until = max(until, self._cycle_at(useful))
            alive = self.port.wait(until)

    def _cycle_at(self, time: float) -> float:
        """When the first cycle at that time or after it is due."""
        return ceil(time / self.settings.interval) * self.settings.interval

    def next_useful_cycle(self, record: CycleRecord, refused: int, policy: Policy) -> float:
        """The time until which the policy would do nothing if nothing happened: cycles before it can be left out.

        Now, where the guardrails left something to the next cycle; infinite, where no job is there. The policy's own
        `decides_on` and `until` say when it may decide otherwise (`policies.policy`). Where they do not, cycles are
        left out while no job waits, no node is overloaded, no running job could be given other GPUs, and the policy
        requests nothing but stops that it has requested before, and its memory is unchanged: until a job that may be
        stopped reports another iteration, or the time limit of a requested stop is over.

        record: of the cycle that has just run; policy: that decided in it. refused: commands that were refused before.
        """
        jobs, now = record.snapshot.jobs, self.engine.now
        if not len(jobs):
            return inf
        opened = self.ledger.open_operations()
        stopping = {each.job for each in opened if (each.kind, each.step, each.last_status) == ("stop", "ask", "done")}
        unfinished = record.verdict.frozen or record.postponed or len(stopping) < len(opened)
        if unfinished or self.port.refused > refused:
            return now
        limit = min((each.limit for each in opened), default=inf)
        if policy.decides_on == "events":
            return limit
        if self.settings.launcher == "direct" and (until := policy.until(record.snapshot)) is not None:
            report = self.engine.next_report() if policy.decides_on == "reports" else inf
            return now if record.commands else min(limit, report, until)
        acts = any(action.kind != "stop" or action.job not in stopping for action in record.plan.actions)
        if record.commands or acts or not _same_memory(record.memory, record.plan.memory):
            return now
        if jobs.pending.any() or (self.engine.nodes.slowdown > 1).any():
            return now
        if not ((jobs.gpus_min == jobs.gpus_max) & (jobs.gpus == jobs.gpus_min)).all():
            return now
        may_be_stopped = (jobs.stop != "iterations") | (jobs.downgrade != "")
        return min(limit, self.engine.next_report() if may_be_stopped.any() else inf)

    def result(self, wall: float) -> RunResult:
        """The outcome of every job as it is now; `wall`: the seconds that the run took."""
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
            in_use=np.array([*self._in_use, (engine.now, 0.0)]),
        )


def _no_time() -> float:
    """A simulated decision is never late: what is simulated does not depend on the machine."""
    return 0.0


def _same_memory(before: Memory, after: Memory) -> bool:
    return before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)


def finished(engine: Engine, training: int) -> FinishedJob:
    """The outcome of a training, as it is now."""
    log, rows = engine.logs[training], engine.table.rows_of(training)
    here = slice(rows.start, rows.stop)
    holds = np.nan_to_num(engine.gpus[here] * (engine.now - engine.started[here]))
    state = log.state
    if state == "PENDING" and any(row in engine.allocations.holds for row in rows):
        state = "RUNNING"
    return FinishedJob(
        job=engine.table.jobs[training],
        submitted=float(engine.table.submit[training]),
        started=float(engine.first_started[training]),
        ended=float(engine.ended[training]),
        state=state,
        stopped=log.stopped,
        times=np.array(log.times),
        iterations=np.array(log.iterations),
        wait=log.wait,
        gpu_seconds=float((engine.attained[here] + holds).sum()),
        bandwidth_bytes=float(log.bandwidth),
        preemptions=log.preemptions,
        migrations=log.migrations,
        resizes=log.resizes,
        resized_starts=log.resized_starts,
    )


def _as_here(job: SimJob, seconds: float, types: Container[str] | None) -> SimJob:
    """The job with its start-up and restart times longer by so many seconds, and with any type of GPU if its own is not
    one of these."""
    if types is not None and job.gpu_type not in types:
        job = replace(job, gpu_type="")
    return replace(job, startup=job.startup + seconds, restart=job.restart + seconds) if seconds else job


def check_size(job: SimJob, gpus: int, *, elastic: bool) -> None:
    """An elastic job can start with fewer GPUs than it requests where the policy places it.

    Raises:
        UsageError: for a job that never fits
    """
    least = job.gpus_min if elastic and job.gpus_min else job.gpus
    wanted = max(least, sum(part.gpus for part in job.parts))
    if wanted > gpus:
        raise UsageError(f"job {job.name} requests {wanted} GPUs, and the cluster has {gpus}")
