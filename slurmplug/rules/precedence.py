"""Which waiting jobs are ranked first, whatever the policy: those that waited or were passed for too long. Pure.

A job is passed by those that came later and were put before it: managed jobs that exchange places with it
(`site_factor.exchange_groups`), as slurmplug orders no others. Without them it would wait, in seconds,

    without = had + (earlier - beside) / GPUs

on the nodes that it fits on. had: of the time that it has waited, the part in which the GPUs in use were not those of
later jobs. earlier: the GPU seconds that waiting jobs before it need. beside: those that the later jobs which run need,
since when its turn came others would still run, too, about as long as those that run now.

It is ranked first once the time that it has waited and its run time are more than `max_bypass` times `without` and its
run time. A job that claims to be short so gains nothing beyond the order in which jobs came. Where nobody passes a job,
or nothing is known of the time before, it is never ranked first by this.
"""

from dataclasses import dataclass, replace

import numpy as np

from policies.plan import Memory, OtherJob, Plan, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecasts, Need
from slurmplug.config.schema import Guardrails
from slurmplug.rules.site_factor import exchange_groups

NEEDS: frozenset[Need] = frozenset({"remaining"})
"""The forecasts by which the rule decides."""
MEMORY = "rules/precedence"
"""The name under which the ledger keeps what is counted; no policy has it."""


@dataclass(frozen=True)
class Waits:
    """(n,) each: the seconds of a job's wait in which it was not passed; those that it would wait without later jobs,
    NaN for one that does not wait or that no node has GPUs for; and the row of the later job that holds most of these
    GPUs, -1 for none."""

    had: Floats
    without: Floats
    passed_by: Ints


def waits(snapshot: Snapshot, forecasts: Forecasts, before: Memory) -> Waits:
    """What the jobs wait for. before: `remembered` in the last cycle. forecasts: those of `NEEDS`."""
    jobs, now = snapshot.jobs, snapshot.now
    came, waiting = _came(jobs, now), jobs.pending & ~jobs.held
    since = float(before["now"][0]) if before else now
    ran = np.where(jobs.running, np.clip(now - np.nan_to_num(jobs.started, nan=now), 0.0, max(now - since, 0.0)), 0.0)
    needs = np.nan_to_num(forecasts.remaining.median) * np.maximum(jobs.elements, 1)
    had, waited_then = _remembered(jobs, before, jobs.waited - max(now - since, 0.0))
    without, passed_by = np.full(len(jobs), np.nan), np.full(len(jobs), -1)
    for rows, ours, nodes in _queues(snapshot, waiting):
        gpus = float(snapshot.nodes.capacity[nodes, 0].sum())
        held, share = _held(snapshot, nodes), _share_of_class(snapshot, nodes)[jobs.placement]
        later = np.where(ours & jobs.managed, held, 0.0)
        used = float((held * ran).sum())
        passed = _sums_after(came, later * ran, rows) / used if used else 0.0
        had[rows] += (jobs.waited - waited_then)[rows] * (1.0 - passed)
        earlier = _sums_before(came, np.where(waiting, jobs.gpus * share * needs, 0.0), rows)
        without[rows] = np.maximum(had[rows] + (earlier - _sums_after(came, later * needs, rows)) / gpus, 0.0)
        passed_by[rows] = _most_after(came, later, rows)
    return Waits(had, without, passed_by)


def remembered(snapshot: Snapshot, found: Waits) -> Memory:
    """What the next cycle has to know."""
    jobs = snapshot.jobs
    names = np.array([key[1:] for key in jobs.keys], dtype=np.int64).reshape(-1, 2)
    return {"now": np.array([snapshot.now]), "job": names, "had": found.had, "waited": np.array(jobs.waited)}


def put_first(snapshot: Snapshot, plan: Plan, limits: Guardrails, forecasts: Forecasts, found: Waits | None) -> Plan:
    """The plan with jobs ahead of all others that have waited longer than `max_wait`, the longest wait first, and then
    those that were passed more than `max_bypass` allows, the most passed first; each with the reason.

    found: where it is not given, `max_wait` alone counts.
    """
    jobs = snapshot.jobs
    ranked = jobs.pending & jobs.managed & ~np.isnan(plan.score)
    starving = ranked & (jobs.waited > limits.max_wait)
    run_time, times = forecasts.remaining.median, np.zeros(len(jobs))
    if found is not None:
        alone = np.maximum(found.without + run_time, 1.0)
        times = np.nan_to_num((jobs.waited + run_time) / alone)
    passed = ranked & ~starving & (times > limits.max_bypass)
    rows = np.concatenate([_by(times, passed), _by(jobs.waited, starving)])
    if not len(rows):
        return plan
    score = np.array(plan.score, dtype=np.float64)
    highest = np.nanmax(np.where(np.isfinite(score), score, 0.0))
    score[rows] = highest + 1.0 + np.arange(len(rows))

    def reason(row: int) -> Reason:
        if starving[row]:
            return Reason("starvation", {"waited": float(jobs.waited[row])})
        by = -1 if found is None else int(found.passed_by[row])
        named = {"by": OtherJob(jobs.keys[by], float(np.nan_to_num(score[by])))} if by >= 0 else {}
        return Reason("passed too often", {"times": float(times[row]), "limit": limits.max_bypass, **named})

    return replace(plan, score=score, notes={**plan.notes, **{jobs.keys[row]: reason(row) for row in rows.tolist()}})


