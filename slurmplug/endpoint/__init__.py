"""Reports over the network: the daemon answers users on login nodes, each what Slurm would show to them.

One HTTP request a report, signed by a MUNGE credential that holds the request's hash. Nothing is ever written.
"""
