"""Directives, the `#PLUG` lines of a batch script: their grammar and their parser. Pure."""
