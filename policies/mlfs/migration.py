"""MLF-H's migration: the jobs that leave an overloaded server (MLFS, Wang, Liu, Shen, CoNEXT 2020, section 3.3.3)."""

from dataclasses import dataclass

import numpy as np

from policies.mlfs.placement import CPUS, GPUS, Servers
from predictors.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class MigrationSettings:
    """migrate: whether jobs leave overloaded nodes. lowest: p_s, the share of the jobs on overloaded GPUs, those of the
    lowest priority, from which one is chosen; in (0, 1], and at least one job."""

    migrate: bool = True
    lowest: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.lowest <= 1:
            raise ValueError(f"lowest is greater than 0 and at most 1, not {self.lowest}")


def select_migrations(servers: Servers, score: Floats, changeable: Bools, lowest: float) -> list[tuple[int, int]]:
    """The jobs to migrate, each with the node that it leaves; what they hold is freed in `servers`.

    From each overloaded node the job closest to the ideal virtual task leaves, until the node is not overloaded. From
    a node whose network is overloaded, only a job leaves that reports so itself. score (n,): the priorities. changeable
    (n,): jobs that may migrate. lowest: p_s.
    """
    leaving: list[tuple[int, int]] = []
    on, stays = servers.snapshot.runs_on, ~changeable
    reported = np.bincount(on[:, 1], (servers.reports_overload() & changeable)[on[:, 0]], len(servers.load)) > 0
    for node in np.flatnonzero((servers.overloaded() | reported) & servers.snapshot.nodes.up).tolist():
        rows = np.unique(on[on[:, 1] == node, 0])
        rows = rows[~stays[rows]]
        while len(rows):
            contended = np.array([*servers.contended(node), False])
            candidates = lowest_priority(rows, score, lowest) if contended[0] else rows
            if not contended.any():
                candidates = rows[[servers.network_overloaded(row, node) for row in rows.tolist()]]
                contended = np.array([False, False, True])
            chosen = closest_to_ideal(servers, node, candidates, contended)
            if chosen is None:
                break
            servers.give(chosen, servers.space.place(chosen))
            leaving.append((chosen, node))
            stays[chosen] = True
            rows = rows[rows != chosen]
    return leaving


def lowest_priority(rows: Ints, score: Floats, share: float) -> Ints:
    """The given share of these rows with the lowest priority, at least one: candidates if GPUs are overloaded."""
    return rows[np.argsort(score[rows], kind="stable")][: max(1, int(share * len(rows)))]


def closest_to_ideal(servers: Servers, node: int, rows: Ints, contended: Bools) -> int | None:
    """The one of these jobs (k,) on a node that is closest to the ideal virtual task; None if none relieves the node.

    The ideal task uses the most of each contended resource (3,: GPUs, CPUs, network), the least of the others, and
    communicates with no job on the node.
    """
    use = np.array([_use(servers, node, row) for row in rows.tolist()]).reshape(-1, 3)
    relieving = (use[:, contended] > 0).any(axis=1)
    rows, use = rows[relieving], use[relieving]
    if not len(rows):
        return None
    ideal = np.where(contended, use.max(axis=0), use.min(axis=0))
    distance = ((use - ideal) ** 2).sum(axis=1)
    if servers.settings.use_bandwidth:
        volume = np.array([servers.communication_on(row, node) for row in rows.tolist()])
        distance += (volume / max(float(volume.max()), 1e-300)) ** 2
    return int(rows[distance.argmin()])


def _use(servers: Servers, node: int, row: int) -> tuple[float, float, float]:
    """The shares of the node's GPUs, CPUs and network that the job uses."""
    place = servers.space.place(row)
    share = place.shares[place.nodes.index(node)]
    capacity, demand = servers.snapshot.nodes.capacity[node], servers.snapshot.jobs.demand[row]
    part = share / demand[GPUS] if demand[GPUS] > 0 else 1.0
    gpus, cpus = (demand[[GPUS, CPUS]] * part / np.maximum(capacity[[GPUS, CPUS]], 1e-300)).tolist()
    return min(gpus, 1.0), min(cpus, 1.0), servers.network_share(row, place)
