"""MLF-C: under overload, stop training that has reached its target, or never will.

MLFS (Wang, Liu, Shen, CoNEXT 2020) section 3.5, with the early stopping of Domhan, Springenberg, Hutter: Speeding Up
Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning Curves, IJCAI 2015.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from policies.plan import Action, Memory, Reason
from policies.snapshot import Curves, Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints, Texts
from predictors.forecast import Forecast

OPTIONS = ("iterations", "optstop", "target")
"""The stop options, each stopping earlier than the one before; their indices are the levels below."""
ITERATIONS, OPTSTOP, TARGET = range(len(OPTIONS))
NOISE_WINDOW = 10
"""The noise of a curve is estimated from this many of its last points."""
UNFORESEEN = 0.005
"""The share of curves of unseen kinds that end above the whole forecast made from a quarter or half of them."""
NORMAL_MAD = 0.6745
"""median |z| of a standard normal z"""


@dataclass(frozen=True)
class LoadControlSettings:
    """When a cluster counts as overloaded, and how certain a stop must be.

    overload_degree: h_s, the mean dominant share of the nodes above which the cluster is overloaded, in [0, 1].
    overload_enter, overload_exit: cycles that overload must last, or be over, before the state changes. confidence:
    with which a job must be predicted to miss its target before it is stopped, in (0.5, 1), at the end of its
    iterations; earlier, more. min_observed: points of a curve before a stop. epsilon: the share of the achieved value
    that is not worth further training. minimum_accuracy: the target of a job without one; NaN: none.
    """

    overload_degree: float = 0.9
    overload_enter: int = 3
    overload_exit: int = 3
    confidence: float = 0.95
    min_observed: int = 5
    epsilon: float = 0.005
    minimum_accuracy: float = np.nan

    def __post_init__(self) -> None:
        if not 0 <= self.overload_degree <= 1:
            raise ValueError(f"overload_degree is between 0 and 1, not {self.overload_degree}")
        for name in ("overload_enter", "overload_exit"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1 cycle, not {getattr(self, name)}")
        if not 0.5 < self.confidence < 1:
            raise ValueError(f"confidence is between 0.5 and 1, not {self.confidence}")
        if self.min_observed < 3:
            raise ValueError(f"min_observed is at least 3, which an estimate of noise needs, not {self.min_observed}")
        if not 0 <= self.epsilon < 1:
            raise ValueError(f"epsilon is at least 0 and less than 1, not {self.epsilon}")


@dataclass(frozen=True)
class Load:
    """The load of the cluster: whether it is overloaded, O_c in [0, 1], and the number of jobs waiting for
    resources."""

    overloaded: bool
    degree: float
    waiting: int
    memory: Memory


def assess_load(snapshot: Snapshot, memory: Memory, settings: LoadControlSettings) -> Load:
    """The load of the cluster, overloaded if a job waits for resources, or O_c > h_s, for long enough.

    O_s is a node's dominant share, since a GPU node with idle CPUs is full. memory: of the last cycle's `Load`.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    queued = jobs.pending & ~jobs.held & ((jobs.reason == "Resources") | (jobs.reason == "Priority"))
    shares = np.divide(nodes.used, nodes.capacity, out=np.zeros_like(nodes.used), where=nodes.capacity > 0)
    degree = float(shares[nodes.up].max(axis=1).mean()) if nodes.up.any() else 0.0
    waiting = int(jobs.elements[queued].sum())

    before = bool(memory["overloaded"][0]) if "overloaded" in memory else False
    disagreeing = int(memory["disagreeing"][0]) if "disagreeing" in memory else 0
    disagreeing = disagreeing + 1 if (waiting > 0 or degree > settings.overload_degree) != before else 0
    turned = disagreeing >= (settings.overload_exit if before else settings.overload_enter)
    overloaded = before != turned
    return Load(
        overloaded,
        degree,
        waiting,
        {"overloaded": np.array([overloaded]), "disagreeing": np.array([0 if turned else disagreeing])},
    )


