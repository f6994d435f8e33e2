"""What jobs are charged for their GPU hours, by their --stop and their --urgency (MLFS, section 3.5, and 3.3.1)."""

from slurmplug.config.schema import Charging, Config, Guardrails
from slurmplug.directives.parser import Directives
from slurmplug.ledger import job_rows
from slurmplug.reports.job_view import Job
from slurmplug.rules.claims import MEAN_URGENCY


def rate(given: Directives, account: str, charging: Charging, limits: Guardrails) -> float:
    """The charge of one GPU hour under these directives.

    limits: has the highest urgency that counts; what is asked for beyond it is not charged.
    """
    base: float = getattr(charging, given.stop_option)
    return base + charging.urgency * max(0.0, (_granted(given, account, limits) or 0.0) - MEAN_URGENCY)


def highest_rate(job: Job, config: Config) -> float | None:
    """The highest rate of the directives that were in force since its last start, so that nothing is gained by a change
    before the end; None where the site charges nothing."""
    if not config.charging.charges:
        return None
    return max(rate(given, job.facts.account, config.charging, config.guardrails) for given in _in_force(job))


def highest_urgency(job: Job, config: Config) -> float | None:
    """The highest urgency that it asked for since its last start, of what its account is granted; None for none."""
    asked = [_granted(given, job.facts.account, config.guardrails) for given in _in_force(job)]
    return max((each for each in asked if each is not None), default=None)


def _in_force(job: Job) -> list[Directives]:
    """Its directives since its last start."""
    return job_rows.directives_since(dict(job.columns), job.started if job.started is not None else job.seen)


def _granted(given: Directives, account: str, limits: Guardrails) -> float | None:
    """The urgency that counts of what is asked for; None where none is."""
    most: float = limits.urgency_of.get(account, limits.urgency)
    return None if given.urgency is None else min(given.urgency, most)
