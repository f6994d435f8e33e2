"""The simulated cluster: jobs, nodes, contention and events."""