def stop_actions(
    snapshot: Snapshot, candidates: "StopCandidates", load: Load, settings: LoadControlSettings
) -> tuple[Action, ...]:
    """The stops of running managed jobs, by OptStop and the option of each job.

    Under `target`: stop at the required value. Under `optstop`: stop where the best value is within epsilon of the
    predicted maximum, which is the mean of the better of the final and the best value: a small chance of a large gain
    counts, as before a drop of the learning rate. Under both: stop where, with confidence, the final value misses the
    required one. No job is stopped on a prediction while its last point is its best by more than the noise.

    A job is evaluated after every report, so the error that confidence allows is spent over its iterations.
    """
    jobs = snapshot.jobs
    rows, curve, level, expected = candidates.rows, candidates.curve, candidates.level, candidates.final
    if not len(rows):
        return ()

    allowed_error = _allowed_error(1 - settings.confidence, jobs.iteration[rows] / jobs.max_iterations[rows])
    misses = (candidates.p_reach + UNFORESEEN < allowed_error) & (curve.gain <= curve.noise)
    complete = (level == OPTSTOP) & (curve.best >= candidates.maximum - candidates.tolerance)
    complete &= curve.gain <= np.maximum(curve.noise, candidates.tolerance)
    causes = np.select([(level == TARGET) & candidates.reached, misses, complete], ["reached", "misses", "maximum"], "")

    causes[(jobs.trials[rows] == "first") & (causes != "reached")] = ""  # the next trial may do better

    predicted = expected.median
    return tuple(
        _stop(
            jobs,
            int(rows[i]),
            str(causes[i]),
            {
                "asked": str(jobs.stop[rows[i]]),
                "in_force": OPTIONS[level[i]],
                "overload": "yes" if load.overloaded else "no",
                "overload_degree": load.degree,
                "waiting": float(load.waiting),
                "achieved": float(curve.best[i]),
                "target": float(candidates.required[i]),
                "target_of": "site" if np.isnan(jobs.target[rows[i]]) else "job",
                "probability": float(candidates.p_reach[i]),
                "predicted": float(predicted[i]),
                "predicted_maximum": float(candidates.maximum[i]),
                "tolerance": float(candidates.tolerance[i]),
                "confidence": settings.confidence,
            },
        )
        for i in np.flatnonzero((causes != "") & jobs.running[rows])
    )


def remaining_share(jobs: Jobs, candidates: "StopCandidates") -> Floats:
    """(n,) in (0, 1]: the share of its remaining iterations that a job will run before load control stops it.

    It stops at the required value, or within epsilon of the predicted maximum, by the option in force. Between its
    first report and the median forecast of its end a curve is assumed to be the hyperbola through these and its best
    value now. 1 where the option, the forecast or the shape of the curve predicts no stop.
    """
    left = np.ones(len(jobs))
    rows, curve = candidates.rows, candidates.curve
    if not len(rows):
        return left
    most, done = jobs.max_iterations[rows], jobs.iteration[rows]
    first, at, end, best = curve.first, curve.at, candidates.final.median, curve.best
    value = np.where(candidates.level == TARGET, candidates.required, candidates.maximum - candidates.tolerance)
    stops = (best > first) & (end > value) & (value > best) & (at > curve.first_at) & (most > at)
    parts = ((value, best), (end, first), (at, curve.first_at)), ((end, value), (best, first), (most, curve.first_at))
    over, under = (np.prod([np.where(stops, a - b, 1.0) for a, b in part], axis=0) for part in parts)
    share = np.divide(over, over + under, out=np.ones_like(over), where=stops & (over + under > 0))
    share[value <= best] = 0.0
    left[rows] = np.where(done < most, np.maximum(share, 1.0 / np.maximum(most - done, 1.0)), 1.0)
    return left


