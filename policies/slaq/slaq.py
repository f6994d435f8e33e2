"""SLAQ: GPUs go to the jobs whose loss will fall most (Zhang, Stafman, Or, Freedman, SoCC 2017)."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from policies.marginal_gain.greedy import greedy_shares
from policies.marginal_gain.training_forecast import TrainingForecast
from policies.placement.allocation import allocate, held_gpus, movable, score_from_order, startable
from policies.placement.gpu_types import gpu_capacity
from policies.placement.plans import admission_releases
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Fan, Forecasts, Need

HOUR = 3600.0


@dataclass(frozen=True)
class SLAQSettings:
    """The settings of SLAQ. Times are in seconds."""

    objective: Literal["total", "max-min"] = "total"
    normal: Literal["range", "change"] = "range"
    """the unit of a fall of the loss: the whole fall expected, or the largest in one iteration so far (4.1)"""
    speed: Literal["work", "forecast"] = "work"
    """by GPUs: proportional to them (c S / N, 4.2.1), or as forecast if available, for models that scale differently"""
    epoch: float = 0.0
    """shares are decided once in this time, and for this time ahead; 0: every cycle"""
    restart: float = 0.0
    """the cost of a resize or a restart to a job"""
    starvation: float = 2 * HOUR
    """a job without GPUs for this time goes first"""
    weigh: bool = True
    """by urgency: 10 counts twice as much as 5, the default of a job without one"""
    interval: float = 60.0
    """between cycles"""

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
        """The epoch T: seconds ahead that a decision optimises."""
        return self.epoch or self.interval


class Candidates(NamedTuple):
    """The m jobs that share the GPUs, each column (m,)."""

    rows: Ints
    held: Ints
    least: Ints
    most: Ints
    weight: Floats
    starving: Bools
    resumes: Bools
    """a start costs it a restart: it runs, or ran before"""
    training: TrainingForecast


class SLAQ(Policy):
    """SLAQ's allocation (section 4.3): the most loss reduction in all jobs together within the next epoch.

    Of the paper it takes Algorithm 1, its run time model c S / N (4.2.1), weights, and the fallback for other jobs:
    running ones keep their GPUs, and pending ones get a fair share by number in order of submission. Falls of the loss
    are measured as shares of the whole fall expected, as in the paper's evaluation (6.2), or in its own unit (4.1). It
    adds what GPUs need: minima above one with admission by reduction per GPU second, a bound on starvation, and the
    cost of a resize. It leaves out the token bucket and Spark. Of nodes it considers the number of GPUs only;
    `policies.placement` chooses the nodes.
    """

    name = "slaq"
    needs: frozenset[Need] = frozenset({"loss", "speed", "rigid speed", "total"})

    def __init__(self, settings: SLAQSettings | None = None) -> None:
        self.settings: SLAQSettings = settings or SLAQSettings()
        if self.settings.speed == "work":
            self.needs = type(self).needs - {"speed", "rigid speed"}  # by its settings a policy may need less

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Share the GPUs; rank by loss reduction per GPU second."""
        jobs, now, config = snapshot.jobs, snapshot.now, self.settings
        held = held_gpus(snapshot)
        served = _last_served(jobs, held, now, memory)
        fixed, began = self._epoch(now, memory)
        starts, moves = startable(jobs) & jobs.managed & (jobs.gpus > 0), movable(jobs)
        learning = _is_learning(jobs, forecasts)
        sharing = (starts | (moves & ~np.array(fixed))) & learning
        wanted = np.where(jobs.running, held, 0)
        others, capacity = _reserve(snapshot, held, learning, sharing, served < now - config.starvation)
        wanted[others] = jobs.gpus[others]
        candidates = self._candidates(snapshot, forecasts, np.flatnonzero(sharing), held, served)
        gain = _gain_density(candidates, config)
        shares = _shares(candidates, gain, capacity, config)
        wanted[candidates.rows] = shares
        first = np.lexsort((-gain, ~candidates.starving))
        order = np.concatenate([others, candidates.rows[first]])
        actions = allocate(snapshot, order, wanted, spare=False).actions + admission_releases(jobs)
        terms = {"reduction": _column(jobs, candidates.rows, gain), "share": wanted.astype(np.float64)}
        return Plan(score_from_order(jobs, order), terms, actions, _remember(jobs, served, began))

    def _epoch(self, now: float, memory: Memory) -> tuple[bool, float]:
        """Whether the shares of running jobs are fixed for this epoch, and when it began."""
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
        training = TrainingForecast.of(snapshot, forecasts, rows, held, config.ahead)
        there = np.array([gpu_capacity(snapshot, each)[snapshot.nodes.up].sum() for each in range(len(snapshot.fits))])
        least = np.maximum(jobs.gpus_min[rows], 1)
        most = np.minimum(np.maximum(jobs.gpus_max[rows], least), there[jobs.placement[rows]].astype(np.int64))
        urgency = np.where(np.isnan(jobs.urgency[rows]), 5.0, jobs.urgency[rows])
        scale = training.largest if config.normal == "change" else training.first - training.lowest
        if config.objective == "max-min":
            scale = training.first - training.lowest
        return Candidates(
            rows=rows,
            held=held[rows],
            least=least,
            most=np.maximum(most, least),
            weight=(np.maximum(urgency, 0.5) / 5.0 if config.weigh else 1.0) / np.maximum(scale, 1e-300),
            starving=(held[rows] == 0) & (snapshot.now - served[rows] > config.starvation),
            resumes=(held[rows] > 0) | (jobs.iteration[rows] > 0),
            training=training,
        )


