"""The runs that the tables are made of: each is described by a `Case`, and run once, whichever tables need it."""

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np

from docs.results.lanes import Lanes
from docs.results.store import Kept, Store, described
from policies.mlfs.load_control import LoadControlSettings
from policies.mlfs.with_early_stopping import WithEarlyStopping
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config, Guardrails
from slurmplug.forecasting.forecast_cache import CachePolicies
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment import fluid, lower_bound, summary
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load as workload

DATA = os.environ.get("DATA", "")
POLLUX = ("workload-1", "workload-3", "workload-5", "workload-7")
HOLDS_STOPPING = "mlfs"
"""the policy that stops jobs by itself; the others have MLF-C's stops beside them where a case says so"""

Figures = Mapping[str, Any]
Setting = tuple[str, Any]
Settings = tuple[Setting, ...]

RIGID: Settings = (("grow", False),)
"""of MLFS as in the paper: each job on the GPUs that it requests"""
BYPASS = Guardrails().max_bypass
SLAQ: Settings = (("speed", "forecast"), ("restart", 30.0))
"""of SLAQ where jobs do not all grow alike, and where each resize costs a restart of 30 s"""


@dataclass(frozen=True)
class Case:
    """One run. `settings` are the policy's; stopping, epsilon: MLF-C's, for every policy alike. max_bypass: the
    guardrail's, which counts where Slurm launches the jobs."""

    workload: str
    policy: str
    cluster: str = "16x4"
    seed: int = 0
    load: float = 1.0
    interval: float = 60.0
    stopping: bool = False
    epsilon: float = LoadControlSettings.epsilon
    launcher: Literal["direct", "slurm"] = "direct"
    max_bypass: float = BYPASS
    settings: Settings = ()
    jobs: int | None = None


@cache
def jobs_of(name: str, seed: int, load: float, jobs: int | None) -> Workload:
    """The workload of a case."""
    data = Path(DATA) if DATA else None
    return workload.load(name, seed=seed, load=load, jobs=jobs, data=data)


@lru_cache(maxsize=1)
def _caches(jobs: Workload) -> CachePolicies:  # noqa: ARG001 one for each workload
    """The forecasts that runs of one workload share."""
    return once_grown()


def run(case: Case) -> Figures:
    """The figures of one run, and under `jct` those of its jobs in seconds, ascending."""
    stops, own = case.stopping or case.policy == HOLDS_STOPPING, case.policy == HOLDS_STOPPING
    given = dict(case.settings) | ({"epsilon": case.epsilon} if own else {})
    config = {"policy": case.policy, "interval": case.interval, "policies": {case.policy: given}}
    policy = policy_registry.policy(Config.from_table(config))
    chosen = WithEarlyStopping(policy, LoadControlSettings(epsilon=case.epsilon)) if stops and not own else policy
    guardrails = Guardrails(max_bypass=case.max_bypass)
    settings = SimulationSettings(
        case.cluster, case.interval, case.seed, stops, launcher=case.launcher, guardrails=guardrails
    )
    jobs = jobs_of(case.workload, case.seed, case.load, case.jobs)
    result = Simulation(jobs, chosen, settings, _caches(jobs)).run()
    return {**summary.summary(result), "jct": sorted(job.ended - job.submitted for job in result.finished)}


class Runs:
    """Runs cases side by side, each once, whichever tables need them."""

    def __init__(self, lanes: Lanes, store: Store) -> None:
        self._lanes, self._store, self._lock = lanes, store, Lock()
        self._futures: dict[str, Future[Kept]] = {}

    def of(self, cases: Iterable[Case]) -> list[Figures]:
        """The figures of each case."""
        return self.each(run, [(case,) for case in cases])

    def each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The results of a function for each of these arguments."""
        wanted = [(described(function, given), given) for given in arguments]
        with self._lock:
            for call, given in wanted:
                if call not in self._futures:
                    group = _group(function, given)
                    self._futures[call] = self._lanes.submit(group, self._store.result, function, given)
        return [self._futures[call].result().value for call, _ in wanted]

    def minutes(self) -> float:
        """Of the processor, for all these results, also those that were kept."""
        return sum(future.result().seconds for future in self._futures.values()) / 60

    def column(self, cases: Iterable[Case], name: str) -> np.ndarray:
        """One figure of each case."""
        return np.array([float(figures[name]) for figures in self.of(cases)])


def _group(function: Callable[..., Any], given: tuple[Any, ...]) -> Hashable:
    """What calls have in common that are better made one after the other: their workload."""
    first = given[0] if given else None
    return (first.workload, first.seed, first.load, first.jobs) if isinstance(first, Case) else function.__qualname__


def ideal(case: Case) -> tuple[float, float]:
    """Mean JCT in seconds of the clairvoyant fluid, and the lower bound on it."""
    jobs, nodes = jobs_of(case.workload, case.seed, case.load, case.jobs).jobs, parse(case.cluster)
    jct = fluid.completions(jobs, nodes) - np.array([job.submit for job in jobs])
    return float(jct.mean()), lower_bound.mean_jct_bound(jobs, nodes)


def over(cases: Sequence[Case], **changed: Any) -> list[Case]:
    """The same cases with something changed."""
    return [replace(case, **changed) for case in cases]


def pollux(load: str = "", policy: str = "tiresias") -> list[Case]:
    """Pollux's workloads; `load`: "", or "-2.0" for the folder of twice the jobs."""
    return [Case(f"pollux:{DATA}/workloads/pollux/workloads{load}/{name}.csv", policy) for name in POLLUX]