def _by(value: Floats, mask: Bools) -> Ints:
    """The rows of the mask, the highest value last."""
    rows = np.flatnonzero(mask)
    return rows[np.argsort(value[rows], kind="stable")]


def _came(jobs: Jobs, now: float) -> Floats:
    """(n,) since when each job would have waited, had it never run before or been ineligible."""
    return np.where(jobs.pending, now, np.nan_to_num(jobs.started, nan=now)) - jobs.waited


def _queues(snapshot: Snapshot, waiting: Bools) -> list[tuple[Ints, Bools, Bools]]:
    """The waiting managed rows (k,) that fit on the same nodes and exchange places, all rows (n,) that exchange places
    with them, and their nodes (nodes,)."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    group, candidates = exchange_groups(jobs), waiting & jobs.managed & (jobs.gpus > 0)
    queues = []
    for number, placement in np.unique(np.stack([group, jobs.placement], axis=1)[candidates], axis=0).tolist():
        fits = snapshot.fits[placement] & nodes.up
        ours = group == number
        if nodes.capacity[fits, 0].sum() > 0:
            queues.append((np.flatnonzero(candidates & ours & (jobs.placement == placement)), ours, fits))
    return queues


def _held(snapshot: Snapshot, nodes: Bools) -> Floats:
    """(n,) the GPUs that each running job holds on these nodes."""
    job, node, gpus = snapshot.runs_on.T if len(snapshot.runs_on) else np.zeros((3, 0), dtype=np.int64)
    return np.asarray(np.bincount(job, gpus * nodes[node], minlength=len(snapshot.jobs)), dtype=np.float64)


def _share_of_class(snapshot: Snapshot, nodes: Bools) -> Floats:
    """(classes,) the share of these nodes in the GPUs that jobs of each placement class fit on."""
    gpus = snapshot.fits * np.where(snapshot.nodes.up, snapshot.nodes.capacity[:, 0], 0.0)
    return np.asarray(gpus[:, nodes].sum(axis=1) / np.maximum(gpus.sum(axis=1), 1.0))


def _sums_before(came: Floats, values: Floats, rows: Ints) -> Floats:
    """(k,) the sum of the values (n,) of those that came before each of the rows (k,)."""
    order = np.argsort(came, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(values[order])])
    return np.asarray(sums[np.searchsorted(came[order], came[rows], side="left")])


def _sums_after(came: Floats, values: Floats, rows: Ints) -> Floats:
    """(k,) the sum of the values (n,) of those that came after each of the rows (k,)."""
    return _sums_before(-came, values, rows)


def _most_after(came: Floats, values: Floats, rows: Ints) -> Ints:
    """(k,) who of those that came after each of the rows (k,) has the largest of the values (n,); -1 where it is 0."""
    order = np.argsort(-came, kind="stable")
    largest = np.maximum.accumulate(values[order])
    first = np.searchsorted(largest, largest, side="left")  # where each largest value so far was met
    last = np.searchsorted(-came[order], -came[rows], side="left") - 1
    met = (last >= 0) & (largest[last] > 0)
    return np.where(met, order[first[last]], -1)


def _remembered(jobs: Jobs, before: Memory, unseen: Floats) -> tuple[Floats, Floats]:
    """(n,) each: `Waits.had` and how long each job had waited in the last cycle; `unseen` (n,) of those not seen then,
    which count as not passed."""
    names = map(tuple, before["job"].tolist()) if before else ()
    values = zip(before["had"].tolist(), before["waited"].tolist(), strict=True) if before else ()
    known = dict(zip(names, values, strict=True))
    at_first = np.clip(unseen, 0.0, None)
    pairs = [known.get(key[1:], (wait, wait)) for key, wait in zip(jobs.keys, at_first.tolist(), strict=True)]
    had, waited = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return had, np.minimum(waited, jobs.waited)
