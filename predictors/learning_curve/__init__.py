"""Forecasts learning curves: import `LearningCurvePredictor`, and `Meta`, what is known of a run at its start.

1. A curve is brought to a common scale, and its beginning becomes thirty numbers: its level, its movement, and where a
   mixture of parametric curves would take it (`features`, `families`).
2. From them is predicted the gain, the share of the distance from the last value to the top that the curve covers by a
   later iteration, as a distribution (`quantiles`).
3. One forest has learnt this from curves drawn from a prior and needs no history (`prior`); another has learnt it from
   the site's finished curves and the metadata of their runs, and half of its trees correct a Gaussian process that
   compares curves by all their numbers at once (`history`, `gaussian_process`, `metadata`).
4. The two distributions are averaged, and that by the history weighs more, the more a classifier takes the curve for
   one of the history (`blending`).
5. How wide the intervals are, and how much the prior weighs for curves of another kind, is measured on finished curves
   that are held out, at random and by kinds, and the width goes on being corrected as runs finish (`predictor`).
"""

from predictors.learning_curve.metadata import Meta
from predictors.learning_curve.predictor import LearningCurvePredictor

__all__ = ["LearningCurvePredictor", "Meta"]
