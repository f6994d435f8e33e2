"""Tables of docs/results.md that repeat figures of single papers: OASiS (INFOCOM 2018), ML-SJF, SLAQ (SoCC 2017)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from docs.results.cases import Runs
from docs.results.cells import change, markdown, span
from policies.oasis import oasis as oasis_policy
from policies.oasis.admission import PriceBounds, price_bounds
from policies.oasis.bids import OASiSSettings
from policies.oasis.oasis import OASiS
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts
from predictors.runtime import Job, RuntimePredictor
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.forecasting.run_times import HistoryRunTimes, known_at_submit
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment import simulation, summary
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load as workload

SEEDS = (0, 1, 2)


# --- OASiS ------------------------------------------------------------------------------------------------------------

SLOT = 600.0
PUBLISHED: dict[str, Any] = {"ceiling": "paper", "revisions": 0, "backfill": False}
"""the settings of OASiS that leave out what is added to the paper's Algorithm 1"""
AS_PUBLISHED = OASiSSettings(**PUBLISHED)
FACTORS = (0.25, 0.5, 2.0, 4.0)
"""of the price bounds' actual values"""
IDLE = 20
"""cycles without an event after which a run ends: jobs that are left were rejected for good"""
SCARCE = 2.0
"""the load at which the bounds are estimated wrongly"""
OASIS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "OASiS as published": ("oasis", PUBLISHED),
    "with ceiling = work": ("oasis", PUBLISHED | {"ceiling": "work"}),
    "with backfill": ("oasis", PUBLISHED | {"backfill": True}),
    "OASiS as here": ("oasis", {}),
    "FIFO": ("fifo", {}),
    "DRF": ("drf", {}),
    "RRH": ("rrh", {}),
    "Dorm": ("dorm", {}),
}


class Served(NamedTuple):
    """The sum of utilities, and of the time-sensitive and the time-critical jobs completion less target, in slots."""

    utility: float
    completed: int
    sensitive: Floats
    critical: Floats


def oasis_run(policy: str, settings: Mapping[str, Any], seed: int, load: float) -> Served:
    """OASiS' workload under a policy."""
    return _served(_policy(policy, settings), seed, load)


def _policy(name: str, settings: Mapping[str, Any]) -> Policy:
    return policy_registry.policy(Config.from_table({"policy": name, "policies": {name: dict(settings)}}))


def _served(policy: Policy, seed: int, load: float) -> Served:
    jobs = workload.load("gen:oasis", seed=seed, load=load)
    with patch.object(simulation, "MAX_IDLE_CYCLES", IDLE):
        result = Simulation(jobs, policy, SimulationSettings("50x4", SLOT, seed)).run()
    late: dict[bool, list[float]] = {False: [], True: []}
    for job in result.finished:
        assert job.job.utility is not None
        _, steepness, target = job.job.utility
        if steepness > 0 and job.state == "COMPLETED":
            late[steepness * SLOT >= 4].append((job.ended - job.submitted - target) / SLOT)
    figures = summary.summary(result)
    return Served(figures["utility"], figures["ended"], np.array(late[False]), np.array(late[True]))


def oasis_published(runs: Runs) -> str:
    """OASiS as published and as here beside its rivals, at load 1: total utility and completion less target (its
    figures 3 and 4)."""
    found = iter(runs.each(oasis_run, [(policy, how, seed, 1.0) for policy, how in OASIS.values() for seed in SEEDS]))
    served = {name: [next(found) for _ in SEEDS] for name in OASIS}
    reference = [each.utility for each in served["OASiS as published"]]
    rows = []
    for name, each in served.items():
        utility = [one.utility for one in each]
        cells = [span(utility), change(utility, reference), f"{np.mean([one.completed for one in each]):.0f}"]
        for late in ([one.sensitive for one in each], [one.critical for one in each]):
            together = np.concatenate(late)
            cells.append(f"{together.mean():+.1f} ({together.std(ddof=1):.1f})")
        rows.append([name, *cells])
    head = ["policy", "utility", "against the published", "jobs that end", "sensitive: end - target, slots", "critical"]
    return markdown(head, rows)


class _Estimated(OASiS):
    """OASiS as published, told U and L of all jobs times a factor each."""

    def __init__(self, terms: Floats, upper: float, lower: float) -> None:
        super().__init__(AS_PUBLISHED)
        self._terms, self._factors = terms, (np.log(upper), np.log(lower))

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """With these bounds in place of those of the jobs so far."""

        def told(_: Any, slots: int, capacity: float) -> PriceBounds:
            bounds = price_bounds(self._terms, slots, capacity)
            return PriceBounds(bounds.upper + self._factors[0], bounds.lower + self._factors[1])

        with patch.object(oasis_policy, "price_bounds", told):
            return super().decide(snapshot, forecasts, memory)


