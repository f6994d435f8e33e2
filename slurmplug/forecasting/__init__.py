"""Forecasts of the jobs of a snapshot by the predictors, live and simulated. Pure."""
