"""Metrics for Prometheus, computed from the ledger in a process beside the daemon's."""
