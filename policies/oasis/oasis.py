"""OASiS: jobs are admitted at a price and run by a schedule over slots (Bao, Peng, Wu, Li, INFOCOM 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.oasis.admission import (
    AdmissionPlan,
    AdmittedSchedule,
    Allocations,
    Market,
    admit,
    improve_plan,
    price_bounds,
    price_terms,
)
from policies.oasis.bids import Auction, Bid, JobName, OASiSSettings
from policies.placement.allocation import allocate, movable, score_from_order, startable
from policies.placement.plans import admission_releases
from policies.placement.space import Space
from policies.plan import Action, Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import RESOURCES, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Forecasts, Need


class OASiS(Policy):
    """Algorithms 1 and 2 for the jobs that declare a utility; others run by submission on what is left.

    Of the paper it takes prices (22), admission by payoff, schedules that change the number of workers from slot to
    slot, and parameter servers with prices of their own. It adds a rolling horizon, U and L from the jobs seen so far,
    another upper bound (`ceiling`), another offer in each slot to rejected jobs, a new plan for a job that missed its
    schedule, plans that take admissions back where this brings more utility (`revisions`), and the use of idle GPUs
    (`backfill`). It leaves out bandwidth, which Slurm does not allocate. `policies.placement` chooses the nodes.
    Algorithm 1 as published is `ceiling = "paper"`, `revisions = 0` and `backfill = false`; theorem 4 holds for it, and
    not with the defaults (docs/decisions/0046).
    """

    name = "oasis"
    needs: frozenset[Need] = frozenset({"total", "remaining", "speed", "rigid speed"})

    def __init__(self, settings: OASiSSettings | None = None) -> None:
        self.settings: OASiSSettings = settings or OASiSSettings()
        if self.settings.speed == "work":
            self.needs = type(self).needs - {"speed", "rigid speed"}  # by its settings a policy may need less

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Plan the slots to come, and start the present one."""
        auction = Auction.of(snapshot, forecasts, self.settings)
        before = AuctionState.from_memory(memory, len(RESOURCES))
        past, ps_past = _past_terms(auction, before)
        plan = _plan(auction, before, past, ps_past) if auction.bids else AdmissionPlan({}, {})
        names, since = auction.names, np.array([auction.slot, 0, 0])
        state = AuctionState(
            slot=auction.slot,
            pools=auction.pools.names,
            workers={names[row]: schedule.workers + since for row, schedule in plan.admitted.items()},
            parameter_servers={
                names[row]: schedule.parameter_servers + since for row, schedule in plan.admitted.items()
            },
            past=past,
            ps_past=ps_past,
            seen=frozenset(names.values()),
            offers={names[row]: offer for row, offer in plan.offers.items()},
        )
        return to_plan(auction, plan, state.to_memory())


def _past_terms(auction: Auction, before: AuctionState) -> tuple[Floats, Floats]:
    """The price terms of the jobs seen so far, the new ones last; of workers and of parameter servers."""
    config = auction.settings
    new = [bid for row, bid in auction.bids.items() if auction.names[row] not in before.seen]
    of_workers = [price_terms(bid, config.ceiling, bid.demand)[None] for bid in new]
    with_ps = [(bid, bid.parameter_servers) for bid in new if bid.parameter_servers is not None]
    of_ps = [price_terms(bid, config.ceiling, servers.demand)[None] for bid, servers in with_ps]
    return (
        np.concatenate([before.past, *of_workers])[-config.remember :],
        np.concatenate([before.ps_past, *of_ps])[-config.remember :],
    )


def _plan(auction: Auction, before: AuctionState, past: Floats, ps_past: Floats) -> AdmissionPlan:
    """Offers to the jobs that missed their schedule, to new ones, and once a slot to those rejected before."""
    config, submitted = auction.settings, auction.snapshot.jobs.submitted
    kept, late = _kept_schedules(auction, before)
    not_kept = {row: name for row, name in auction.names.items() if row not in kept and row not in late}
    rejected = {row: before.offers[name] for row, name in not_kept.items() if name in before.offers}
    new_slot = auction.slot != before.slot
    new = [row for row in not_kept if row not in rejected]
    gone = before.seen - set(auction.names.values())
    revised = config.revisions > 0 and (new_slot or bool(gone and rejected))
    if not (late or new or revised):
        return AdmissionPlan(kept, rejected)
    new.sort(key=lambda row: submitted[row])
    market = _market(auction, past, ps_past)
    again = sorted(rejected, key=lambda row: submitted[row]) if config.revisions else []
    plan = admit(market, auction.bids, kept, [*late, *new, *again])
    if not config.revisions:
        return AdmissionPlan(plan.admitted, rejected | dict(plan.rejected))
    offers = config.revisions if new_slot or new else 0
    return improve_plan(market, auction.bids, plan, offers, auction.snapshot.cycle)


