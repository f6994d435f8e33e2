"""Forecasts the final value of a rising learning curve: `LearningCurvePredictor`, and `Meta`, what it takes of a run."""

from predictors.learning_curve.metadata import Meta
from predictors.learning_curve.predictor import LearningCurvePredictor

__all__ = ["LearningCurvePredictor", "Meta"]
