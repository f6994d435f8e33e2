"""Forecasts learning curves: import `LearningCurvePredictor`, and `Meta`, what is known of a run at its start."""

from predictors.learning_curve.metadata import Meta
from predictors.learning_curve.predictor import LearningCurvePredictor

__all__ = ["LearningCurvePredictor", "Meta"]
