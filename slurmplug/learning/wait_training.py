"""Trains the model of waits on the jobs of the ledger, each as the queue was when it was submitted."""

from collections.abc import Mapping

import numpy as np

from policies.snapshot import JobKey
from slurmplug.forecasting.starts.wait_model import WaitModel, earlier_forecasts
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports import kept_queue
from slurmplug.reports.waits_by_ledger import WaitsByLedger

TIMES = 16
"""that earlier models are fitted"""


def learnt(ledger: Ledger) -> tuple[WaitModel | None, Mapping[JobKey, float]]:
    """The model, None where too few jobs have started; and when jobs would have started, in seconds since the epoch, by
    models that had learnt only from those that had started before. Raises LedgerError."""
    snapshot = kept_queue.latest(ledger)
    if snapshot is None:
        return None, {}
    keys, waits = WaitsByLedger(ledger, snapshot).learnt_from()
    model = WaitModel.fit(waits)
    if model is None:
        return None, {}
    starts = waits.submit + earlier_forecasts(waits, np.arange(len(keys)), TIMES)
    return model, {key: start for key, start in zip(keys, starts.tolist(), strict=True) if np.isfinite(start)}
