"""Forecasts run times: import `RuntimePredictor`, `RuntimeModel`, its models' names, and `Job`, its input, from
here."""

from predictors.runtime.job_table import Job
from predictors.runtime.predictor import RuntimeModel, RuntimePredictor

__all__ = ["Job", "RuntimeModel", "RuntimePredictor"]