def _kept_schedules(auction: Auction, before: AuctionState) -> tuple[dict[int, AdmittedSchedule], list[int]]:
    """The schedules that are kept, and the rows of jobs that missed theirs: what is left of it does not suffice."""
    slots = auction.settings.horizon
    at = {name: pool for pool, name in enumerate(auction.pools.names)}
    pool_of = np.array([at.get(name, -1) for name in before.pools], dtype=np.int64)
    ps_pool_of = np.arange(len(auction.ps_pools.names))
    no_entries = np.zeros((0, 3), dtype=np.int64)
    rows = [row for row, name in auction.names.items() if name in before.workers]
    names = [auction.names[row] for row in rows]
    of_workers = upcoming([before.workers[name] for name in names], auction.slot, slots, pool_of)
    ps_entries = [before.parameter_servers.get(name, no_entries) for name in names]
    of_servers = upcoming(ps_entries, auction.slot, slots, ps_pool_of)
    kept: dict[int, AdmittedSchedule] = {}
    late = []
    for row, name, workers, servers in zip(rows, names, of_workers, of_servers, strict=True):
        bid = auction.bids[row]
        count = np.bincount(workers[:, 0], weights=workers[:, 2], minlength=slots).astype(np.int64)
        progress = bid.progress[np.minimum(count, bid.max_workers)]
        progress[0] *= bid.slot_left
        total = float(progress.sum())
        if len(workers) and total + 0.5 * bid.progress[min(bid.min_workers, bid.max_workers)] >= bid.work:
            # the work may be done earlier than planned
            end = int(np.searchsorted(np.cumsum(progress), min(bid.work, total) - 1e-9)) + 1
            cost, payoff = before.offers.get(name, (0.0, 0.0))
            kept[row] = AdmittedSchedule(workers[workers[:, 0] < end], servers[servers[:, 0] < end], cost, payoff)
        else:
            late.append(row)
    return kept, late


def _market(auction: Auction, past: Floats, ps_past: Floats) -> Market:
    """The price bounds, and the nodes' capacity less what jobs without a bid hold, for as long as they will run.

    A job of unknown duration is assumed to run to the end of the horizon.
    """
    jobs, config, pools = auction.snapshot.jobs, auction.settings, auction.pools
    remaining = auction.forecasts.remaining
    seconds = np.where(remaining.known, remaining.median, np.inf)
    last = np.minimum(np.ceil((auction.snapshot.now - auction.slot_start + seconds) / config.slot), config.horizon)
    per_gpu = jobs.demand / np.maximum(jobs.demand[:, :1], 1.0)
    capacity = np.repeat(pools.capacity[None], config.horizon, axis=0)
    for job, node, gpus in auction.snapshot.runs_on.tolist():
        if job not in auction.bids and pools.of[node] >= 0:
            capacity[: int(last[job]), pools.of[node]] -= per_gpu[job] * max(gpus, 1) / pools.unit
    capacity = np.maximum(capacity, 0.0)
    ps_capacity = np.repeat(auction.ps_pools.capacity[None], config.horizon, axis=0)
    total, ps_total = (max(float(each.capacity.sum()), 1e-9) for each in (pools, auction.ps_pools))
    return Market(
        empty=lambda: Allocations(capacity, ps_capacity),
        bounds=price_bounds(past, config.horizon, total),
        ps_bounds=price_bounds(ps_past, config.horizon, ps_total) if len(ps_past) else None,
    )


# --- the present slot, as actions -------------------------------------------------------------------------------------


