"""Readers of the formats that others write workloads in, one module a format."""
