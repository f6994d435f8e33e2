"""What a job may be stopped for: one table, and the rules that it names.

MLFS (Wang, Liu, Shen, CoNEXT 2020) section 3.5, with the early stopping of Domhan, Springenberg, Hutter: Speeding Up
Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning Curves, IJCAI 2015.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from scipy.special import ndtr, ndtri

from policies.mlfs.curve_shape import CurveShape
from policies.mlfs.load_control import LoadControlSettings
from predictors.arrays import Bools, Floats

CAUSES = ("reached", "diverged", "misses", "maximum")
"""Why a job is stopped: its target is met; its training diverged; it will miss its target; no better value is likely.
Where several hold, the first is told."""
MAY_STOP: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "iterations": frozenset(),
        "target": frozenset({"reached"}),
        "optstop": frozenset({"reached", "diverged", "misses", "maximum"}),
    }
)
"""The causes by which a job may be stopped, by the option of its `--stop`; under overload also those of the option of
its `--allow-downgrade`."""
UNFORESEEN = 0.005
"""The share of curves of unseen kinds that end above the whole forecast made from a quarter or half of them."""


def misses(p_reach: Floats, share: Floats, shape: CurveShape, settings: LoadControlSettings) -> Bools:
    """(r,) whether a job will, with confidence, miss its target.

    p_reach (r,): the probability that the final value meets the target. share (r,): of the iterations that are done.
    No job misses its target while its last point is its best by more than the noise.
    """
    return np.asarray((p_reach + UNFORESEEN < _allowed_error(share, settings)) & (shape.gain <= shape.noise))


def at_maximum(maximum: Floats, tolerance: Floats, falling: Bools, shape: CurveShape) -> Bools:
    """(r,) whether no better value is likely: the curve no longer rises, and its best value is within the tolerance of
    the predicted maximum, or it has been `falling` since; each (r,)."""
    no_better = (shape.best >= maximum - tolerance) | falling
    return np.asarray(no_better & (shape.gain <= np.maximum(shape.noise, tolerance)))


def _allowed_error(share: Floats, settings: LoadControlSettings) -> Floats:
    """(r,) the probability of a wrong stop that is allowed once this share of the iterations is done.

    The paper allows all of it after each report. A job is evaluated after every report, so `spend_error` spreads it
    over the iterations by O'Brien and Fleming's bound as a spending function (Lan and DeMets 1983, alpha_1): little at
    first, all at the end.
    """
    error = 1 - settings.confidence
    if not settings.spend_error:
        return np.full(np.shape(share), error)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(2 * ndtr(ndtri(error / 2) / np.sqrt(share)))
