"""MLF-H's priority: the learning gain of a job's next iteration, its remaining time, its deadline and its waiting.

Wang, Liu, Shen: Job Scheduling for Large-Scale Machine Learning Clusters (MLFS), CoNEXT 2020, section 3.3.1, equations
2 to 6. The paper gives no units; `literal` takes the equations as printed, in hours, and `scaled` measures every term
against the completion rate, so that waiting cannot turn the order into first come, first served. In it, dependents and
parameter servers order the jobs of one ML job, and give it nothing over others: what depends on what, and who serves
whom, is claimed by its user. It counts the iterations by the share of the maximum that is done, and averages the loss
ratio over several reports; the literal form takes iterations and their loss reductions as they are reported.

The literal form departs from print only where that has no finite value or none with a meaning: no time is less than an
interval, a job past its deadline has no deadline term, the loss ratio is 1 until two losses exist and 0 if the loss
never fell, and the children add at most gamma / (1 - gamma) times the job's own value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from policies.believed import believed
from policies.mlfs.dependencies import Dependencies
from policies.snapshot import Curves, Jobs
from predictors.arrays import Bools, Floats
from predictors.forecast import Forecasts

Form = Literal["scaled", "literal"]
HOUR = 3600.0
DAY = 24 * HOUR
PATIENCE = 10.0
"""scaled: after waiting this many times its own run time a job has half of what waiting can add"""
DEADLINES = 0.25
"""scaled: the share of a user's jobs that may have as tight a deadline as there is"""
STAGES = 9.0
"""scaled: the iterations that equation 2 counts from a job's start to its end, where its maximum is known"""


@dataclass(frozen=True)
class PrioritySettings:
    """The weights of equations 2 to 6, and defaults where the paper gives none.

    form: see the module. alpha: weight of the learning part. gamma: discount of the children, in [0, 1). gamma_d,
    gamma_r, gamma_w: weights of deadline, remaining time and waiting (the last in the literal form only).
    hysteresis: factor for a running job (scaled form). interval: seconds between decisions, and the shortest time in
    any term. urgency: of a job without one, 0 to 10. max_deadline: seconds from submission, for a job without one.
    unknown_total: seconds, without a forecast and a time limit. smoothing: losses over which the latest reduction is
    averaged (scaled form). use_urgency, use_deadline: whether the jobs' own urgency and deadlines count.
    """

    form: Form = "scaled"
    alpha: float = 0.3
    gamma: float = 0.8
    gamma_d: float = 0.3
    gamma_r: float = 0.3
    gamma_w: float = 0.35
    hysteresis: float = 1.3
    interval: float = 60.0
    urgency: float = 5.0
    max_deadline: float = 7 * DAY
    unknown_total: float = DAY
    smoothing: int = 3
    use_urgency: bool = True
    use_deadline: bool = True

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise ValueError(f"form is {' or '.join(get_args(Form))}, not {self.form!r}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is between 0 and 1, not {self.alpha}")
        if not 0 <= self.gamma < 1:
            raise ValueError(f"gamma is at least 0 and less than 1, not {self.gamma}")
        if not 0 <= self.urgency <= 10:
            raise ValueError(f"urgency is between 0 and 10, not {self.urgency}")
        for name in ("gamma_d", "gamma_r", "gamma_w"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} is a number not less than 0, not {getattr(self, name)}")
        for name in ("interval", "max_deadline", "unknown_total"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} is a number of seconds greater than 0, not {getattr(self, name)}")
        for name in ("hysteresis", "smoothing"):
            if not 1 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Ranking:
    """The priority of n jobs, NaN for those that are not managed.

    terms: the parts, each (n,), whose sum is `rank`. remaining (n,): the remaining seconds that they are computed from.
    """

    score: Floats
    terms: Mapping[str, Floats]
    dependencies: Dependencies
    remaining: Floats


class Times(NamedTuple):
    """Seconds, each (n,): to the deadline (negative past it), remaining and total run time, and waiting time so far."""

    left: Floats
    remaining: Floats
    total: Floats
    waited: Floats


