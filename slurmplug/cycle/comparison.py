"""When the SiteFactors in Slurm are compared with those that were written. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurmplug.cluster.port import Command, Outcome

PUT_OFF_SECONDS = 15.0
"""Seconds at most until the next comparison once a write was put off: it finds that write undone, so it is repeated."""


@dataclass(frozen=True)
class Comparison:
    """The last comparison of SiteFactors with Slurm's.

    at: when, in seconds since the epoch. booted: `Site.booted` then. doubtful: whether a write of a SiteFactor since
    was refused, or its outcome is not known. put_off: whether one since was put off.
    """

    at: float = float("-inf")
    booted: float = float("nan")
    doubtful: bool = False
    put_off: bool = False

    def due(self, now: float, booted: float, interval: float) -> bool:
        """Whether to compare now: `interval` seconds have passed, slurmctld was started again, or a write is in doubt.

        A clock that was set back makes it due as well.
        """
        interval = min(interval, PUT_OFF_SECONDS) if self.put_off else interval
        return self.doubtful or booted != self.booted or not 0 <= now - self.at < interval

    def after(self, commands: Sequence[Command], outcomes: Sequence[Outcome]) -> "Comparison":
        """The comparison with what these commands leave in doubt, by their outcomes."""
        writes = {command.id for command in commands if "SiteFactor" in command.fields}
        found = {outcome.status for outcome in outcomes if outcome.command in writes}
        return replace(
            self, doubtful=self.doubtful or not found <= {"done", "put off"}, put_off=self.put_off or "put off" in found
        )
