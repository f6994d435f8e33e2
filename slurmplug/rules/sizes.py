"""Sizes where Slurm starts the jobs: a policy's placement of a waiting job becomes a change of its GPUs, if any. Pure.

A policy places a job on nodes with a number of GPUs. Where Slurm chooses the nodes (not `Site.places`), a placement
with the number that the job requests needs nothing: Slurm starts it. One with another number becomes a `resize` of the
job where it stands in the queue, under these conditions:

- There is room for it now, beside the jobs placed before it: a policy may count on GPUs that running jobs are still to
  release. A job that can be restarted may begin on fewer GPUs than it was placed with, down to half; any other waits
  for the number of the policy, or starts with the one that it requests.
- It gets at least `guardrails.size_least` of the GPUs that it asked for, and would end within its time limit, as far as
  that is known; if the policy gave it fewer, it gets the fewest more with which that is so.
- Its size was not changed within `guardrails.size_interval`.
- The change is at least `guardrails.size_change` of its GPUs, unless it could not start as it stands.

A job that has not started within that interval, and that finds no room as it is, gets back what it asked for.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from policies.placement.allocation import elastic, startable
from policies.placement.space import Placement, Space
from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from slurmplug.config.schema import Guardrails
from slurmplug.rules.guardrails import Past, lately
from slurmplug.rules.time_limits import TimeLimits

LEAST_PART = 0.5
"""The least part of the policy's GPUs on which a job that can be restarted begins: each restart costs it time."""
MAX_NODES = 64
"""The most nodes that a resize gives a job, unless it has more already or the policy named more."""


def changes_any(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether the plan has another number of GPUs for a waiting job than it requests."""
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)} if plan.actions else {}
    return any(each.kind == "place" and each.gpus != snapshot.jobs.gpus[rows[each.job]] for each in plan.actions)


def with_resizes(snapshot: Snapshot, plan: Plan, past: Past, limits: Guardrails, times: TimeLimits) -> Plan:
    """The plan with resizes of waiting jobs in place of placements; Slurm starts jobs that need none.

    past: the moves under way and the sizes given before. limits, times: the site's budget of changes, and time limits.
    """
    places = [action for action in plan.actions if action.kind == "place" and action.job not in past.moving]
    if not past.sizes and all(action.kind != "place" for action in plan.actions):
        return plan
    sizes = _Sizes(snapshot, past, limits, times)
    resizes = [resize for action in places if (resize := sizes.of(action)) is not None]
    others = [action for action in plan.actions if action.kind != "place"]
    return replace(plan, actions=(*others, *resizes, *sizes.given_back(places)))


class _Sizes:
    """The sizes of waiting jobs in one cycle. `space`: what is free beside those that start."""

    def __init__(self, snapshot: Snapshot, past: Past, limits: Guardrails, times: TimeLimits) -> None:
        self._snapshot, self._past, self._limits, self._times = snapshot, past, limits, times
        jobs = snapshot.jobs
        self._rows = {key: row for row, key in enumerate(jobs.keys)}
        self._may_change = elastic(jobs) & startable(jobs) & (jobs.elements == 1)
        self._starts: set[int] = set()
        self.space = Space(snapshot)

    def of(self, action: Action) -> Action | None:
        """The resize that this placement requires now; None for none. The room of a job that starts is taken."""
        jobs, row = self._snapshot.jobs, self._rows[action.job]
        present, wanted = self._present(row), action.gpus
        if wanted is None or not self._may_change[row] or self._changed_lately(row):
            wanted = present
        grows_later = wanted != present and jobs.restartable[row]
        least = max(int(jobs.gpus_min[row]), math.ceil(LEAST_PART * wanted)) if grows_later else wanted
        tried = (*range(wanted, least - 1, -1), *range(wanted + 1, present))
        floor = self._limits.size_least * float(jobs.requested[row, 0])
        place = self._room(row, [gpus for gpus in tried if gpus >= floor or gpus == present], len(action.nodes))
        as_it_is = self.space.fit(row, present)
        gains = place is not None and self._pays(present, wanted) and self._pays(present, sum(place.shares))
        if as_it_is is not None and not gains:
            place = as_it_is
        if place is None:
            return None
        self.space.take(row, place)
        self._starts.add(row)
        gpus = sum(place.shares)
        if gpus == present:
            return None
        names = self._snapshot.nodes.names
        nodes = tuple(names[node] for node in place.nodes)
        return Action("resize", action.job, Reason("starts", {"gpus": gpus, "had": present}), gpus, nodes, place.shares)

    def given_back(self, places: list[Action]) -> Iterator[Action]:
        """Resizes to what they asked for, of those that do not start with the size that they were given."""
        jobs = self._snapshot.jobs
        wanted = {action.job: action.gpus for action in places}
        for key, size in self._past.sizes.items():
            row = self._rows.get(key)
            if row is None or not jobs.pending[row] or jobs.held[row] or row in self._starts:
                continue
            if wanted.get(key) == size.given or key in self._past.moving or self._changed_lately(row):
                continue
            reason = Reason("size given back", {"gpus": size.asked, "had": size.given})
            yield Action("resize", key, reason, size.asked)

    def _present(self, row: int) -> int:
        """The GPUs that a waiting job requests; Slurm 22.05 shows those on nodes that an update added when it runs."""
        shown, size = int(self._snapshot.jobs.gpus[row]), self._past.sizes.get(self._snapshot.jobs.keys[row])
        return size.given if size is not None and shown == size.asked else shown

    def _changed_lately(self, row: int) -> bool:
        changed = self._past.size_changed.get(self._snapshot.jobs.keys[row], -np.inf)
        return lately(changed, self._snapshot.now, self._limits.size_interval)

    def _pays(self, present: int, gpus: int) -> bool:
        return gpus != present and abs(gpus - present) >= self._limits.size_change * present

    def _room(self, row: int, sizes: Iterable[int], nodes: int) -> Placement | None:
        """Where the job fits in equal numbers on each node, on the first of these sizes with which it ends in time."""
        room = self.space.room(row)
        most = int(room.sum())
        for gpus in sizes:
            place = _even_placement(room, gpus, nodes) if 0 < gpus <= most else None
            if place is not None and self._times.fits(row, gpus):
                return place
        return None


def _even_placement(room: Floats, gpus: int, nodes: int) -> Placement | None:
    """The fullest nodes with room (nodes,) for equal parts of these GPUs: on so many nodes, else on the fewest."""
    for count in (max(nodes, 1), *range(1, min(MAX_NODES, len(room)) + 1)):
        enough = np.flatnonzero(room >= gpus // count)
        if gpus % count == 0 and len(enough) >= count:
            chosen = enough[np.argsort(room[enough], kind="stable")][:count]
            return Placement(tuple(sorted(chosen.tolist())), (gpus // count,) * count)
    return None
