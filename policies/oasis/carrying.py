"""The present slot of OASiS' plan, as actions: who holds how many GPUs now, who is let in, who is told no."""

from collections.abc import Sequence

import numpy as np

from policies.oasis.bid import Bid
from policies.oasis.bidding import Scene
from policies.oasis.planning import Planned
from policies.placement.allocation import allocate, movable, rank_from_order, startable
from policies.placement.plans import admission_releases
from policies.placement.space import Space
from policies.plan import Action, Memory, Plan, Reason
from predictors.arrays import Ints


def carried_out(scene: Scene, plan: Planned, memory: Memory) -> Plan:
    """The plan of this cycle. Jobs without a utility come after those with a schedule, by submission."""
    snapshot, jobs = scene.snapshot, scene.snapshot.jobs
    wanted = np.where(jobs.running, scene.held, 0)
    wanted[list(scene.bids)] = 0
    for row, decided in plan.admitted.items():
        wanted[row] = decided.count(0)
    plain = startable(jobs) & (jobs.role != "ps")
    plain[list(scene.bids)] = False
    others = np.flatnonzero(plain)
    others = others[np.argsort(jobs.submitted[others], kind="stable")]
    wanted[others] = jobs.gpus[others]
    if scene.settings.backfill:
        _lend(scene, plan, wanted, others)
    order = _order(scene, plan, wanted, others)
    payoff = np.full(len(jobs), np.nan)
    for row, (_, gain) in plan.offers.items():
        payoff[row] = gain
    terms = {"payoff": payoff, "share": wanted.astype(np.float64)}
    notes = {jobs.keys[row]: _refusal(scene.bids[row], *offer) for row, offer in plan.rejected.items()}
    actions = (*allocate(snapshot, order, wanted).actions, *_admissions(scene, plan))
    return Plan(rank_from_order(jobs, order), terms, actions, memory, notes)


def _order(scene: Scene, plan: Planned, wanted: Ints, others: Ints) -> Ints:
    """Rows, the first placed first; with each job its parameter servers."""
    jobs = scene.snapshot.jobs

    def by_worth(rows: Sequence[int]) -> list[int]:
        return sorted(rows, key=lambda row: (_worth(scene.bids[row]), row))

    runs = by_worth([row for row in plan.admitted if wanted[row] > 0])
    lent = by_worth([row for row in plan.rejected if wanted[row] > 0])
    later = by_worth([row for row in scene.bids if wanted[row] == 0])
    unmanaged, plain = others[~jobs.managed[others]].tolist(), others[jobs.managed[others]].tolist()
    order = [*unmanaged]
    for row in runs:
        order += [row, *scene.servers_of(row)]
    return np.array([*order, *plain, *lent, *later], dtype=np.int64)


def _worth(bid: Bid) -> float:
    """Utility for the work that is left, negative: least first is foremost."""
    return -float(bid.value[0]) / max(bid.worker_slots, 1.0)


def _lend(scene: Scene, plan: Planned, wanted: Ints, others: Ints) -> None:
    """Raise `wanted` by the GPUs that nobody takes: of those admitted, which end sooner, then of those turned down.

    The most utility for the work left goes first. A job that cannot give back what it is lent gets nothing, and where
    a change costs a restart, those that run as planned are left as they are.
    """
    jobs, bids = scene.snapshot.jobs, scene.bids
    held = sum(int(scene.held[row]) for row in bids)
    left = Space(scene.snapshot).gpus + held - int(wanted[list(bids)].sum()) - int(jobs.gpus[others].sum())
    waits, moves = startable(jobs), movable(jobs)
    for row in sorted(bids, key=lambda row: (row in plan.rejected, _worth(bids[row]))):
        if left <= 0:
            return
        bid, now = bids[row], int(wanted[row])
        most = min(bid.workers, now + left)
        returns = moves[row] or (waits[row] and bool(jobs.restartable[row]))
        settled = scene.settings.restart > 0 and 0 < scene.held[row] == now
        if returns and not settled and most > now and most >= bid.least:
            wanted[row] = most
            left -= most - now


def _admissions(scene: Scene, plan: Planned) -> tuple[Action, ...]:
    """The release of jobs that were held for admission, with the GPUs and the start of their first slot.

    One that declares no utility is let in; it is served on what is left.
    """
    jobs = scene.snapshot.jobs
    waits = jobs.awaits & jobs.managed & jobs.pending
    actions = []
    for row, decided in plan.admitted.items():
        if waits[row]:
            begin = max(scene.snapshot.now, scene.began + decided.begin * scene.settings.slot)
            reason = Reason("admitted", {"price": decided.cost, "payoff": decided.payoff})
            actions.append(Action("release", jobs.keys[row], reason, gpus=decided.count(decided.begin), begin=begin))
    plain = waits.copy()
    plain[list(scene.bids)] = False
    return (*actions, *admission_releases(jobs, plain))


def _refusal(bid: Bid, cost: float, payoff: float) -> Reason:
    """Why a job is turned down, and what would change that."""
    if np.isnan(cost):
        return Reason("rejected", {"utility": float(bid.value.max()), "needs": "more free GPUs within the horizon"})
    return Reason("rejected", {"price": cost, "payoff": payoff, "utility": cost + payoff, "needs": "a lower price"})
