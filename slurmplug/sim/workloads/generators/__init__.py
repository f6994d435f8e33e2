"""Workloads made after the settings of the papers, one module a paper."""
