"""A simulation from the first job to the last, and its results."""
