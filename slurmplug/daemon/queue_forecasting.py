"""Forecasts when the jobs of the queue start and end, in a process of its own: it takes seconds, and cycles go on.

It only reads the ledger, as a training of the predictors does: the daemon keeps what it found.
"""

import logging
import math
import os
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path

from policies.snapshot import JobKey
from slurmplug.cluster.limits import Limits
from slurmplug.errors import ReadFailed, advice
from slurmplug.forecasting.starts.queue_forecast import QueueForecast, queue_forecast
from slurmplug.ledger import kept_limits, queue_forecasts
from slurmplug.ledger.budgets import INPUTS_EVERY, INPUTS_OF_CHANGES_EVERY
from slurmplug.ledger.ledger import Ledger
from slurmplug.processes.child import Channel
from slurmplug.processes.one_shot import OneShotProcess
from slurmplug.reports import kept_queue

SHARE = 0.05
"""of a processor, that forecasts take at most where they are made before INPUTS_EVERY seconds have passed"""
LIMITS_WITHIN = 60.0
"""seconds for which a forecast waits for the limits"""
NICENESS = 10
"""of the process, beside the daemon's"""

log = logging.getLogger(__name__)


class QueueForecasting:
    """One forecast at a time: of the queue that the ledger kept last, and of one at least `INPUTS_EVERY` seconds later
    the next; where a job waits that came since, as soon as its queue is kept and forecasts do not take too long."""

    def __init__(self, ledger: Ledger, path: Path, limits: Callable[[], Limits]) -> None:
        """ledger: forecasts are kept there. path: of the same. limits: as `ClusterPort.limits`."""
        self._ledger, self._path, self._limits = ledger, path, limits
        self._asked_at: float | None = None
        """of the monotonic clock, for the limits of the next forecast"""
        self._child: OneShotProcess | None = None
        self._of = -math.inf
        """when the queue was kept that was forecast last"""
        self._known: AbstractSet[JobKey] = frozenset()
        """the jobs of that queue"""
        self._seconds = 0.0
        """of a processor, that the last forecast took"""

    def after_cycle(self) -> None:
        """Keep the forecast that was begun, once it is there; and begin one when it is due.

        Raises:
            LedgerError: it could not be kept, which the next call tries again
        """
        if self._child is not None:
            self._keep(self._child)
        if self._child is None and self._is_due() and self._has_limits():
            self._of, self._known = self._ledger.kept.at, frozenset(self._ledger.kept.jobs)
            try:
                self._child = OneShotProcess("queue forecast", forecast, self._path)
            except OSError as error:
                log.error("the queue is not forecast now: %s%s", error.strerror, advice(error))

    def _is_due(self) -> bool:
        queue = self._ledger.kept
        since = queue.at - self._of
        if since >= INPUTS_EVERY or since < 0:  # the clock was set back
            return True
        soonest = max(INPUTS_OF_CHANGES_EVERY, self._seconds / SHARE)
        return since >= soonest and not self._known >= queue.waiting

    def _has_limits(self) -> bool:
        """Whether the limits of QOS and associations were read and kept, or have been waited for long enough.

        Then those that were kept last hold, as they do for slurmctld while slurmdbd does not answer.
        """
        try:
            kept_limits.keep(self._ledger, self._limits(), self._ledger.kept.at)
        except ReadFailed as error:
            self._asked_at = self._asked_at or time.monotonic()
            if time.monotonic() - self._asked_at < LIMITS_WITHIN:
                return False
            log.warning("the queue is forecast with limits that were read before, if any: %s", error)
        self._asked_at = None
        return True

    def close(self) -> None:
        """End the one that was begun, without waiting for it."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _keep(self, child: OneShotProcess) -> None:
        try:
            made = child.result()
        except ConnectionError:
            log.error("the forecast of the queue failed; the next one is made in %g s", INPUTS_EVERY)
            self.close()
            return
        if made is None:
            return
        forecasts, seconds = made
        for each in forecasts:
            queue_forecasts.keep(self._ledger, each)
        self._seconds = seconds
        self.close()


def forecast(channel: Channel, path: Path) -> None:
    """The process: sends the forecast of the queue that was kept last, in a list that is empty where none is kept, and
    how many seconds of a processor that took."""
    os.nice(NICENESS)
    with closing(Ledger(path, readonly=True)) as ledger:
        made = of_last_queue(ledger)
    channel.send(([] if made is None else [made], time.process_time()))


def of_last_queue(ledger: Ledger) -> QueueForecast | None:
    """The forecast of the queue that was kept last; None where none is. Raises LedgerError."""
    snapshot = kept_queue.latest(ledger)
    if snapshot is None:
        return None
    forecasts = kept_queue.forecaster(ledger).forecast(snapshot, frozenset({"total", "remaining"}))
    return queue_forecast(snapshot, forecasts, kept_queue.outcomes(ledger), limits=kept_queue.limits(ledger))
