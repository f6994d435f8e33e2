"""Reports over the network: the daemon answers users on login nodes, with what Slurm would show to each of them.

One HTTP request per report, authenticated by a MUNGE credential that contains the request's hash. Nothing can be
changed but the directives of jobs.
"""
