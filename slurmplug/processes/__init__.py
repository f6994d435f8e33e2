"""Processes beside the daemon's: for work that may hang, or that others may make expensive."""
