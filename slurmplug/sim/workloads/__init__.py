"""Workloads: generated, imported and read from CSV."""
