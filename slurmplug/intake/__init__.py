"""Folds readings of the cluster into snapshots."""
