"""Reports of a training with Lightning: its Trainer finds them where slurmplug-report is installed.

The checkpoints that slurmplug requests are saved in the Trainer's `default_root_dir`. To go on from one after the job
was moved, pass `trainer.fit(..., ckpt_path=resume_path())`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:  # its package has two names
    from pytorch_lightning.callbacks import Callback
else:
    from lightning.pytorch.callbacks import Callback

from slurmplug_report.logged_metrics import quantities
from slurmplug_report.report import checkpoint_requested, report


class SlurmplugCallback(Callback):
    """Reports after each epoch; stops, and saves, when that is requested. Outside Slurm it does nothing."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """After the validation, if there is one in each epoch. What rank 0 is told, all ranks do."""
        if not in_job():
            return
        epoch = trainer.current_epoch
        requested = report(iteration=epoch, **quantities(trainer.callback_metrics))
        stop, save = trainer.strategy.broadcast((bool(requested), checkpoint_requested()), src=0)
        if stop:
            trainer.should_stop = True
        if save:
            trainer.save_checkpoint(_path(trainer.default_root_dir))
            report(checkpoint=epoch)


def callbacks() -> list[Callback]:
    """For Lightning's entry point `lightning.pytorch.callbacks_factory`."""
    return [SlurmplugCallback()]


def resume_path(root: str = ".", saved: str | None = None) -> str | None:
    """The newest checkpoint of this job, which was requeued: to go on from there; None if there is none.

    root: the Trainer's `default_root_dir`, where it saves when that is requested. saved: a folder in which this job
    alone saves others, as the `dirpath` of a ModelCheckpoint; without it these do not count.
    """
    if not in_job():
        return None
    others = Path(saved).rglob("*.ckpt") if saved is not None else ()
    found = [path for path in (_path(root), *others) if path.exists()]
    return str(max(found, key=lambda path: path.stat().st_mtime_ns)) if found else None


def in_job() -> bool:
    """Whether this process belongs to a job of Slurm."""
    return "SLURM_JOB_ID" in os.environ


def _path(root: str) -> Path:
    return Path(root) / f"slurmplug-{os.environ['SLURM_JOB_ID']}.ckpt"