def score(
    jobs: Jobs, now: float, forecasts: Forecasts, settings: PrioritySettings, share_left: Floats | float = 1.0
) -> Ranking:
    """P of equation 6 for every managed job, in 1/hours where the terms have a unit.

    share_left (n,): the share of the remaining run time after which the job will be stopped, by its reports; it counts
    as far as they are believed.

    The terms: learning (eq. 2), remaining, deadline, waiting (eq. 4), children (eqs. 3 and 5), running (hysteresis) and
    server (by which a parameter server is above the workers of its ML job).
    """
    dependencies = Dependencies.of(jobs.ml_job, jobs.parents)
    remaining, total = run_times(jobs, now, forecasts, settings)
    counts = believed(jobs.attained, jobs.attained + jobs.gpus * remaining, jobs.running)
    remaining = np.maximum(remaining * (1.0 - counts * (1.0 - share_left)), settings.interval)
    deadline = task_deadlines(jobs, now, remaining, dependencies, settings)
    times = Times(deadline - now, remaining, total, np.fmax(jobs.waited, 0.0))
    if not settings.use_deadline:
        settings = replace(settings, gamma_d=0.0)
    scaled = settings.form == "scaled"
    form = _scaled if scaled else _literal
    own_learning, own_terms = form(learning_priority(jobs, remaining, settings), times, settings)
    if scaled:
        own_terms["deadline"] = own_terms["deadline"] * _deadlines_granted(jobs, own_terms)
    own_computing = np.sum(list(own_terms.values()), axis=0)
    alpha, beta = settings.alpha, 1 - settings.alpha
    terms = {"learning": alpha * own_learning} | {name: beta * term for name, term in own_terms.items()}
    if scaled:
        own = alpha * own_learning + beta * own_computing
        terms["children"] = own * (_order_within(jobs, remaining, dependencies, settings.gamma) - 1.0)
    else:
        terms["children"] = alpha * _children(own_learning, dependencies, settings.gamma) + beta * _children(
            own_computing, dependencies, settings.gamma
        )
    priority = np.sum(list(terms.values()), axis=0)
    terms["running"] = np.where(jobs.running & scaled, settings.hysteresis - 1, 0) * priority
    priority = priority + terms["running"]
    ordered = _lower_workers(jobs, priority) if scaled else _raise_servers(jobs, priority)
    terms["server"] = ordered - priority
    for column in (ordered, *terms.values()):
        column[~jobs.managed] = np.nan
    return Ranking(ordered, terms, dependencies, remaining)


def run_times(jobs: Jobs, now: float, forecasts: Forecasts, settings: PrioritySettings) -> tuple[Floats, Floats]:
    """(n,) predicted remaining and total run time in seconds, neither less than one interval.

    The remaining time is the first of these that is known and positive: the forecast; the forecast of the total, less
    what has elapsed; the time limit, less what has elapsed; `unknown_total`.
    """
    elapsed = np.fmax(np.where(jobs.pending, 0.0, now - jobs.started - jobs.suspended), 0.0)
    predicted = forecasts.total.median
    remaining = np.full(len(jobs), settings.unknown_total)
    for better in (jobs.time_limit - elapsed, predicted - elapsed, forecasts.remaining.median):
        remaining = np.where(better > 0, better, remaining)
    total = np.where(predicted > 0, predicted, elapsed + remaining)
    return np.maximum(remaining, settings.interval), np.maximum(total, settings.interval)


def task_deadlines(
    jobs: Jobs, now: float, remaining: Floats, dependencies: Dependencies, settings: PrioritySettings
) -> Floats:
    """(n,) seconds since the epoch by which each job must end for its dependants to meet theirs (section 3.3.1).

    A job without a deadline has the latest one of its ML job, else the site's maximum.
    """
    latest = np.full(len(jobs), -np.inf)
    named = ~np.isnan(jobs.deadline)
    np.maximum.at(latest, jobs.ml_job[named], jobs.deadline[named])
    inherited = latest[jobs.ml_job]
    submitted = np.where(np.isnan(jobs.submitted), now, jobs.submitted)
    deadline = np.where(
        named, jobs.deadline, np.where(np.isfinite(inherited), inherited, submitted + settings.max_deadline)
    )
    for parents, children in dependencies.levels:
        np.minimum.at(deadline, parents, deadline[children] - remaining[children])
    return deadline


