"""slurmplug, as a training job sees it: the standard library and nothing else is imported here."""
