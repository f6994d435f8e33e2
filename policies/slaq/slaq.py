"""SLAQ: GPUs go where the loss will fall most (Zhang, Stafman, Or, Freedman, SoCC 2017)."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from policies.allocation import allocate, held_gpus, movable, ranked, startable
from policies.baselines.common import admitted
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.slaq.outlook import Outlook
from policies.slaq.units import share_out
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Fan, Forecasts, Need

HOUR = 3600.0


@dataclass(frozen=True)
class SLAQSettings:
    """The settings of SLAQ. Seconds."""

    objective: Literal["total", "max-min"] = "total"
    normal: Literal["range", "change"] = "range"
    """what a fall of the loss is counted in: all that it will be, or the largest in one iteration so far (4.1)"""
    speed: Literal["work", "forecast"] = "work"
    """by GPUs: in proportion to them (c S / N, 4.2.1), or as forecast where it is, for models that do not scale so"""
    epoch: float = 0.0
    """shares are decided once in so long, and for so long ahead; 0: every cycle"""
    restart: float = 0.0
    """what a resize or a restart costs a job"""
    starvation: float = 2 * HOUR
    """a job that got nothing for so long goes first"""
    weigh: bool = True
    """by urgency: 10 counts twice as much as 5, which is what a job has that tells none"""
    interval: float = 60.0
    """from one cycle to the next"""

    def __post_init__(self) -> None:
        if self.objective not in ("total", "max-min"):
            raise ValueError(f"objective is total or max-min, not {self.objective!r}")
        if self.normal not in ("change", "range"):
            raise ValueError(f"normal is change or range, not {self.normal!r}")
        if self.speed not in ("forecast", "work"):
            raise ValueError(f"speed is forecast or work, not {self.speed!r}")
        if min(self.epoch, self.restart) < 0 or min(self.starvation, self.interval) <= 0:
            raise ValueError("epoch and restart are not negative, starvation and interval are positive")

    @property
    def ahead(self) -> float:
        """Seconds that a decision looks ahead: the epoch T."""
        return self.epoch or self.interval


class Candidates(NamedTuple):
    """The jobs that GPUs are shared among, m rows of the snapshot."""

    rows: Ints
    held: Ints
    least: Ints
    most: Ints
    weight: Floats
    starving: Bools
    resumes: Bools
    """it pays for a start: it runs, or ran"""
    outlook: Outlook


class SLAQ(Policy):
    """SLAQ's allocation (section 4.3): the most loss reduction in all jobs together within the next epoch.

    Of the paper it takes Algorithm 1, its run time model c S / N (4.2.1), weights, and the fall-back for other jobs:
    those keep what they have, and those that wait get a fair share by number in order of submission. Falls of the loss
    are counted in shares of all that the job's loss will fall, as the paper measures them (6.2), or in its own unit
    (4.1). It adds what GPUs need: minima above one with admission by reduction a GPU second, a bound on starvation, and
    the price of a resize. It leaves out the token bucket and Spark. Of nodes it knows the number of GPUs;
    `policies.allocation` finds the places.
    """

    name = "slaq"
    needs: frozenset[Need] = frozenset({"loss", "speed", "total"})

    def __init__(self, settings: SLAQSettings | None = None) -> None:
        self.settings: SLAQSettings = settings or SLAQSettings()
        if self.settings.speed == "work":
            self.needs = type(self).needs - {"speed"}  # by its settings a policy may need less

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Share the GPUs; the rank is the order of reduction a GPU second."""
        jobs, now, config = snapshot.jobs, snapshot.now, self.settings
        held = held_gpus(snapshot)
        served = _served(jobs, held, now, memory)
        settled, began = self._settled(now, memory)
        starts, moves = startable(jobs) & jobs.managed & (jobs.gpus > 0), movable(jobs)
        learns = _learns(jobs, forecasts)
        sharing = (starts | (moves & ~np.array(settled))) & learns
        wanted = np.where(jobs.running, held, 0)
        others, capacity = _reserve(snapshot, held, learns, sharing, served < now - config.starvation)
        wanted[others] = jobs.gpus[others]
        among = self._candidates(snapshot, forecasts, np.flatnonzero(sharing), held, served)
        worth = _density(among, config)
        gets = _shares(among, worth, capacity, config)
        wanted[among.rows] = gets
        foremost = np.lexsort((-worth, ~among.starving))
        order = np.concatenate([others, among.rows[foremost]])
        actions = allocate(snapshot, order, wanted, spare=False).actions + admitted(jobs)
        terms = {"reduction": _column(jobs, among.rows, worth), "share": wanted.astype(np.float64)}
        return Plan(ranked(jobs, order), terms, actions, _remember(jobs, served, began))

    def _settled(self, now: float, memory: Memory) -> tuple[bool, float]:
        """Whether the running jobs' shares stand for this epoch, and when it began."""
        began = float(memory["began"][0]) if memory else -np.inf
        if self.settings.epoch > 0 and 0 <= now - began < self.settings.epoch - 1e-6:
            return True, began
        return False, now

    def _candidates(
        self, snapshot: Snapshot, forecasts: Forecasts, rows: Ints, held: Ints, served: Floats
    ) -> Candidates:
        jobs, config = snapshot.jobs, self.settings
        if config.speed == "work":
            forecasts = replace(forecasts, speed=Fan.unknown(len(jobs)))
        outlook = Outlook.of(snapshot, forecasts, rows, held, config.ahead)
        there = snapshot.fits[:, snapshot.nodes.up] @ snapshot.nodes.capacity[snapshot.nodes.up, 0]
        least = np.maximum(jobs.gpus_min[rows], 1)
        most = np.minimum(np.maximum(jobs.gpus_max[rows], least), there[jobs.placement[rows]].astype(np.int64))
        urgency = np.where(np.isnan(jobs.urgency[rows]), 5.0, jobs.urgency[rows])
        scale = outlook.largest if config.normal == "change" else outlook.first - outlook.lowest
        if config.objective == "max-min":
            scale = outlook.first - outlook.lowest
        return Candidates(
            rows=rows,
            held=held[rows],
            least=least,
            most=np.maximum(most, least),
            weight=(np.maximum(urgency, 0.5) / 5.0 if config.weigh else 1.0) / np.maximum(scale, 1e-300),
            starving=(held[rows] == 0) & (snapshot.now - served[rows] > config.starvation),
            resumes=(held[rows] > 0) | (jobs.iteration[rows] > 0),
            outlook=outlook,
        )


