"""The full-screen view of the queue that `slurmplug top` shows."""
