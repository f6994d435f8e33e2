"""Evaluates the predictors and simple baselines on data whose outcome is known; each trial returns rows of a table."""
