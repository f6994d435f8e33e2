"""Reports of a training with Hugging Face's Trainer: `Trainer(..., callbacks=[SlurmplugCallback()])`."""

from __future__ import annotations

import os
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from slurmplug_report.logged_metrics import quantities
from slurmplug_report.report import checkpoint_requested, report

NOT_MEASURED = ("epoch", "_runtime", "_per_second", "_compilation_time")
"""Endings of what the Trainer adds to the metrics of an evaluation."""


class SlurmplugCallback(TrainerCallback):
    """Reports each evaluation, or each epoch if none is evaluated; stops, and saves, when that is requested.

    Iterations are epochs, of an evaluation within one a fraction. Outside Slurm it does nothing.
    """

    def __init__(self) -> None:
        self._logged: dict[str, Any] = {}
        self._reported = -1.0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        """The training's loss, of which each report has the last."""
        self._logged = {"train_loss": logs["loss"]} if logs and "loss" in logs else self._logged

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Report it."""
        measured = {name: value for name, value in (metrics or {}).items() if not name.endswith(NOT_MEASURED)}
        self._report(state, control, {**self._logged, **measured})

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Report the epoch, if it was not evaluated."""
        if not control.should_evaluate:
            self._report(state, control, self._logged)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Say which epoch the checkpoint holds."""
        if _in_job() and state.is_world_process_zero:
            report(checkpoint=_epoch(state))

    def _report(self, state: Any, control: Any, metrics: dict[str, Any]) -> None:
        if not _in_job() or _epoch(state) == self._reported:
            return
        self._reported = _epoch(state)
        requested = report(iteration=self._reported, **quantities(metrics))
        stop, save = broadcast_object_list([bool(requested), checkpoint_requested()])  # rank 0's, on every rank
        control.should_training_stop = control.should_training_stop or stop
        control.should_save = control.should_save or save


def _epoch(state: Any) -> float:
    """Epochs done: one after the first."""
    return round(float(state.epoch or 0.0), 6)


def _in_job() -> bool:
    return "SLURM_JOB_ID" in os.environ