def learning_priority(jobs: Jobs, remaining: Floats, settings: PrioritySettings) -> Floats:
    """(n,) P0ml of equation 2: urgency, stage, the latest share of the loss reduction, the share of the model.

    Literal: the stage I is the present iteration, 1 + done, and the reduction that of the iteration before. Scaled: the
    stage is 1 + 9 * done / max, or 1 + done without a maximum. Iterations are reported by the job itself, so it is at
    least the one that follows from attained GPU time: a job that does not report loses priority as it runs.
    """
    named = ~np.isnan(jobs.urgency) & settings.use_urgency
    urgency = np.clip(np.where(named, jobs.urgency, settings.urgency), 0.0, 10.0)
    done = np.fmax(jobs.iteration, 0.0)
    if settings.form == "literal":
        return urgency * loss_ratio(jobs.losses, done, smoothing=1) * model_share(jobs) / (1.0 + done)
    reported, attained = _stages_done(jobs, done, remaining)
    ratio = loss_ratio(jobs.losses, reported, settings.smoothing)
    return urgency * ratio * model_share(jobs) / (1.0 + np.maximum(reported, attained))


def _stages_done(jobs: Jobs, done: Floats, remaining: Floats) -> tuple[Floats, Floats]:
    """(n,) the stages behind each job by what it reported, and by its attained GPU time."""
    horizon = jobs.max_iterations > 0
    most = np.where(horizon, jobs.max_iterations, 1.0)
    used = np.fmax(jobs.attained, 0.0)
    expected = used + jobs.gpus * remaining
    attained = np.divide(used, expected, out=np.zeros(len(jobs)), where=expected > 0)
    return np.where(horizon, STAGES * (np.minimum(done, most) / most), done), STAGES * attained