class _Noting(OASiS):
    """OASiS, which notes the price terms of the jobs that it has seen."""

    terms: Floats

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """As OASiS."""
        plan = super().decide(snapshot, forecasts, memory)
        self.terms = plan.memory["past"]
        return plan


def estimated_run(seed: int, load: float, factors: Sequence[tuple[float, float]]) -> list[float]:
    """The sum of utilities with U and L of all jobs times these factors, and at the end with those of the jobs so
    far."""
    noting = _Noting(AS_PUBLISHED)
    so_far = _served(noting, seed, load).utility
    known = [_served(_Estimated(noting.terms, *each), seed, load).utility for each in factors]
    return [*known, so_far]


def oasis_bounds(runs: Runs) -> str:
    """OASiS as published with wrong estimates of U and L, at load 2 (its figure 6)."""
    factors = [(1.0, 1.0), *((each, 1.0) for each in FACTORS), *((1.0, each) for each in FACTORS)]
    factors += [(each, each) for each in FACTORS]
    by_factor = np.array(runs.each(estimated_run, [(seed, SCARCE, factors) for seed in SEEDS])).T
    actual = by_factor[0]
    rows = [
        [f"{100 * each:g}%", *(change(by_factor[1 + at + group * len(FACTORS)], actual) for group in range(3))]
        for at, each in enumerate(FACTORS)
    ]
    rows.append(["those of the jobs so far, as in use", "", "", change(by_factor[-1], actual)])
    return markdown(["of the actual value", "utility, with U so", "with L so", "with both so"], rows)


# --- ML-SJF -----------------------------------------------------------------------------------------------------------

TYPES = ("mapreduce", "sklearn", "flask")
LEARNT_FROM = 1500
"""earlier jobs, a third of each type: the paper's 3,000 with the latest 500 of each type, from which a model learns"""
EARLIER = 1000
"""added to a seed gives the one of its earlier jobs"""
ML_SJF: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "DRF": ("drf", {}),
    "SJF": ("ml-sjf", {"estimate": "random"}),
    "ML-SJF": ("ml-sjf", {}),
    "hard-coded": ("ml-sjf", {"estimate": "type"}),
    "ML-SJF, mixed": ("ml-sjf", {"mix": 6.0}),
}
"""the policies of its tables 1 and 2, and ours"""
UNTOLD = frozenset({"DRF", "SJF"})
"""those that use no forecast"""


class _Forecasting(Policy):
    """A policy with run times that a predictor learnt, as the daemon forecasts them, in place of the workload's."""

    decides_on = "events"

    def __init__(self, policy: Policy, predictor: RuntimePredictor) -> None:
        self._policy, self._run_times = policy, HistoryRunTimes(predictor)
        self._paces = KindPaces(SeenSpeeds())
        self.name = policy.name

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """As the policy, by these run times."""
        learnt = self._run_times.forecast(snapshot, frozenset({"total"}), self._paces)
        return self._policy.decide(snapshot, replace(forecasts, total=learnt.total, remaining=learnt.remaining), memory)


def learnt_run_times(seed: int, work: bool) -> RuntimePredictor:
    """ML-SJF's support vector regression of earlier jobs; work: whether it is told the features that users declare."""
    jobs = workload.load("gen:ml-sjf", seed=seed + EARLIER, jobs=LEARNT_FROM).jobs
    known = [_at_submission(job, work) for job in jobs]
    return RuntimePredictor("svr", seed).fit(known, [job.iterations / job.speed.at(1, 1) for job in jobs])


def _at_submission(job: SimJob, work: bool) -> Job:
    return known_at_submit(
        user=job.user,
        account=job.account,
        partition=job.partition,
        qos=job.qos,
        kind=job.kind,
        name=job.name,
        gpus=float(job.gpus),
        gpu_type="",
        cpus=float(job.cpus),
        memory=job.memory,
        time_limit=job.time_limit,
        submit=job.submit,
        work=job.work if work else "",
    )