class SLAQMaxMin(SLAQ):
    """SLAQ's other objective (section 4.3): each GPU goes to the job whose predicted loss is the highest."""

    name = "slaq-maxmin"

    def __init__(self, settings: SLAQSettings | None = None) -> None:
        super().__init__(replace(settings or SLAQSettings(), objective="max-min"))


def _learns(jobs: Jobs, forecasts: Forecasts) -> Bools:
    """(n,) whether it is one of SLAQ's jobs: it tells iterations or a loss."""
    return np.asarray(
        ~np.isnan(jobs.max_iterations) | ~np.isnan(jobs.target) | (jobs.losses.lengths() > 0) | forecasts.loss.known
    )


def _reserve(snapshot: Snapshot, held: Ints, learns: Bools, sharing: Bools, starving: Bools) -> tuple[Ints, int]:
    """The other jobs to start, first the foremost, and the GPUs that SLAQ's own have.

    A job that is not managed is started before all others; those that are get, with what such jobs hold already, their
    share by number, except for the first one once it starves.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    total = int(nodes.capacity[nodes.up, 0].sum())
    foreign = int(np.maximum(nodes.used[nodes.up, 0].sum() - held.sum(), 0.0))
    waits = np.flatnonzero(startable(jobs) & ~learns | startable(jobs) & ~jobs.managed)
    waits = waits[np.lexsort((jobs.submitted[waits], jobs.managed[waits]))]
    unmanaged, queue = waits[~jobs.managed[waits]], waits[jobs.managed[waits]]
    kept = foreign + int(held[~sharing].sum() + jobs.gpus[unmanaged].sum())
    theirs = held[jobs.managed & ~learns]
    number = len(queue) + int((theirs > 0).sum())
    of_all = number + int((jobs.managed & learns & ((held > 0) | startable(jobs))).sum())
    share = np.ceil((total - foreign) * number / max(1, of_all)) - theirs.sum()
    fits = np.cumsum(jobs.gpus[queue]) <= min(share, total - kept)
    if len(queue) and starving[queue[0]]:
        fits[0] = True
    started = queue[fits]
    return np.concatenate([unmanaged, started]), max(0, total - kept - int(jobs.gpus[started].sum()))


def _density(among: Candidates, config: SLAQSettings) -> Floats:
    """(m,) what a job at its minimum is worth a GPU second of the coming epoch; the greatest loss in max-min.

    One that runs would have to pay again for its next start, one that ran pays for this one.
    """
    seconds = config.ahead + np.where(among.held > 0, 1.0, -1.0 * among.resumes) * config.restart
    every = np.arange(len(among.rows))
    after = among.outlook.loss(every, among.least[:, None].astype(np.float64), seconds[:, None])[:, 0]
    if config.objective == "max-min":
        return among.weight * (among.outlook.now() - among.outlook.lowest)
    return among.weight * (among.outlook.now() - after) / (among.least * config.ahead)


def _shares(among: Candidates, density: Floats, capacity: int, config: SLAQSettings) -> Ints:
    """(m,) GPUs of each job."""
    stays = np.zeros(len(among.rows), dtype=bool)
    for _ in range(3 if config.restart > 0 else 1):
        gets = _shared(among, density, capacity, stays, config)
        more = _better_left(among, gets, stays, config) if config.restart > 0 else stays
        if np.array_equal(more, stays):
            break
        stays = more
    else:
        gets = _shared(among, density, capacity, stays, config)
    return gets


def _shared(among: Candidates, density: Floats, capacity: int, stays: Bools, config: SLAQSettings) -> Ints:
    """(m,) GPUs of each job, where those that stay keep what they have: admission, then Algorithm 1."""
    gets = np.where(stays, among.held, 0)
    left = capacity - int(gets.sum())
    order = np.lexsort((-density, ~(among.starving)))
    order = order[~stays[order]]
    asked = among.least[order]
    if asked.sum() > left:
        order = order[_fitting(asked, left)]
    gets[order] = among.least[order]
    order = np.sort(order)
    seconds = config.ahead - np.where(among.resumes[order], config.restart, 0.0)

    def worth(some: Ints, gpus: Ints) -> Floats:
        which, weight = order[some], among.weight[order[some], None]
        count = gpus.astype(np.float64)
        loss = among.outlook.loss(which, count, seconds[some, None])
        if config.objective == "max-min":
            return np.asarray(weight * (loss - among.outlook.lowest[which, None]))
        more = among.outlook.loss(which, count + 1.0, seconds[some, None])
        return np.asarray(weight * (loss - more))

    spare = capacity - int(gets.sum())
    gets[order] = share_out(among.least[order], among.most[order], spare, worth)
    return gets


def _fitting(asked: Ints, left: int) -> Ints:
    """The jobs that fit, the first first; what does not fit is passed over."""
    chosen = []
    for at, gpus in enumerate(asked.tolist()):
        if gpus <= left:
            chosen.append(at)
            left -= gpus
        if left <= 0:
            break
    return np.array(chosen, dtype=np.int64)


def _better_left(among: Candidates, gets: Ints, stays: Bools, config: SLAQSettings) -> Bools:
    """(m,) the running jobs whose resize would not gain what it costs.

    A job gains its reduction on `gets` GPUs in an epoch less the restart and loses that on those it has in a whole one;
    a GPU more or less is worth what the last one given is.
    """
    every, outlook = np.arange(len(among.rows)), among.outlook

    def reduction(gpus: Ints, seconds: float) -> Floats:
        after = outlook.loss(every, gpus[:, None].astype(np.float64), np.full((len(every), 1), seconds))[:, 0]
        return np.asarray(among.weight * (outlook.now() - after))

    short = config.ahead - config.restart
    given = (gets > among.least) & ~stays
    last = reduction(gets, short) - reduction(np.maximum(gets - 1, 1), short)
    price = float(last[given].min()) if given.any() else 0.0
    moved = reduction(gets, short) - price * gets
    left = reduction(among.held, config.ahead) - price * among.held
    running = (among.held > 0) & (among.held >= among.least) & (among.held <= among.most) & (gets > 0)
    return np.asarray(stays | (running & (left >= moved)))


def _served(jobs: Jobs, held: Ints, now: float, memory: Memory) -> Floats:
    """(n,) when each job last held GPUs; its submission where it never did."""
    known = dict(zip(map(tuple, memory["job"].tolist()), memory["served"].tolist(), strict=True)) if memory else {}
    before = [known.get(key[1:], submitted) for key, submitted in zip(jobs.keys, jobs.submitted.tolist(), strict=True)]
    return np.where(held > 0, now, np.minimum(np.array(before, dtype=np.float64), now))


def _remember(jobs: Jobs, served: Floats, began: float) -> Memory:
    names = np.array([key[1:] for key in jobs.keys], dtype=np.int64).reshape(-1, 2)
    return {"job": names, "served": served, "began": np.array([began])}


def _column(jobs: Jobs, rows: Ints, values: Floats) -> Floats:
    column = np.full(len(jobs), np.nan)
    column[rows] = values
    return column
