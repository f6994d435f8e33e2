"""Snapshots and forecasts in, plans out: one folder or module a paper. Pure."""
