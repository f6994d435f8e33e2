"""Forecasts losses: import `LossPredictor`, and `LossFamily`, the names of its methods, from here."""

from predictors.loss.predictor import LossFamily, LossPredictor

__all__ = ["LossFamily", "LossPredictor"]
