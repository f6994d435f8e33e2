"""One scheduling pass of the simulated Slurm in order of priority, as job_scheduler.c does it."""

from collections.abc import Iterator

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.sim.slurm.limited import Limited
from slurmplug.sim.slurm.partitions import JobPartitions
from slurmplug.sim.slurm.placement import Placement
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending, Start, joined
from slurmplug.sim.slurm.settings import LauncherSettings


class SchedulingPass:
    """The queue of one reservation and its m nodes, numbered among themselves: what is free and held as jobs start.

    `limit`: (n,) seconds, of the jobs of `pending`. `left`: the jobs that `in_order` left for backfill.
    """

    def __init__(
        self,
        pending: Pending,
        held: HeldResources,
        room: NodeResources,
        nodes: Ints,
        partitions: JobPartitions,
        *,
        now: float,
        settings: LauncherSettings,
        limited: Limited | None = None,
    ) -> None:
        self.pending, self.now, self.settings = pending, now, settings
        self._nodes, self._limited = nodes, limited
        self.placement = Placement(pending, room, nodes, partitions)
        self._held = HeldResources(held.node, held.amount, np.maximum(held.until, now))
        self._started: list[tuple[Ints, Floats, Floats]] = []
        """the nodes, amounts and ends of jobs that are not in `_held` yet"""
        if len(nodes) < len(room.free):
            place = np.full(len(room.free), -1)
            place[nodes] = np.arange(len(nodes))
            here = place[held.node] >= 0 if len(held.node) else np.zeros(0, dtype=bool)
            self._held = HeldResources(place[held.node[here]], held.amount[here], self._held.until[here])
        self.free: Floats = room.free[nodes].astype(np.float64)
        limit = pending.time_limit
        self.limit: Floats = np.where(limit > 0, limit, settings.default_limit)  # NaN is not above 0
        self.left: list[int] = []

    @property
    def held(self) -> HeldResources:
        """What runs, and what has started in this pass."""
        if self._started:
            self._held = joined(self._held, *(np.concatenate(each) for each in zip(*self._started, strict=True)))
            self._started.clear()
        return self._held

    def in_order(self, rows: Ints) -> Iterator[Start]:
        """The starts of these jobs in this order, until one of their partition does not fit."""
        where, sets_of_nodes = self.placement.where, self.placement.sets
        sets = set(where[rows].tolist())
        failed: set[int] = set()
        for at, row in enumerate(rows.tolist()):
            if failed == sets:
                self.left += rows[at:].tolist()
                break
            if int(where[row]) in failed:
                self.left.append(row)
                continue
            free = self.free
            if failed:
                free = np.where(np.any(sets_of_nodes[sorted(failed)], axis=0)[:, None], 0.0, free)
            if start := self.start(row, free):
                yield start
            elif self.holds_back(row) or self.placement.place(row, self.placement.total) is None:
                continue  # for a limit, or as it requests more than there is: later jobs need not wait for it
            else:
                failed.add(int(where[row]))
                self.left.append(row)

    def start(self, row: int, free: Floats, among: Ints | None = None) -> Start | None:
        """Start the job in what is free (m, resources), on these nodes or all of its partition; None if it cannot."""
        placed = None if self.holds_back(row) else self.placement.place(row, free, among)
        if placed is None:
            return None
        nodes, shares = placed
        if self._limited is not None:
            self._limited.start(row)
        after = self.placement.less(self.free, row, nodes, shares)
        until = np.full(len(nodes), self.now + self.limit[row])
        self._started.append((nodes, self.free[nodes] - after[nodes], until))
        self.free = after
        return Start(row, tuple(self._nodes[nodes].tolist()), tuple(shares.tolist()))

    def number(self, start: Start) -> Ints:
        """The nodes of a start, numbered as here."""
        return np.searchsorted(self._nodes, start.nodes)

    def holds_back(self, row: int) -> bool:
        """Whether a limit of its QOS or associations does."""
        return self._limited is not None and self._limited.holds_back(row)

    def free_at(self, time: float) -> Floats:
        """(m, resources) by the time limits of what runs."""
        free = self.free.copy()
        held = self.held
        ended = held.until <= time
        np.add.at(free, held.node[ended], held.amount[ended])
        return free
