"""The service: cycles, takeover between controllers, and reset, which undoes what slurmplug set in Slurm."""