@dataclass(frozen=True)
class StopCandidates:
    """The r jobs that may be stopped, each column (r,).

    requested, farthest: the level that the user chose, and the highest that the system may apply. required: the value
    to reach, NaN for none. reached: whether it has been. maximum: the expectation of the better of the final and the
    best value. tolerance: the part of it that is not worth further training.
    """

    rows: Ints
    curve: "_Curve"
    final: Forecast
    requested: Ints
    farthest: Ints
    required: Floats
    reached: Bools
    maximum: Floats
    tolerance: Floats

    @classmethod
    def of(cls, jobs: Jobs, final: Forecast, settings: LoadControlSettings, *, overloaded: bool) -> "StopCandidates":
        """The managed jobs that may be stopped, have reported enough and are not in their last iteration.

        final: the target quantity at the end. overloaded: whether the cluster is overloaded, so that `downgrade`
        applies.
        """
        requested = _levels(jobs.stop)
        farthest = np.maximum(requested, _levels(jobs.downgrade)) if overloaded else requested
        observed = jobs.accuracies.lengths() >= settings.min_observed
        ending = jobs.iteration >= jobs.max_iterations
        rows = np.flatnonzero(jobs.managed & (farthest > ITERATIONS) & observed & ~ending & (jobs.trials != "all"))
        expected = final[rows]
        curve = _Curve.of(jobs.accuracies, rows)
        required = np.where(np.isnan(jobs.target[rows]), settings.minimum_accuracy, jobs.target[rows])
        reached = curve.best >= required
        maximum = expected.clip(lower=curve.best).mean
        tolerance = settings.epsilon * np.abs(curve.best)
        return cls(rows, curve, expected, requested[rows], farthest[rows], required, reached, maximum, tolerance)

    @cached_property
    def p_reach(self) -> Floats:
        """(r,) the probability of reaching the required value."""
        return np.where(self.reached, 1.0, self.final.sf(self.required))

    @cached_property
    def level(self) -> Ints:
        """(r,) the level in force: a job that was downgraded to `target` uses `optstop` if its target is out of
        reach."""
        downgraded = (self.farthest == TARGET) & (self.requested < TARGET)
        if not downgraded.any():
            return self.farthest
        within_reach = self.p_reach >= 0.5
        return np.where(downgraded & ~within_reach, OPTSTOP, self.farthest)


def _allowed_error(error: float, share: Floats) -> Floats:
    """(r,) the probability of a wrong stop that is allowed once this share of the iterations is done.

    O'Brien and Fleming's bound as a spending function (Lan and DeMets 1983, alpha_1): little at first, all at the end.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(2 * ndtr(ndtri(error / 2) / np.sqrt(share)))


def _stop(jobs: Jobs, row: int, cause: str, facts: dict[str, float | str]) -> Action:
    """A stop with all facts that are known, without those that are NaN."""
    facts |= {
        "cause": cause,
        "iteration": float(jobs.iteration[row]),
        "max_iterations": float(jobs.max_iterations[row]),
    }
    known = {name: fact for name, fact in facts.items() if isinstance(fact, str) or np.isfinite(fact)}
    if "target" not in known:
        del known["target_of"]
    return Action("stop", jobs.keys[row], Reason("target" if cause == "reached" else "optstop", known))


def _levels(options: Texts) -> Ints:
    return np.where(options == "target", TARGET, np.where(options == "optstop", OPTSTOP, ITERATIONS))


@dataclass(frozen=True)
class _Curve:
    """Curves of at least three points, each column (r,): the best value, the gain of the last point, the noise.

    first_at, first: the iteration and the value of the first point; at: the iteration of the last.
    """

    best: Floats
    gain: Floats
    noise: Floats
    first_at: Floats
    first: Floats
    at: Floats

    @classmethod
    def of(cls, curves: Curves, rows: Ints) -> "_Curve":
        starts, ends = curves.starts[rows], curves.starts[rows + 1]
        if not len(rows):
            return cls(*[np.zeros(0)] * len(fields(cls)))
        values = np.append(curves.values, np.nan)
        last = values[ends - 1]
        before = np.fmax.reduceat(values, np.stack([starts, ends - 1], axis=1).ravel())[::2]
        at = ends[:, None] + np.arange(-NOISE_WINDOW, 0)
        points = np.where(at >= starts[:, None], values[np.maximum(at, 0)], np.nan)
        # Second differences cancel a linear trend; for independent noise they have six times its variance.
        bends = _row_medians(np.abs(np.diff(points, n=2, axis=1)))
        return cls(
            best=np.fmax(before, last),
            gain=last - before,
            noise=bends / (NORMAL_MAD * np.sqrt(6)),
            first_at=curves.iterations[starts],
            first=curves.values[starts],
            at=curves.iterations[ends - 1],
        )


def _row_medians(table: Floats) -> Floats:
    """(n,) the median of each row of (n, k) without its NaN, NaN where all are."""
    in_order = np.sort(table, axis=1)
    count = np.isfinite(table).sum(axis=1)
    each = np.arange(len(table))
    return np.asarray((in_order[each, np.maximum(count - 1, 0) // 2] + in_order[each, count // 2]) / 2)
