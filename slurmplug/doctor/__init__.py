"""Checks that an installation has all that it needs."""
