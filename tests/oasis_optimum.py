"""The best that any scheduler could do with OASiS' jobs, knowing all of them: its equation (1) solved exactly."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array


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
        integrality=np.ones(len(gain)),
        bounds=Bounds(0.0, upper),
        constraints=LinearConstraint(matrix.tocsr(), -np.inf, np.array([most for _, most in rows])),
        options={"time_limit": 60.0, "mip_rel_gap": 1e-3},
    )
    if found.x is None:
        raise RuntimeError(found.message)
    return float(-found.fun)
