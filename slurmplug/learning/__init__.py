"""Trains the predictors on the ledger's history, and evaluates them on it and on files."""
