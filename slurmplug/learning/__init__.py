"""Trains the predictors on the ledger's history, and measures them on it."""
