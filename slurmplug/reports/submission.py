"""What is known of a job before it is submitted, in sentences for `slurmplug submit`."""

from collections.abc import Iterator, Mapping

from slurmplug.config.schema import Config
from slurmplug.directives.parser import NAMES, Directives
from slurmplug.reports import not_done, requested
from slurmplug.reports.not_done import NO_REQUEUE


def sentences(given: Directives, modes: Mapping[str, str], config: Config, *, requeues: bool) -> Iterator[str]:
    """Its directives, the kind of job that it is forecast as, and what it asks for and is not done here.

    modes: as `not_done.before_submission` has them. requeues: whether sbatch's options let Slurm requeue it.
    """
    if all(getattr(given, name) is None for name in NAMES):
        yield "It has no directives: it is left to Slurm."
    else:
        yield from requested.given_sentences(given)
        if given.type:
            yield f"Its kind is {given.type}: it is forecast by jobs of this --type."
        else:
            yield "Its kind is its user and its name: it is forecast by jobs of both, as it has no --type."
    vetoes = () if requeues else (NO_REQUEUE,)
    yield from not_done.before_submission(given, modes, not_done.no_sizes(config), vetoes)
