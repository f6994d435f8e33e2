"""Slurm, by its command line or by pyslurm."""
