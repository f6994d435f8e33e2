"""MLF-C's stops: the jobs that may be stopped, and those that are, by the rules of `stop_rules`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from policies.mlfs import divergence, stop_rules
from policies.mlfs.curve_shape import CurveShape, falls, still_improves
from policies.mlfs.load_control import Load, LoadControlSettings
from policies.mlfs.stop_rules import CAUSES, MAY_STOP
from policies.plan import Action, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecast

_RULES = {"reached": "target", "diverged": "diverged"}
"""The rule of a reason by its cause, where it is not `optstop`."""


def stop_actions(
    snapshot: Snapshot, candidates: "StopCandidates", load: Load, settings: LoadControlSettings
) -> tuple[Action, ...]:
    """The stops of running managed jobs, each for a cause that `stop_rules.MAY_STOP` allows for its options."""
    jobs = snapshot.jobs
    judged = _judged_stops(jobs, candidates, load, settings)
    stopped = {action.job: action for action in judged if action.reason.facts["cause"] == "reached"}
    diverged = {action.job: action for action in _diverged_stops(jobs, load, settings)}
    return tuple({**{action.job: action for action in judged}, **diverged, **stopped}.values())


def _judged_stops(
    jobs: Jobs, candidates: "StopCandidates", load: Load, settings: LoadControlSettings
) -> tuple[Action, ...]:
    """The stops by the value of the quantity by which jobs are judged."""
    rows = candidates.rows
    if not len(rows):
        return ()
    rules = candidates.causes(jobs, settings)
    holding = [rules[cause] & candidates.allowed[cause] for cause in rules]
    if not any(each.any() for each in holding):
        return ()
    causes = np.select(holding, list(rules), "")
    shape, predicted = candidates.shape, candidates.final.median
    return tuple(
        _stop(
            jobs,
            int(rows[i]),
            str(causes[i]),
            {
                **_facts_of_load(load),
                "achieved": float(shape.best[i]),
                "achieved_at": float(shape.best_at[i]),
                "target": float(candidates.required[i]),
                "target_of": "site" if np.isnan(jobs.target[rows[i]]) else "job",
                "probability": float(candidates.p_reach[i]),
                "predicted": float(predicted[i]),
                **_facts_of_maximum(candidates, int(i)),
                "confidence": settings.confidence,
                "epsilon": settings.epsilon,
            },
        )
        for i in np.flatnonzero((causes != "") & jobs.running[rows])
    )


def _facts_of_maximum(candidates: "StopCandidates", i: int) -> dict[str, float | str]:
    maximum, tolerance = float(candidates.maximum[i]), float(candidates.tolerance[i])
    if candidates.falling[i] and candidates.shape.best[i] < maximum - tolerance:
        return {"since": "and has fallen since"}
    return {"predicted_maximum": maximum, "tolerance": tolerance}


def _diverged_stops(jobs: Jobs, load: Load, settings: LoadControlSettings) -> tuple[Action, ...]:
    """The stops of trainings that have diverged. A loss beyond its past, as a number, stops no job whose last value is
    its best, nor one whose validation loss improves."""
    allowed = _allowed(jobs, overloaded=load.overloaded)["diverged"]
    rows = np.flatnonzero(jobs.managed & jobs.running & allowed & ~(jobs.iteration >= jobs.max_iterations))
    if not len(rows):
        return ()
    nan = divergence.not_finite(jobs, rows, settings)
    beyond, limits = divergence.beyond_its_past(jobs.losses, rows, settings)
    if beyond.any():
        beyond &= ~still_improves(jobs.accuracies, rows) & ~still_improves(jobs.validation_losses, rows)
    return tuple(
        _stop(
            jobs,
            int(rows[i]),
            "diverged",
            {
                **_facts_of_load(load),
                "how": "not finite" if nan[i] else "beyond its past",
                "reports": float(jobs.not_finite[rows[i]] if nan[i] else settings.diverged_reports),
                **({} if nan[i] else {"limit": float(limits[i]), "loss": float(jobs.losses.row(int(rows[i]))[1][-1])}),
            },
        )
        for i in np.flatnonzero(nan | beyond)
    )


def _facts_of_load(load: Load) -> dict[str, float | str]:
    return {
        "overload": "yes" if load.overloaded else "no",
        "overload_degree": load.degree,
        "waiting": float(load.waiting),
    }


def remaining_share(jobs: Jobs, candidates: "StopCandidates") -> Floats:
    """(n,) in (0, 1]: the share of its remaining iterations that a job will run before load control stops it.

    It stops at the required value, or within epsilon of the predicted maximum, by what its options allow. Between its
    first report and the median forecast of its end a curve is assumed to be the hyperbola through these and its best
    value now. 1 where the options, the forecast or the shape of the curve predict no stop.
    """
    left = np.ones(len(jobs))
    rows, shape = candidates.rows, candidates.shape
    if not len(rows):
        return left
    most, done = jobs.max_iterations[rows], jobs.iteration[rows]
    first, at, end, best = shape.first, shape.at, candidates.final.median, shape.best
    value = np.fmin(
        np.where(candidates.allowed["reached"], candidates.required, np.nan),
        np.where(candidates.allowed["maximum"], candidates.maximum - candidates.tolerance, np.nan),
    )
    stops = (best > first) & (end > value) & (value > best) & (at > shape.first_at) & (most > at)
    parts = ((value, best), (end, first), (at, shape.first_at)), ((end, value), (best, first), (most, shape.first_at))
    over, under = (np.prod([np.where(stops, a - b, 1.0) for a, b in part], axis=0) for part in parts)
    share = np.divide(over, over + under, out=np.ones_like(over), where=stops & (over + under > 0))
    share[value <= best] = 0.0
    left[rows] = np.where(done < most, np.maximum(share, 1.0 / np.maximum(most - done, 1.0)), 1.0)
    return left


@dataclass(frozen=True)
class StopCandidates:
    """The r jobs that may be stopped, each column (r,).

    allowed: by cause, whether the job's options allow it. required: the value to reach, NaN for none. reached: whether
    it has been. maximum: the expectation of the better of the final and the best value. tolerance: the part of it that
    is not worth further training. falling: whether the curve has fallen since its best value.
    """

    rows: Ints
    shape: CurveShape
    final: Forecast
    allowed: Mapping[str, Bools]
    required: Floats
    reached: Bools
    maximum: Floats
    tolerance: Floats
    falling: Bools

    @classmethod
    def of(cls, jobs: Jobs, final: Forecast, settings: LoadControlSettings, *, overloaded: bool) -> "StopCandidates":
        """The managed jobs that may be stopped, have reported enough and are not in their last iteration.

        final: the target quantity at the end. overloaded: whether the cluster is overloaded, so that `downgrade`
        applies.
        """
        allowed = _allowed(jobs, overloaded=overloaded)
        observed = jobs.accuracies.lengths() >= settings.min_observed
        ending = jobs.iteration >= jobs.max_iterations
        may_stop = np.logical_or.reduce(list(allowed.values()))
        rows = np.flatnonzero(jobs.managed & may_stop & observed & ~ending)
        expected = final[rows]
        shape = CurveShape.of(jobs.accuracies, rows)
        least = np.where(jobs.quantity[rows] == "accuracy", settings.minimum_accuracy, np.nan)
        required = np.where(np.isnan(jobs.target[rows]), least, jobs.target[rows])
        reached = shape.best >= required
        maximum = expected.clip(lower=shape.best).mean
        tolerance = settings.epsilon * np.abs(shape.best)
        falling = falls(jobs.accuracies, rows, shape)
        of_rows = {cause: each[rows] for cause, each in allowed.items()}
        return cls(rows, shape, expected, of_rows, required, reached, maximum, tolerance, falling)

    @cached_property
    def p_reach(self) -> Floats:
        """(r,) the probability of reaching the required value."""
        return np.where(self.reached, 1.0, self.final.sf(self.required))

    def causes(self, jobs: Jobs, settings: LoadControlSettings) -> Mapping[str, Bools]:
        """By cause, in the order of `CAUSES`, (r,) whether its rule holds, whatever the jobs' options.

        No job is stopped on a prediction while its validation loss still improves.
        """
        improves = still_improves(jobs.validation_losses, self.rows)
        share = jobs.iteration[self.rows] / jobs.max_iterations[self.rows]
        return {
            "reached": self.reached,
            "misses": stop_rules.misses(self.p_reach, share, self.shape, settings) & ~improves,
            "maximum": stop_rules.at_maximum(self.maximum, self.tolerance, self.falling, self.shape) & ~improves,
        }


def _allowed(jobs: Jobs, *, overloaded: bool) -> Mapping[str, Bools]:
    """By cause, (n,) whether the options of each job allow it. A minimum of the site is a target for who asked to stop
    at one; who asked for the best value is not stopped at it."""
    chosen = {
        option: (jobs.stop == option) | (jobs.downgrade == option) if overloaded else jobs.stop == option
        for option, causes in MAY_STOP.items()
        if causes
    }
    allowed: dict[str, Bools] = {
        cause: np.logical_or.reduce([chosen[option] for option, causes in MAY_STOP.items() if cause in causes])
        for cause in CAUSES
    }
    allowed["reached"] = chosen["target"] | (allowed["reached"] & ~np.isnan(jobs.target))
    # No curve of one of several trials ends the job, except that the first that meets its target may.
    one_trial, ends_at_target = jobs.trials == "", jobs.trials != "all"
    return {cause: each & (ends_at_target if cause == "reached" else one_trial) for cause, each in allowed.items()}


def _stop(jobs: Jobs, row: int, cause: str, facts: dict[str, float | str]) -> Action:
    """A stop with all facts that are known, without those that are NaN; `achieved_at` only where it is an earlier
    iteration."""
    asked = str(jobs.stop[row])
    facts |= {
        "cause": cause,
        "asked": asked,
        "in_force": asked if cause in MAY_STOP.get(asked, frozenset()) else str(jobs.downgrade[row]),
        "iteration": float(jobs.iteration[row]),
        "max_iterations": float(jobs.max_iterations[row]),
    }
    if facts.get("achieved_at") == facts["iteration"]:
        del facts["achieved_at"]
    known = {name: fact for name, fact in facts.items() if isinstance(fact, str) or np.isfinite(fact)}
    if "target" not in known:
        known.pop("target_of", None)
    return Action("stop", jobs.keys[row], Reason(_RULES.get(cause, "optstop"), known))
