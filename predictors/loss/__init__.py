"""Forecasts a loss some iterations ahead: `LossPredictor`, and `LossFamily`, the names of its methods."""

from predictors.loss.predictor import LossFamily, LossPredictor

__all__ = ["LossFamily", "LossPredictor"]
