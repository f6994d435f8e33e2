"""slurmplug's predictors in other libraries, which import them in a training job."""
