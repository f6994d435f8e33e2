"""OASiS: jobs are admitted at a price and run by a schedule over slots (Bao, Peng, Wu, Li, INFOCOM 2018)."""

import numpy as np

from policies.oasis.agenda import Agenda, upcoming
from policies.oasis.bidding import Scene
from policies.oasis.book import Book
from policies.oasis.carrying import carried_out
from policies.oasis.planning import Decided, Market, Planned, admit, revised
from policies.oasis.prices import bounds, terms
from policies.oasis.settings import OASiSSettings
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import RESOURCES, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need


class OASiS(Policy):
    """Algorithms 1 and 2 for the jobs that declare a utility; others are served by submission on what is left.

    Of the paper it takes prices (22), admission by payoff, schedules that change the number of workers from slot to
    slot, and parameter servers with prices of their own. It adds a rolling horizon, U and L from the jobs seen so far,
    another upper bound (`ceiling`), another offer in each slot to those turned down, a new plan where a schedule was
    missed, plans that take admissions back where this brings more utility (`revisions`), and the use of idle GPUs
    (`backfill`). It leaves out bandwidth, which Slurm does not allocate. `policies.allocation` chooses the nodes.
    """

    name = "oasis"
    needs: frozenset[Need] = frozenset({"total", "remaining", "speed"})

    def __init__(self, settings: OASiSSettings | None = None) -> None:
        self.settings: OASiSSettings = settings or OASiSSettings()
        if self.settings.speed == "work":
            self.needs = type(self).needs - {"speed"}  # by its settings a policy may need less

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Plan the slots to come, and bring this one about."""
        scene = Scene.of(snapshot, forecasts, self.settings)
        before = Agenda.recalled(memory, len(RESOURCES))
        past, past_beside = _past(scene, before)
        plan = _planned(scene, before, past, past_beside) if scene.bids else Planned({}, {})
        names, since = scene.names, np.array([scene.slot, 0, 0])
        agenda = Agenda(
            slot=scene.slot,
            pools=scene.pools.names,
            plans={names[row]: decided.workers + since for row, decided in plan.admitted.items()},
            beside={names[row]: decided.servers + since for row, decided in plan.admitted.items()},
            past=past,
            past_beside=past_beside,
            told=frozenset(names.values()),
            offers={names[row]: offer for row, offer in plan.offers.items()},
        )
        return carried_out(scene, plan, agenda.remembered())


def _past(scene: Scene, before: Agenda) -> tuple[Floats, Floats]:
    """The terms of the jobs seen, with those that are new; of workers and of parameter servers."""
    config = scene.settings
    new = [bid for row, bid in scene.bids.items() if scene.names[row] not in before.told]
    of_workers = [terms(bid, config.ceiling, bid.demand)[None] for bid in new]
    beside = [terms(bid, config.ceiling, bid.servers.demand)[None] for bid in new if bid.servers is not None]
    return (
        np.concatenate([before.past, *of_workers])[-config.remember :],
        np.concatenate([before.past_beside, *beside])[-config.remember :],
    )


def _planned(scene: Scene, before: Agenda, past: Floats, past_beside: Floats) -> Planned:
    """Offers to those whose schedule was missed, to the new ones, and in each slot to those turned down before."""
    config, submitted = scene.settings, scene.snapshot.jobs.submitted
    standing, late = _standing(scene, before)
    left_out = {row: name for row, name in scene.names.items() if row not in standing and row not in late}
    turned = {row: before.offers[name] for row, name in left_out.items() if name in before.offers}
    new_slot = scene.slot != before.slot
    fresh = [row for row in left_out if row not in turned]
    gone = before.told - set(scene.names.values())
    if not (late or fresh or new_slot or (gone and turned)):
        return Planned(standing, turned)
    fresh.sort(key=lambda row: submitted[row])
    market = _market(scene, past, past_beside)
    again = sorted(turned, key=lambda row: submitted[row])
    plan = admit(market, scene.bids, standing, [*late, *fresh, *again])
    offers = config.revisions if new_slot or fresh else 0
    return revised(market, scene.bids, plan, offers, scene.snapshot.cycle)


def _standing(scene: Scene, before: Agenda) -> tuple[dict[int, Decided], list[int]]:
    """The schedules that stand, and the rows of those that were missed: not enough is left of them."""
    slots = scene.settings.horizon
    at = {name: pool for pool, name in enumerate(scene.pools.names)}
    pool_of = np.array([at.get(name, -1) for name in before.pools], dtype=np.int64)
    own = np.arange(len(scene.beside.names))
    nothing = np.zeros((0, 3), dtype=np.int64)
    rows = [row for row, name in scene.names.items() if name in before.plans]
    names = [scene.names[row] for row in rows]
    of_workers = upcoming([before.plans[name] for name in names], scene.slot, slots, pool_of)
    of_servers = upcoming([before.beside.get(name, nothing) for name in names], scene.slot, slots, own)
    standing: dict[int, Decided] = {}
    late = []
    for row, name, workers, beside in zip(rows, names, of_workers, of_servers, strict=True):
        bid = scene.bids[row]
        count = np.bincount(workers[:, 0], weights=workers[:, 2], minlength=slots).astype(np.int64)
        does = bid.done[np.minimum(count, bid.workers)]
        does[0] *= bid.first
        total = float(does.sum())
        if len(workers) and total + 0.5 * bid.done[min(bid.least, bid.workers)] >= bid.work:
            enough = int(np.searchsorted(np.cumsum(does), min(bid.work, total) - 1e-9)) + 1
            sooner, with_them = workers[workers[:, 0] < enough], beside[beside[:, 0] < enough]  # faster than planned
            standing[row] = Decided(sooner, with_them, *before.offers.get(name, (0.0, 0.0)))
        else:
            late.append(row)
    return standing, late


def _market(scene: Scene, past: Floats, past_beside: Floats) -> Market:
    """The prices, and a book of what the nodes have less what jobs hold that do not bid, for as long as they will.

    A job of which nobody knows how long it goes on is taken to hold on.
    """
    jobs, config, pools = scene.snapshot.jobs, scene.settings, scene.pools
    remaining = scene.forecasts.remaining
    seconds = np.where(remaining.known, remaining.median, np.inf)
    last = np.minimum(np.ceil((scene.snapshot.now - scene.began + seconds) / config.slot), config.horizon)
    per_gpu = jobs.demand / np.maximum(jobs.demand[:, :1], 1.0)
    capacity = np.repeat(pools.capacity[None], config.horizon, axis=0)
    for job, node, gpus in scene.snapshot.runs_on.tolist():
        if job not in scene.bids and pools.of[node] >= 0:
            capacity[: int(last[job]), pools.of[node]] -= per_gpu[job] * max(gpus, 1) / pools.unit
    capacity = np.maximum(capacity, 0.0)
    beside = np.repeat(scene.beside.capacity[None], config.horizon, axis=0)
    total, total_beside = (max(float(each.capacity.sum()), 1e-9) for each in (pools, scene.beside))
    return Market(
        empty=lambda: Book(capacity, beside),
        bounds=bounds(past, config.horizon, total),
        beside=bounds(past_beside, config.horizon, total_beside) if len(past_beside) else None,
    )
