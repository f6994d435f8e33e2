"""What jobs are charged for their GPU hours, by their --stop and their --urgency (MLFS, section 3.5, and 3.3.1)."""

from slurmplug.config.schema import Charging, Config, Guardrails
from slurmplug.directives.parser import Directives
from slurmplug.ledger import job_rows
from slurmplug.reports.job_view import Job
from slurmplug.rules.claims import MEAN_URGENCY


def rate(given: Directives, account: str, charging: Charging, limits: Guardrails) -> float:
    """Of one GPU hour. `limits` has the highest urgency that counts: what is asked for beyond it is not charged."""
    base: float = getattr(charging, given.stop_option)
    granted = limits.urgency_of.get(account, limits.urgency)
    return base + charging.urgency * max(0.0, min(given.urgency or 0.0, granted) - MEAN_URGENCY)


def highest_rate(job: Job, config: Config) -> float | None:
    """The highest rate of the directives that were in force since its last start, so that nothing is gained by a change
    before the end; None where the site charges nothing."""
    if not config.charging.charges:
        return None
    since = job.started if job.started is not None else job.seen
    in_force = job_rows.directives_since(dict(job.columns), since)
    return max(rate(given, job.facts.account, config.charging, config.guardrails) for given in in_force)