class SLAQMaxMin(SLAQ):
    """SLAQ's other objective (section 4.3): each GPU goes to the job with the highest predicted loss."""

    name = "slaq-maxmin"

    def __init__(self, settings: SLAQSettings | None = None) -> None:
        super().__init__(replace(settings or SLAQSettings(), objective="max-min"))


def _is_learning(jobs: Jobs, forecasts: Forecasts) -> Bools:
    """(n,) whether SLAQ schedules the job: it declared iterations or a target, or its loss is reported or forecast."""
    return np.asarray(
        ~np.isnan(jobs.max_iterations) | ~np.isnan(jobs.target) | (jobs.losses.lengths() > 0) | forecasts.loss.known
    )


def _reserve(snapshot: Snapshot, held: Ints, learning: Bools, sharing: Bools, starving: Bools) -> tuple[Ints, int]:
    """The other jobs to start, in order, and the number of GPUs for SLAQ's own jobs.

    Jobs that are not managed start before all others. The managed ones get, including what such jobs hold already, a
    share of the GPUs by number of jobs; the first of them starts in any case once it starves.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    total = int(nodes.capacity[nodes.up, 0].sum())
    foreign = int(np.maximum(nodes.used[nodes.up, 0].sum() - held.sum(), 0.0))
    waits = np.flatnonzero(startable(jobs) & ~learning | startable(jobs) & ~jobs.managed)
    waits = waits[np.lexsort((jobs.submitted[waits], jobs.managed[waits]))]
    unmanaged, queue = waits[~jobs.managed[waits]], waits[jobs.managed[waits]]
    kept = foreign + int(held[~sharing].sum() + jobs.gpus[unmanaged].sum())
    held_by_others = held[jobs.managed & ~learning]
    number = len(queue) + int((held_by_others > 0).sum())
    of_all = number + int((jobs.managed & learning & ((held > 0) | startable(jobs))).sum())
    share = np.ceil((total - foreign) * number / max(1, of_all)) - held_by_others.sum()
    fits = np.cumsum(jobs.gpus[queue]) <= min(share, total - kept)
    if len(queue) and starving[queue[0]]:
        fits[0] = True
    started = queue[fits]
    return np.concatenate([unmanaged, started]), max(0, total - kept - int(jobs.gpus[started].sum()))


def _gain_density(candidates: Candidates, config: SLAQSettings) -> Floats:
    """(m,) the gain of each job at its minimum per GPU second of the coming epoch; its loss in max-min.

    A running job saves the restart that its next start would cost; one that ran before pays for this start.
    """
    seconds = config.ahead + np.where(candidates.held > 0, 1.0, -1.0 * candidates.resumes) * config.restart
    every = np.arange(len(candidates.rows))
    after = candidates.training.loss(every, candidates.least[:, None].astype(np.float64), seconds[:, None])[:, 0]
    if config.objective == "max-min":
        return candidates.weight * (candidates.training.now() - candidates.training.lowest)
    return candidates.weight * (candidates.training.now() - after) / (candidates.least * config.ahead)


def _shares(candidates: Candidates, density: Floats, capacity: int, config: SLAQSettings) -> Ints:
    """(m,) GPUs of each job."""
    stays = np.zeros(len(candidates.rows), dtype=bool)
    for _ in range(3 if config.restart > 0 else 1):
        shares = _allocated(candidates, density, capacity, stays, config)
        more = _not_worth_resizing(candidates, shares, stays, config) if config.restart > 0 else stays
        if np.array_equal(more, stays):
            break
        stays = more
    else:
        shares = _allocated(candidates, density, capacity, stays, config)
    return shares


def _allocated(candidates: Candidates, density: Floats, capacity: int, stays: Bools, config: SLAQSettings) -> Ints:
    """(m,) GPUs of each job, where those in `stays` keep their GPUs: admission, then Algorithm 1."""
    shares = np.where(stays, candidates.held, 0)
    left = capacity - int(shares.sum())
    order = np.lexsort((-density, ~(candidates.starving)))
    order = order[~stays[order]]
    minima = candidates.least[order]
    if minima.sum() > left:
        order = order[_first_fit(minima, left)]
    shares[order] = candidates.least[order]
    order = np.sort(order)
    seconds = config.ahead - np.where(candidates.resumes[order], config.restart, 0.0)

    def gain(some: Ints, gpus: Ints) -> Floats:
        which, weight = order[some], candidates.weight[order[some], None]
        count = gpus.astype(np.float64)
        if config.objective == "max-min":
            loss = candidates.training.loss(which, count, seconds[some, None])
            return np.asarray(weight * (loss - candidates.training.lowest[which, None]))
        both = candidates.training.loss(which, np.concatenate([count, count + 1.0], axis=1), seconds[some, None])
        loss, more = both[:, : count.shape[1]], both[:, count.shape[1] :]
        return np.asarray(weight * (loss - more))

    spare = capacity - int(shares.sum())
    shares[order] = greedy_shares(candidates.least[order], candidates.most[order], spare, gain)
    return shares


def _first_fit(minima: Ints, left: int) -> Ints:
    """The positions of the jobs that fit, in order; jobs that do not fit are skipped."""
    chosen = []
    for at, gpus in enumerate(minima.tolist()):
        if gpus <= left:
            chosen.append(at)
            left -= gpus
        if left <= 0:
            break
    return np.array(chosen, dtype=np.int64)


def _not_worth_resizing(candidates: Candidates, shares: Ints, stays: Bools, config: SLAQSettings) -> Bools:
    """(m,) the running jobs that keep their GPUs, including those whose resize would gain less than it costs.

    A resized job gains its reduction on `shares` GPUs in an epoch less the restart, and loses that on its present GPUs
    in a whole epoch; a GPU more or less is priced at the gain of the last one allocated.
    """
    short = config.ahead - config.restart
    gpus = np.stack([shares, np.maximum(shares - 1, 1), candidates.held], axis=1)
    seconds = np.broadcast_to([short, short, config.ahead], gpus.shape)
    after = candidates.training.loss(np.arange(len(gpus)), gpus.astype(np.float64), seconds)
    reduction = candidates.weight[:, None] * (candidates.training.now()[:, None] - after)
    given = (shares > candidates.least) & ~stays
    last = reduction[:, 0] - reduction[:, 1]
    price = float(last[given].min()) if given.any() else 0.0
    moved = reduction[:, 0] - price * shares
    left = reduction[:, 2] - price * candidates.held
    running = (
        (candidates.held > 0)
        & (candidates.held >= candidates.least)
        & (candidates.held <= candidates.most)
        & (shares > 0)
    )
    return np.asarray(stays | (running & (left >= moved)))


def _last_served(jobs: Jobs, held: Ints, now: float, memory: Memory) -> Floats:
    """(n,) when each job last held GPUs, or its submission, in seconds since the epoch."""
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
