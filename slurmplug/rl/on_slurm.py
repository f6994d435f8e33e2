"""Trainings as the elements of a Slurm array. One that is requeued or submitted again goes on from its checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from submitit.core.utils import DelayedSubmission

from slurmplug.rl.training import Training
from slurmplug.sim.experiment import slurm_array
from slurmplug.sim.experiment.slurm_array import Failed


@dataclass(frozen=True)
class Element:
    """What an element does on its node."""

    training: Training

    def __call__(self) -> str | Failed:
        """Train, unless the model is there; the file of the model."""
        return slurm_array.attempted(self._train)

    def checkpoint(self) -> DelayedSubmission:
        """What a requeued element does: the same."""
        return DelayedSubmission(self)

    def _train(self) -> str:
        if not self.training.finished():
            self.training.run(print)
        return str(self.training.out)


def run(trainings: Sequence[Training], say: Callable[[str], Any]) -> None:
    """Train those whose models are not there yet, and wait for them; interrupted, cancel what still runs.

    Raises:
        UsageError: Slurm is not there or refuses the array, or a model was not trained; those that were stay
    """
    missing = [replace(each, out=each.out.absolute()) for each in trainings if not each.finished()]
    if missing:
        folder = missing[0].out.with_name("slurm")
        slurm_array.results([Element(each) for each in missing], folder, f"train-{missing[0].policy}", say)
