"""What slurmdbd knows, asked beside the cycles: how jobs ended, and the limits of QOS and associations.

slurmdbd may hang for as long as it likes: a cycle takes what has been answered, and goes on without the rest.
"""

import logging
import time
from collections.abc import Mapping

from slurmplug.cluster.cli_client import ENDINGS_PER_CALL, CliClient
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import Ending
from slurmplug.cluster.round_robin import round_robin
from slurmplug.errors import ReadFailed
from slurmplug.processes.background import BackgroundCall

LIMITS_AGE = 60.0
"""Seconds until the limits of QOS and associations are read again."""
LIMITS_LAST = 120.0
"""Seconds after which limits that were read are not used any more."""

log = logging.getLogger(__name__)


class Accounting:
    """The accounting of a client's cluster."""

    def __init__(self, client: CliClient) -> None:
        self._client = client
        self._endings: BackgroundCall[tuple[Ending, ...]] = BackgroundCall("endings")
        self._turns: dict[int, int] = {}
        self._turn = 0
        self._asked_limits: BackgroundCall[tuple[float, Limits]] = BackgroundCall("limits")
        self._limits: tuple[float, Limits] | None = None

    def endings(self, vanished: Mapping[int, int]) -> tuple[Ending, ...]:
        """How jobs ended that squeue no longer lists, as far as it has been answered.

        The others are asked for in this call or in a later one: users take turns, each with the jobs that were asked
        for longest ago. `vanished`: the jobs, with the uid of each one's user.
        """
        if not self._endings.pending and vanished:
            turn = self._next(vanished)
            self._endings.start(lambda: self._client.endings(turn))
        try:
            found = self._endings.poll() or ()
        except ReadFailed as error:
            log.warning("how %d jobs ended is not known: %s", len(vanished), error)
            return ()
        return tuple(ending for ending in found if ending.job_id in vanished)

    def limits(self) -> Limits:
        """The limits of the cluster, as they were at most LIMITS_LAST ago.

        Raises:
            ReadFailed: they could not be read, or have not been yet.
        """
        if not self._asked_limits.pending and (self._limits is None or self._age() > LIMITS_AGE):
            self._asked_limits.start(lambda: (time.monotonic(), self._client.limits()))
        self._limits = self._asked_limits.poll() or self._limits
        if self._limits is None or self._age() > LIMITS_LAST:
            raise ReadFailed("slurmdbd has not answered yet")
        return self._limits[1]

    def _age(self) -> float:
        return time.monotonic() - (self._limits[0] if self._limits else 0.0)

    def _next(self, vanished: Mapping[int, int]) -> list[int]:
        self._turn += 1
        longest_ago = sorted(vanished, key=lambda job: (self._turns.get(job, 0), job))
        turn = round_robin(longest_ago, vanished.__getitem__)[:ENDINGS_PER_CALL]
        self._turns = {job: at for job, at in self._turns.items() if job in vanished} | dict.fromkeys(turn, self._turn)
        return turn