def to_plan(auction: Auction, plan: AdmissionPlan, memory: Memory) -> Plan:
    """The plan of this cycle: the GPUs of each job in the present slot, admissions, and why others are rejected.

    Jobs without a utility come after those with a schedule, by submission.
    """
    snapshot, jobs = auction.snapshot, auction.snapshot.jobs
    wanted = np.where(jobs.running, auction.held, 0)
    wanted[list(auction.bids)] = 0
    for row, schedule in plan.admitted.items():
        wanted[row] = schedule.count(0)
    no_bid = startable(jobs) & (jobs.role != "ps")
    no_bid[list(auction.bids)] = False
    others = np.flatnonzero(no_bid)
    others = others[np.argsort(jobs.submitted[others], kind="stable")]
    wanted[others] = jobs.gpus[others]
    if auction.settings.backfill:
        _backfill(auction, plan, wanted, others)
    order = _order(auction, plan, wanted, others)
    payoff = np.full(len(jobs), np.nan)
    for row, (_, gain) in plan.offers.items():
        payoff[row] = gain
    terms = {"payoff": payoff, "share": wanted.astype(np.float64)}
    notes = {jobs.keys[row]: _rejection(auction.bids[row], *offer) for row, offer in plan.rejected.items()}
    actions = (*allocate(snapshot, order, wanted).actions, *_admissions(auction, plan))
    return Plan(score_from_order(jobs, order), terms, actions, memory, notes)


def _order(auction: Auction, plan: AdmissionPlan, wanted: Ints, others: Ints) -> Ints:
    """Rows, the first placed first; each job is followed by its parameter servers."""
    jobs = auction.snapshot.jobs

    def sort(rows: Sequence[int]) -> list[int]:
        return sorted(rows, key=lambda row: (_utility_density(auction.bids[row]), row))

    runs = sort([row for row in plan.admitted if wanted[row] > 0])
    lent = sort([row for row in plan.rejected if wanted[row] > 0])
    later = sort([row for row in auction.bids if wanted[row] == 0])
    unmanaged, managed = others[~jobs.managed[others]].tolist(), others[jobs.managed[others]].tolist()
    order = [*unmanaged]
    for row in runs:
        order += [row, *auction.ps_rows_of(row)]
    return np.array([*order, *managed, *lent, *later], dtype=np.int64)


def _utility_density(bid: Bid) -> float:
    """Utility for the work that is left, negative: ascending order puts the most valuable job first."""
    return -float(bid.value[0]) / max(bid.worker_slots, 1.0)


def _backfill(auction: Auction, plan: AdmissionPlan, wanted: Ints, others: Ints) -> None:
    """Raise `wanted` by idle GPUs: first of admitted jobs, which end sooner, then of rejected ones.

    The most utility for the work left goes first. A job that cannot return GPUs gets none, and where a resize costs a
    restart, jobs that run as planned keep their number.
    """
    jobs, bids = auction.snapshot.jobs, auction.bids
    held = sum(int(auction.held[row]) for row in bids)
    left = Space(auction.snapshot).gpus + held - int(wanted[list(bids)].sum()) - int(jobs.gpus[others].sum())
    waits, moves = startable(jobs), movable(jobs)
    for row in sorted(bids, key=lambda row: (row in plan.rejected, _utility_density(bids[row]))):
        if left <= 0:
            return
        bid, now = bids[row], int(wanted[row])
        most = min(bid.max_workers, now + left)
        can_return = moves[row] or (waits[row] and bool(jobs.restartable[row]))
        as_planned = auction.settings.restart > 0 and 0 < auction.held[row] == now
        if can_return and not as_planned and most > now and most >= bid.min_workers:
            wanted[row] = most
            left -= most - now


def _admissions(auction: Auction, plan: AdmissionPlan) -> tuple[Action, ...]:
    """The release of jobs that were held for admission, with the GPUs and the start of their first slot.

    A job without a utility is released too; it runs on what is left.
    """
    jobs = auction.snapshot.jobs
    waits = jobs.awaits & jobs.managed & jobs.pending
    actions = []
    for row, schedule in plan.admitted.items():
        if waits[row]:
            begin = max(auction.snapshot.now, auction.slot_start + schedule.begin * auction.settings.slot)
            reason = Reason("admitted", {"price": schedule.cost, "payoff": schedule.payoff})
            actions.append(Action("release", jobs.keys[row], reason, gpus=schedule.count(schedule.begin), begin=begin))
    no_bid = waits.copy()
    no_bid[list(auction.bids)] = False
    return (*actions, *admission_releases(jobs, no_bid))


