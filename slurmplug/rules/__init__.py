"""Guardrails, limits on claims, and how scores and placements become commands. Pure."""
