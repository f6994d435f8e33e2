"""Tables of docs/results.md that repeat figures of single papers: OASiS (INFOCOM 2018), ML-SJF, SLAQ (SoCC 2017)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

import numpy as np
from scipy import stats

from policies.oasis import oasis as oasis_policy
from policies.oasis.admission import PriceBounds, price_bounds
from policies.oasis.bids import OASiSSettings
from policies.oasis.oasis import OASiS
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.sim.experiment import simulation, summary
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load as workload

SEEDS = (0, 1, 2)


class Runs(Protocol):
    """Runs functions side by side."""

    def each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The results of a module's function for each of these arguments."""
        ...


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])


def _mean(values: Iterable[float], form: str = ",.0f") -> str:
    """The mean of one value for each seed, and its 95% interval by Student's t."""
    known = np.array(list(values))
    half = stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return f"{known.mean():{form}} ± {half:{form}}"


def _change(values: Iterable[float], reference: Iterable[float]) -> str:
    """How much less or more, seed by seed, in per cent."""
    ratios = 100 * (np.array(list(values)) / np.array(list(reference)) - 1)
    return _mean(ratios, "+.0f").replace("± +", "± ") + "%"


# --- OASiS ------------------------------------------------------------------------------------------------------------

SLOT = 600.0
PUBLISHED: Mapping[str, Any] = {"ceiling": "paper", "revisions": 0, "backfill": False}
"""the settings of OASiS that leave out what is added to the paper's Algorithm 1"""
AS_PUBLISHED = OASiSSettings(ceiling="paper", revisions=0, backfill=False)
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
    "with revisions": ("oasis", PUBLISHED | {"revisions": 120}),
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
    return _served(policy_registry.policy(_config(policy, settings)), seed, load)


def _config(policy: str, settings: Mapping[str, Any]) -> Config:
    return Config.model_validate({"policy": policy, "interval": SLOT, "policies": {policy: dict(settings)}})


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
        cells = [_mean(utility), _change(utility, reference), f"{np.mean([one.completed for one in each]):.0f}"]
        for late in ([one.sensitive for one in each], [one.critical for one in each]):
            together = np.concatenate(late)
            cells.append(f"{together.mean():+.1f} ({together.std(ddof=1):.1f})")
        rows.append([name, *cells])
    head = ["policy", "utility", "against the published", "jobs that end", "sensitive: end - target, slots", "critical"]
    return _markdown(head, rows)


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
        [f"{100 * each:g}%", *(_change(by_factor[1 + at + group * len(FACTORS)], actual) for group in range(3))]
        for at, each in enumerate(FACTORS)
    ]
    rows.append(["those of the jobs so far, as in use", "", "", _change(by_factor[-1], actual)])
    return _markdown(["of the actual value", "utility, with U so", "with L so", "with both so"], rows)
