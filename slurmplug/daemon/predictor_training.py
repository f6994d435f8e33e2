"""Trains the predictors in a process of its own: the memory that it takes is given back with it, and cycles go on.

It only reads the ledger, and has it open for no longer than that: the daemon alone writes, and can tell when the files
beside the ledger are not those that are open.
"""

import logging
import os
from contextlib import closing
from pathlib import Path

from predictors.runtime import RuntimeModel
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.forecasting.starts.start_outcomes import STARTS
from slurmplug.forecasting.starts.wait_model import WAITS
from slurmplug.learning import start_trial, training, wait_training
from slurmplug.ledger.ledger import Ledger
from slurmplug.processes.child import Channel
from slurmplug.processes.one_shot import OneShotProcess

NICENESS = 10
"""of the process, beside the daemon's"""

log = logging.getLogger(__name__)


class PredictorTraining:
    """One training at a time, of which the ledger keeps what was learnt."""

    def __init__(self, ledger: Ledger, path: Path) -> None:
        """ledger: what is learnt is saved there. path: of the same."""
        self._ledger, self._path = ledger, path
        self._child: OneShotProcess | None = None
        self._begun = 0.0

    @property
    def running(self) -> bool:
        """Whether one was begun that `has_ended` has not told of."""
        return self._child is not None

    def begin(self, model: RuntimeModel, now: float, seen: SeenSpeeds) -> None:
        """Begin one, as `training.train`. Raises OSError."""
        self._child, self._begun = OneShotProcess("training", train, self._path, model, seen), now

    def has_ended(self) -> bool:
        """Whether the one that was begun has ended since the last call, with what it learnt in the ledger.

        Raises:
            LedgerError: it could not be saved, which the next call tries again
        """
        if self._child is None:
            return False
        try:
            learnt = self._child.result()
        except ConnectionError:
            log.error("training failed; the earlier predictors stay in use")
            self.close()
            return False
        if learnt is None:
            return False
        training.save(self._ledger, learnt, self._begun)
        self.close()
        return True

    def close(self) -> None:
        """End it, without waiting for it."""
        if self._child is not None:
            self._child.kill()
            self._child = None


def train(channel: Channel, path: Path, model: RuntimeModel, seen: SeenSpeeds) -> None:
    """The process: trains, and sends what it learnt."""
    os.nice(NICENESS)
    with closing(Ledger(path, readonly=True)) as ledger:
        known, (waits, learnt_starts) = training.history(ledger, seen), wait_training.learnt(ledger)
        starts = start_trial.start_outcomes(ledger, learnt_starts)
    learnt = [*training.states(training.fitted(known, model)), training.State(STARTS, starts.version, starts.state())]
    if waits is not None:
        learnt.append(training.State(WAITS, waits.version, waits.state()))
    channel.send(tuple(learnt))
