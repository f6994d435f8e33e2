"""Calls the predictors for the jobs of a snapshot, live and simulated. Pure."""
