"""The reports as web pages, for a browser: read only, each asker what Slurm would show.

A process of its own, `slurmplug web`, on loopback; a reverse proxy says who asks.
"""
