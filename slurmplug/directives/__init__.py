"""What a job asks of slurmplug: the grammar of `#PLUG` lines, and their parser. Pure."""
