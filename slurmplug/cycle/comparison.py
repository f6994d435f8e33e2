"""When the SiteFactors in Slurm are compared with those that were written. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurmplug.cluster.port import Command, Outcome


@dataclass(frozen=True)
class Comparison:
    """The last comparison of SiteFactors with Slurm's.

    at: when, in seconds since the epoch. booted: `Site.booted` then. doubtful: whether a write of a SiteFactor since
    was not carried out, or its outcome is not known.
    """

    at: float = float("-inf")
    booted: float = float("nan")
    doubtful: bool = False

    def due(self, now: float, booted: float, interval: float) -> bool:
        """Whether to compare now: `interval` seconds have passed, slurmctld was started again, or a write is in doubt.

        A clock that was set back makes it due as well.
        """
        return self.doubtful or booted != self.booted or not 0 <= now - self.at < interval

    def after(self, commands: Sequence[Command], outcomes: Sequence[Outcome]) -> "Comparison":
        """The same one, after these commands."""
        writes = {command.id for command in commands if "SiteFactor" in command.fields}
        failed = any(outcome.command in writes and outcome.status != "done" for outcome in outcomes)
        return replace(self, doubtful=True) if failed else self
