"""Forecasts of run times, learning curves, losses and speeds, as distributions. Does no I/O.

A predictor is imported from `predictors.runtime`, `predictors.learning_curve`, `predictors.loss` or `predictors.speed`.
All of them return a `predictors.forecast.Forecast`; `predictors.trials` evaluates them.
"""
