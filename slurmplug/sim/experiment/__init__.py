"""A simulation from the first job to the last, and what came of it."""
