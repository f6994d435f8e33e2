"""Forecasts of the jobs of a snapshot by the predictors, live and simulated. Pure.

`forecaster` makes them all: `run_times`, `curve_fans` and `speeds`. `starts` forecasts the queue from these.
"""
