"""The simulator: an engine that simulates jobs and nodes, and on top of it the same cycle as live."""
