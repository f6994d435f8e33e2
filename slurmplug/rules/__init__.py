"""Limits on claims and plans, and the commands that write scores and placements. Pure."""
