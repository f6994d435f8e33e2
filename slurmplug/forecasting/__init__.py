"""The predictors asked about the jobs of a snapshot, live and simulated. Pure."""
