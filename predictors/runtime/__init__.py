"""Forecasts the run time of a job at submission: `RuntimePredictor`, its model names and the `Job` that it takes."""

from predictors.runtime.job_table import Job
from predictors.runtime.predictor import RuntimeModel, RuntimePredictor

__all__ = ["Job", "RuntimeModel", "RuntimePredictor"]