def ml_sjf_runs(seed: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Jobs a second and the mean wait in seconds, by types of jobs and policy."""
    predictors = {work: learnt_run_times(seed, work) for work in (True, False)}
    found = {}
    for kind in ("mixed", *TYPES):
        jobs = workload.load(f"gen:ml-sjf?type={kind}", seed=seed)
        for name in ML_SJF if kind == "mixed" else ("SJF", "ML-SJF"):
            policy = _policy(*ML_SJF[name])
            forecast = policy if name in UNTOLD else _Forecasting(policy, predictors[True])
            found[kind, name] = _throughput(jobs, forecast, seed)
        policy = _Forecasting(_policy("ml-sjf", {}), predictors[False])
        found[kind, "ML-SJF, features not declared"] = _throughput(jobs, policy, seed)
        found[kind, "SJF, told the truth"] = _throughput(jobs, _policy("ml-sjf", {}), seed)
    return found


def _throughput(jobs: Workload, policy: Policy, seed: int) -> tuple[float, float]:
    figures = summary.summary(Simulation(jobs, policy, SimulationSettings("1x4x4x15000", 1.0, seed)).run())
    return figures["jobs"] / figures["makespan"], figures["wait_mean"]


def ml_sjf(runs: Runs) -> str:
    """Throughput and mean wait by its tables 1 and 2, with run times that support vector regression learnt."""
    by_seed = runs.each(ml_sjf_runs, [(seed,) for seed in SEEDS])
    rows = []
    for kind, name in by_seed[0]:
        throughput, wait = zip(*(found[kind, name] for found in by_seed), strict=True)
        random = [found[kind, "SJF"][1] for found in by_seed]
        rows.append([kind, name, span(throughput, ".3f"), span(wait), change(wait, random)])
    return markdown(["jobs", "policy", "throughput, jobs/s", "mean wait, s", "wait against SJF"], rows)


# --- SLAQ -------------------------------------------------------------------------------------------------------------

GROUPS = ("highest 25%", "next 25%", "lowest 50%")
ENOUGH = 4
"""active jobs at an epoch that counts"""


class _Watching(Policy):
    """A policy whose allocations are noted: the shares of GPUs of the three groups of active jobs, by their loss."""

    def __init__(self, policy: Policy, jobs: Sequence[SimJob]) -> None:
        self._policy, self._jobs = policy, sorted(jobs, key=lambda job: job.submit)
        self.name, self.needs, self.decides_on = policy.name, policy.needs, policy.decides_on
        self.shares: list[Floats] = []

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """As the policy."""
        self._note(snapshot)
        return self._policy.decide(snapshot, forecasts, memory)

    def until(self, snapshot: Snapshot) -> float | None:
        """As the policy."""
        return self._policy.until(snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        """Losses are normalised as in the paper's 6.2: 1 at first, 0 at the least."""
        jobs = snapshot.jobs
        held = np.bincount(snapshot.runs_on[:, 0], weights=snapshot.runs_on[:, 2], minlength=len(jobs))
        if len(jobs) < ENOUGH or not held.sum():
            return
        losses = np.array(
            [self._normalised(key.job_id - 1, at) for key, at in zip(jobs.keys, jobs.iteration, strict=True)]
        )
        by_loss = held[np.argsort(-losses, kind="stable")] / held.sum()
        quarter, half = round(len(jobs) / 4), round(len(jobs) / 2)
        self.shares.append(np.array([part.sum() for part in np.split(by_loss, [quarter, half])]))

    def _normalised(self, job: int, iteration: float) -> float:
        curve = self._jobs[job].losses
        now = curve[int(iteration) - 1] if iteration >= 1 else curve[0]
        return float((now - curve.min()) / (curve[0] - curve.min()))


def allocation_run(policy: str, seed: int) -> list[float]:
    """(3,) the mean shares of the GPUs in use that SLAQ's three groups of jobs hold, over all epochs of 3 s."""
    jobs = workload.load("gen:slaq", seed=seed)
    watching = _Watching(_policy(policy, {}), jobs.jobs)
    Simulation(jobs, watching, SimulationSettings("20x32", 3.0, seed)).run()
    return [float(share) for share in np.mean(watching.shares, axis=0)]


def slaq_allocation(runs: Runs) -> str:
    """Who holds the GPUs, by normalised loss (its figure 8: 60, 18 and 22% under SLAQ)."""
    policies = ("fair", "slaq", "slaq-maxmin")
    found = iter(runs.each(allocation_run, [(policy, seed) for policy in policies for seed in SEEDS]))
    rows = []
    for policy in policies:
        shares = 100 * np.array([next(found) for _ in SEEDS])
        rows.append([policy, *(span(column) + "%" for column in shares.T)])
    rows.append(["SLAQ, as published", "60%", "18%", "22%"])
    return markdown(["policy", *(f"jobs of the {group} loss" for group in GROUPS)], rows)