def loss_ratio(losses: Curves, iterations_done: Floats, smoothing: int) -> Floats:
    """(n,) in [0, 1]: the loss reduction of the latest iteration over all reductions so far.

    Iterations are counted as by the stage, `iterations_done` (n,) so far, so that a job which reports every step does
    not seem to gain less than one which reports every epoch. The reduction is averaged over at least `smoothing`
    reports. 1 until two losses exist, 0 if the loss never fell.
    """
    count = losses.lengths() - 1
    rows = np.flatnonzero(count >= 1)
    ratio = np.ones(len(count))
    if not len(rows):
        return ratio
    gains = np.zeros(len(losses.values) + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        gains[1:-1] = losses.values[:-1] - losses.values[1:]
    gains = np.where(np.isfinite(gains) & (gains > 0), gains, 0.0)
    starts, ends, reports = losses.starts[rows] + 1, losses.starts[rows + 1], count[rows]
    length = np.maximum(reports / np.maximum(iterations_done[rows], 1.0), 1.0)
    window = np.minimum(np.maximum(np.ceil(length).astype(np.int64), smoothing), reports)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        recent = np.add.reduceat(gains, np.stack([ends - window, ends], axis=1).ravel())[::2]
        whole = np.add.reduceat(gains, np.stack([starts, ends], axis=1).ravel())[::2]
        ratio[rows] = np.minimum(np.nan_to_num(recent / whole / window * length, nan=0.0), 1.0)
    return ratio


def model_share(jobs: Jobs) -> Floats:
    """(n,) S_k / S_J: the job's share of its ML job's parameters; a job without a figure has the mean of the others."""
    named = jobs.params > 0
    parameters = np.where(named, jobs.params, 0.0)
    sums, counts = (np.bincount(jobs.ml_job, weights=column, minlength=len(jobs)) for column in (parameters, named))
    mean = np.divide(sums, counts, out=np.ones(len(jobs)), where=counts > 0)
    size = np.where(named, parameters, mean[jobs.ml_job])
    return np.asarray(size / np.bincount(jobs.ml_job, weights=size, minlength=len(jobs))[jobs.ml_job])


def _literal(learning: Floats, times: Times, settings: PrioritySettings) -> tuple[Floats, dict[str, Floats]]:
    """Equations 2 and 4 as printed, in hours."""
    left = np.maximum(times.left, settings.interval)
    return learning, {
        "remaining": settings.gamma_r * HOUR / times.remaining,
        "deadline": np.where(times.left > 0, settings.gamma_d * HOUR / left, 0.0),
        "waiting": settings.gamma_w * times.waited / HOUR,
    }


def _scaled(learning: Floats, times: Times, settings: PrioritySettings) -> tuple[Floats, dict[str, Floats]]:
    """Every term in units of the completion rate, which none of them exceeds."""
    rate = settings.gamma_r * HOUR / times.remaining
    slack = times.left - times.remaining
    urgent = np.minimum(settings.gamma_d * HOUR / np.maximum(slack, settings.interval), rate)
    return learning / 10.0 * rate, {
        "remaining": rate,
        "deadline": np.where(slack >= 0, urgent, 0.0),
        "waiting": rate * times.waited / (times.waited + PATIENCE * times.total),
    }


def _children(own: Floats, dependencies: Dependencies, gamma: float) -> Floats:
    """(n,) what equations 3 and 5 add for the children, with the sum at most 1 / (1 - gamma) times the own term."""
    room = own * (gamma / (1.0 - gamma))
    added = np.zeros_like(own)
    for parents, children in dependencies.levels:
        np.add.at(added, parents, gamma * (own[children] + np.minimum(added[children], room[children])))
    return np.minimum(added, room)


def _deadlines_granted(jobs: Jobs, terms: Mapping[str, Floats]) -> Floats:
    """(n,) the share of its deadline term that a job gets: deadlines are claims, and each user has a budget of them.

    A term is as tight as its share of what a deadline at the earliest possible end would give. The sum over a user's
    managed jobs is limited to `DEADLINES` of their number, or to one.
    """
    tight = np.divide(terms["deadline"], terms["remaining"], out=np.zeros(len(jobs)), where=terms["remaining"] > 0)
    if np.isnan(jobs.deadline).all():
        return np.ones(len(jobs))
    names = jobs.user.tolist()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    user = np.fromiter(map(numbers.__getitem__, names), dtype=np.int64, count=len(names))
    sums, counts = (
        np.bincount(user, weights=column * jobs.managed * jobs.elements, minlength=len(numbers))
        for column in (tight, np.ones(len(jobs)))
    )
    granted = np.maximum(DEADLINES * counts, 1.0)
    return np.asarray(np.minimum(np.divide(granted, sums, out=np.ones(len(sums)), where=sums > 0), 1.0)[user])


def _order_within(jobs: Jobs, remaining: Floats, dependencies: Dependencies, gamma: float) -> Floats:
    """(n,) in (0, 1]: 1 for the job of each ML job below which most of its work waits: in GPU seconds, or in seconds
    (n,) where none of its jobs has GPUs.

    By 1 + the share of the ML job's work below each job, discounted by `gamma` for each step, against the greatest such
    sum in the ML job. So the paper's order within an ML job holds, and no number, length or shape of dependents lifts
    one above others.
    """
    gpus = np.bincount(jobs.ml_job, weights=jobs.gpus, minlength=len(jobs))[jobs.ml_job]
    work = np.where(gpus > 0, jobs.gpus, 1.0) * remaining
    whole = np.bincount(jobs.ml_job, weights=work, minlength=len(jobs))[jobs.ml_job]
    below = np.zeros(len(jobs))
    for parents, children in dependencies.levels:
        np.add.at(below, parents, gamma * (work[children] + np.minimum(below[children], whole[children])))
    share = 1.0 + np.divide(np.minimum(below, whole), whole, out=np.zeros(len(jobs)), where=whole > 0)
    most = np.zeros(len(jobs))
    np.maximum.at(most, jobs.ml_job, share)
    return np.asarray(share / most[jobs.ml_job])


def _lower_workers(jobs: Jobs, priority: Floats) -> Floats:
    """The priorities, with those of an ML job's workers below those of its parameter servers (section 3.3.1).

    Workers go down together, as a server that went up could name a short job its worker.
    """
    server: Bools = jobs.role == "ps"
    if not server.any():
        return priority
    least, best = np.full(len(jobs), np.inf), np.zeros(len(jobs))
    np.minimum.at(least, jobs.ml_job[server], priority[server])
    np.maximum.at(best, jobs.ml_job[~server], priority[~server])
    least, best = least[jobs.ml_job], best[jobs.ml_job]
    lower = ~server & (best >= least)
    below = np.nextafter(priority * np.divide(least, best, out=np.ones(len(jobs)), where=lower), 0.0)
    return np.where(lower, below, priority)


def _raise_servers(jobs: Jobs, priority: Floats) -> Floats:
    """The priorities, with that of each parameter server above all workers of its ML job, as the paper has it."""
    server: Bools = jobs.role == "ps"
    if not server.any():
        return priority
    best = np.full(len(jobs), -np.inf)
    np.maximum.at(best, jobs.ml_job[~server], priority[~server])
    above = np.nextafter(best[jobs.ml_job], np.inf)
    return np.where(server, np.maximum(priority, above), priority)
