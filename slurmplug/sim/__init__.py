"""The simulator: an engine that plays the jobs, and the same cycle as live over it."""