def _rejection(bid: Bid, cost: float, payoff: float) -> Reason:
    """Why a job is rejected, and what would get it admitted."""
    if np.isnan(cost):
        return Reason("rejected", {"utility": float(bid.value.max()), "needs": "more free GPUs within the horizon"})
    return Reason("rejected", {"price": cost, "payoff": payoff, "utility": cost + payoff, "needs": "a lower price"})


# --- what is remembered from cycle to cycle ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AuctionState:
    """What OASiS remembers: schedules, the jobs that determine its prices, and the offers made.

    slot: of the last decision, -1 before any. workers: of each admitted job (k, 3): absolute slot, pool, number; pools
    are named in `pools`. parameter_servers: likewise. past, ps_past (k, 2 + R): `price_terms` of the jobs seen, the
    latest last. seen: the jobs of the last decision, which are part of `past`. offers: the (cost, payoff) of each.
    """

    slot: int
    pools: tuple[str, ...]
    workers: Mapping[JobName, Ints]
    parameter_servers: Mapping[JobName, Ints]
    past: Floats
    ps_past: Floats
    seen: frozenset[JobName]
    offers: Mapping[JobName, tuple[float, float]]

    @classmethod
    def from_memory(cls, memory: Memory, resources: int) -> AuctionState:
        """What `to_memory` returned; an empty state before the first decision."""
        if not memory:
            no_terms = np.zeros((0, 2 + resources))
            return cls(-1, (), {}, {}, no_terms, no_terms, frozenset(), {})
        offers = zip(_tuples(memory["offered"]), memory["offers"].tolist(), strict=True)
        return cls(
            slot=int(memory["slot"][0]),
            pools=tuple(str(name) for name in memory["pools"]),
            workers=_by_job(memory["plans"]),
            parameter_servers=_by_job(memory["beside"]),
            past=memory["past"],
            ps_past=memory["past_beside"],
            seen=frozenset(_tuples(memory["told"])),
            offers={name: (cost, payoff) for name, (cost, payoff) in offers},
        )

    def to_memory(self) -> Memory:
        """The state in arrays, by the names that ledgers hold."""
        return {
            "slot": np.array([self.slot]),
            "pools": np.array(self.pools, dtype=np.str_),
            "plans": _joined(self.workers),
            "beside": _joined(self.parameter_servers),
            "past": self.past,
            "past_beside": self.ps_past,
            "told": _names(sorted(self.seen)),
            "offered": _names(list(self.offers)),
            "offers": np.array(list(self.offers.values()), dtype=np.float64).reshape(-1, 2),
        }


def upcoming(schedules: Sequence[Ints], first: int, slots: int, pool_of: Ints) -> list[Ints]:
    """The entries of each remembered schedule (k, 3) in `slots` slots from `first` on, their slots counted from there.

    pool_of: the present index of each remembered pool, -1 where it is gone.
    """
    if not schedules:
        return []
    entries = np.concatenate(schedules)
    now = np.stack([entries[:, 0] - first, pool_of[entries[:, 1]], entries[:, 2]], axis=1)
    kept = (now[:, 0] >= 0) & (now[:, 0] < slots) & (now[:, 1] >= 0)
    owner = np.repeat(np.arange(len(schedules)), [len(schedule) for schedule in schedules])[kept]
    return np.split(now[kept], np.searchsorted(owner, np.arange(1, len(schedules))))


def _by_job(rows: Ints) -> dict[JobName, Ints]:
    """The reverse of `_joined`: the rows of one job are adjacent."""
    if not len(rows):
        return {}
    first = np.flatnonzero(np.any(np.diff(rows[:, :2], axis=0, prepend=-1) != 0, axis=1))
    return dict(zip(_tuples(rows[first, :2]), np.split(rows[:, 2:], first[1:]), strict=True))


def _joined(schedules: Mapping[JobName, Ints]) -> Ints:
    """(k, 5) job id, first submission, and the entries of all schedules."""
    if not schedules:
        return np.zeros((0, 5), dtype=np.int64)
    names = np.repeat(_names(list(schedules)), [len(rows) for rows in schedules.values()], axis=0)
    return np.concatenate([names, np.concatenate(list(schedules.values()))], axis=1).astype(np.int64)


def _names(names: list[JobName]) -> Ints:
    return np.array(names, dtype=np.int64).reshape(-1, 2)


def _tuples(names: Ints) -> list[JobName]:
    return [(job_id, first_submit) for job_id, first_submit in names.tolist()]
