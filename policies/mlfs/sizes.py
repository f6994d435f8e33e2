"""The numbers of GPUs that jobs are to have in one decision, where these are not what they requested."""

from dataclasses import dataclass

import numpy as np

from policies.mlfs.placement import Servers
from policies.placement.allocation import fit_elastic, group_gangs, held_gpus, placement_action
from policies.plan import Action, Reason
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Ints


@dataclass(frozen=True, eq=False)
class Sizes:
    """sized (n,): the jobs whose number is set; no other job is preempted for them, nor they for another. gpus (n,):
    that number, 0 for none. last (n,): pending jobs that start only on what these leave."""

    sized: Bools
    gpus: Ints
    last: Bools

    @classmethod
    def none(cls, n: int) -> "Sizes":
        """All n jobs have what they requested."""
        nobody = np.zeros(n, dtype=bool)
        return cls(nobody, np.zeros(n, dtype=np.int64), nobody)


class Resizing:
    """The placement of sized jobs in one decision: running ones give back what they hold, and are placed anew.

    resized (n,): the running jobs that are to have another number of GPUs than they hold, and have not got it yet.
    """

    def __init__(self, snapshot: Snapshot, servers: Servers, sizes: Sizes) -> None:
        self._snapshot, self._servers, self._gpus = snapshot, servers, sizes.gpus
        self.resized: Bools = sizes.sized & snapshot.jobs.running & (sizes.gpus != held_gpus(snapshot))
        self._waits = self.resized.copy()

    def begin(self) -> None:
        """Free what the resized jobs hold."""
        for row in np.flatnonzero(self.resized).tolist():
            self._servers.give(row, self._servers.space.place(row))

    def place(self, row: int) -> tuple[Action, ...]:
        """Place a job on the GPUs that it is to have, on as few nodes as possible; or on all that there are, if these
        suffice; else a running one stays where it is, if nobody took that."""
        space, least = self._servers.space, int(self._snapshot.jobs.gpus_min[row])
        gpus, had = int(self._gpus[row]), sum(space.place(row).shares)
        place = fit_elastic(space, row, least=least, gpus=gpus, had=had)
        if place is None:
            self._stay(row)
            return ()
        self._servers.take(row, place)
        self._waits[row] = False
        return (placement_action(self._snapshot, row, place, had),)

    def _stay(self, row: int) -> None:
        there = self._servers.space.place(row)
        if self._waits[row] and self._servers.space.fits_there(row, there):
            self._servers.take(row, there)
            self._waits[row] = False

    def end(self) -> list[Action]:
        """Give the jobs that found no place what they held; returns preemptions of those whose GPUs others took."""
        jobs, servers = self._snapshot.jobs, self._servers
        rows, begins = group_gangs(jobs, np.flatnonzero(self._waits))
        preempted: list[int] = []
        for gang in np.split(rows, begins[1:]):
            taken: list[int] = []
            for row in gang.tolist():
                if servers.space.fits_there(row, servers.space.place(row)):
                    servers.take(row, servers.space.place(row))
                    taken.append(row)
            if len(taken) < len(gang):
                preempted += gang.tolist()
                for row in taken:
                    servers.give(row, servers.space.place(row))
        return [Action("preempt", jobs.keys[row], Reason("makes room")) for row in preempted]
