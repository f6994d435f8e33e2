"""Checks that a site has all that slurmplug needs."""
