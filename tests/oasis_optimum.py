"""The best that any scheduler could do with OASiS' jobs, knowing all of them: its equation (1) solved exactly.

    PYTHONPATH=. python tests/oasis_optimum.py 6 8 12

tells, for so many jobs, the optimum over what OASiS reaches with its default settings, over ten seeds.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from policies.oasis.admission import (
    AdmittedSchedule,
    Allocations,
    Market,
    PriceBounds,
    admit,
    improve_plan,
    price_bounds,
    price_terms,
)
from policies.oasis.bids import Bid, Ceiling, OASiSSettings, utility
from predictors.arrays import Floats, Ints


def optimum(
    *,
    arrivals: Sequence[int],
    work: Sequence[int],
    workers: Sequence[int],
    demand: np.ndarray,
    value: Sequence[np.ndarray],
    capacity: np.ndarray,
) -> float:
    """The greatest total utility, for jobs without parameter servers (constraints 2 to 4).

    arrivals, work, workers: of each of n jobs the slot, worker-slots, most workers at a time. demand (n, R): of a
    worker. value: of each job (T,), the utility of completion in each slot. capacity (H, R): of each server.
    """
    n, slots, hosts, resources = len(work), len(value[0]), *capacity.shape
    ends = [(job, end) for job in range(n) for end in range(arrivals[job], slots) if value[job][end] > 0]
    runs = [(job, t, host) for job in range(n) for t in range(arrivals[job], slots) for host in range(hosts)]
    at_end = {pair: column for column, pair in enumerate(ends)}
    at_run = {triple: len(ends) + column for column, triple in enumerate(runs)}
    gain = np.zeros(len(ends) + len(runs))
    for (job, end), column in at_end.items():
        gain[column] = value[job][end]
    rows: list[tuple[dict[int, float], float]] = []  # sums that are at most a number
    for job in range(n):
        mine = {column: 1.0 for (j, _), column in at_end.items() if j == job}
        rows.append((mine, 1.0))
        done = {column: -1.0 for (j, _, _), column in at_run.items() if j == job}
        rows.append((done | {column: float(work[job]) for column in mine}, 0.0))
        for t in range(arrivals[job], slots):
            later = {column: -float(workers[job]) for (j, end), column in at_end.items() if j == job and end >= t}
            rows.append(({at_run[job, t, host]: 1.0 for host in range(hosts)} | later, 0.0))
    for t in range(slots):
        here = [job for job in range(n) if t >= arrivals[job]]
        rows += [
            ({at_run[job, t, host]: float(demand[job, r]) for job in here}, float(capacity[host, r]))
            for host in range(hosts)
            for r in range(resources)
        ]
    matrix = lil_array((len(rows), len(gain)))
    for row, (entries, _) in enumerate(rows):
        for column, factor in entries.items():
            matrix[row, column] = factor
    upper = np.array([1.0] * len(ends) + [float(workers[job]) for job, _, _ in runs])
    found = milp(
        -gain,
        integrality=np.ones(len(gain), dtype=int),
        bounds=Bounds(0.0, upper),
        constraints=LinearConstraint(matrix.tocsr(), -np.inf, np.array([most for _, most in rows])),
        options={"time_limit": 60.0, "mip_rel_gap": 1e-3},
    )
    if found.x is None:
        raise RuntimeError(found.message)
    return float(-found.fun)


def arriving(seed: int, n: int, slots: int = 8, hosts: int = 2) -> dict[str, Any]:
    """Jobs after section V-A, on servers of 8 GPUs, 32 CPUs and 128 GiB, in a cluster that cannot serve them all."""
    random = np.random.default_rng(seed)
    workers = random.integers(1, 9, n)
    kind = random.choice(3, n, p=[0.1, 0.55, 0.35])
    decay = np.select([kind == 0, kind == 1], [np.zeros(n), random.uniform(0.01, 1, n)], random.uniform(4, 6, n))
    th = np.stack([random.uniform(1, 100, n), decay, random.uniform(1, slots, n)], axis=1)
    arrivals = np.sort(random.integers(0, slots // 2, n))
    after = np.arange(slots) - arrivals[:, None]
    return {
        "arrivals": arrivals,
        "work": np.maximum(1, np.ceil(workers * random.uniform(1, 4, n))).astype(int),
        "workers": workers,
        "demand": np.stack([random.integers(1, 5, n), random.integers(1, 11, n), random.integers(2, 33, n)], axis=1),
        "value": [np.where(after[job] >= 0, utility(th[job], after[job]), 0.0) for job in range(n)],
        "capacity": np.tile([8.0, 32.0, 128.0], (hosts, 1)),
    }


def bids_at(case: dict[str, Any], t: int, left: np.ndarray) -> dict[int, Bid]:
    """The bids in slot t of the jobs that have arrived and are still worth something, with their work (n,) left."""
    unit = case["capacity"].max(axis=0)
    return {
        job: Bid(
            work=float(left[job]),
            progress=np.arange(case["workers"][job] + 1.0),
            value=case["value"][job][t:],
            demand=case["demand"][job] / unit,
            hosts=np.ones(len(case["capacity"]), dtype=bool),
            upper_value=max(float(case["value"][job].max()), 1e-3),
            lower_value=max(float(case["value"][job][-1]), 1e-3),
        )
        for job in range(len(case["work"]))
        if case["arrivals"][job] <= t and left[job] > 0 and case["value"][job][t:].any()
    }


def known_bounds(case: dict[str, Any], ceiling: Ceiling) -> PriceBounds:
    """U and L of all jobs, as theorem 4 takes them: those that are still to come included."""
    bids = bids_at(
        case | {"arrivals": np.zeros(len(case["work"]), dtype=int)}, 0, np.asarray(case["work"], dtype=float)
    )
    terms = [price_terms(bid, ceiling, bid.demand) for bid in bids.values()]
    return price_bounds(terms, len(case["value"][0]), float((case["capacity"] / case["capacity"].max(axis=0)).sum()))


def served(case: dict[str, Any], revisions: int, ceiling: Ceiling = "work", known: PriceBounds | None = None) -> float:
    """The utility that is reached slot by slot, nothing being known of a job before it arrives but the `known` U and
    L, which else are those of the jobs so far."""
    unit = case["capacity"].max(axis=0)
    slots = len(case["value"][0])
    left = np.asarray(case["work"], dtype=float)
    plans: dict[int, AdmittedSchedule] = {}
    past: list[Floats] = []
    total = 0.0
    for t in range(slots):
        bids = bids_at(case, t, left)
        past += [price_terms(each, ceiling, each.demand) for job, each in bids.items() if case["arrivals"][job] == t]
        if not bids:
            continue
        capacity = np.repeat((case["capacity"] / unit)[None], slots - t, axis=0)
        shop = Market(partial(Allocations, capacity), known or price_bounds(past, slots, capacity[0].sum()))
        kept = {job: plan for job, plan in plans.items() if job in bids}
        plan = admit(shop, bids, kept, [job for job in bids if job not in kept])
        if revisions:
            plan = improve_plan(shop, bids, plan, revisions, seed=t)
        for job, schedule in plan.admitted.items():
            left[job] -= schedule.count(0)
            if left[job] <= 0:
                total += case["value"][job][t]
        plans = {
            job: replace(
                schedule, workers=_later(schedule.workers), parameter_servers=_later(schedule.parameter_servers)
            )
            for job, schedule in plan.admitted.items()
        }
    return total


def _later(entries: Ints) -> Ints:
    """As seen from the next slot."""
    later: Ints = entries[entries[:, 0] > 0] - np.array([1, 0, 0])
    return later


def main() -> None:
    """Print a table of the ratios."""
    print("| jobs | optimum / OASiS, mean | most | least |\n|---|---|---|---|")
    for n in map(int, sys.argv[1:] or ["6", "8", "12"]):
        cases = [arriving(seed, n) for seed in range(10)]
        ratios = np.array([optimum(**case) / served(case, OASiSSettings().revisions) for case in cases])
        print(f"| {n} | {ratios.mean():.3f} | {ratios.max():.3f} | {ratios.min():.3f} |", flush=True)


if __name__ == "__main__":
    main()
