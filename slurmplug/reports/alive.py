"""Whether the daemon is alive."""

from slurmplug.config.schema import Config
from slurmplug.ledger.queries import Attempt

DEAD_AFTER_INTERVALS = 3
"""The daemon counts as dead after this many intervals without a cycle."""


def alive(last: Attempt | None, running: bool, config: Config, now: float) -> bool:
    """Whether the daemon is alive: it is `running`, and its `last` cycle began a short time ago."""
    return running and last is not None and now - last.started < DEAD_AFTER_INTERVALS * config.interval
