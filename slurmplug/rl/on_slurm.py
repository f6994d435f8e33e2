"""Trainings as the elements of a Slurm array, by submitit.

An element that Slurm ends (its time limit, preemption, a failing node) is requeued, and one that is killed otherwise is
submitted again; both go on from their checkpoints. Partition, account and the like are set as for any other job:
by sbatch's variables, SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission, FailedJobError, FailedSubmissionError

from slurmplug.errors import SlurmplugError, UsageError
from slurmplug.rl.training import Training

LOOK_SECONDS = 5.0
MINUTES = 60
"""the time limit, after which an element is requeued and goes on"""
REQUEUES = 100
SUBMISSIONS = 5
"""of an element, at most"""


@dataclass(frozen=True)
class Element:
    """What an element does on its node."""

    training: Training

    def __call__(self) -> str:
        """Train; what is wrong, empty where the model is there."""
        try:
            self.training.run(print)
        except SlurmplugError as error:
            return str(error)
        return ""

    def checkpoint(self) -> DelayedSubmission:
        """What a requeued element does: the same."""
        return DelayedSubmission(self)


def run(trainings: Sequence[Training], say: Callable[[str], Any]) -> None:
    """Train those whose models are not there yet, and wait for them; interrupted, cancel what still runs.

    Raises:
        UsageError: Slurm is not there or refuses the array, or a model was not trained
    """
    if shutil.which("sbatch") is None:
        raise UsageError("sbatch is not found: train where jobs can be submitted, or without --on slurm")
    missing = [replace(each, out=each.out.absolute()) for each in trainings if not each.finished()]
    failed: list[str] = []
    for _ in range(SUBMISSIONS):
        if missing:
            missing = _submitted(missing, say, failed)
    failed += [f"{each.out} was killed {SUBMISSIONS} times" for each in missing]
    if failed:
        raise UsageError(f"{'; '.join(failed)}. The same command goes on with the rest")


def _submitted(trainings: Sequence[Training], say: Callable[[str], Any], failed: list[str]) -> list[Training]:
    """Run an array, whose output is in the folder "slurm" beside the models; those that were killed. `failed` gets what
    is wrong with others."""
    executor = submitit.SlurmExecutor(trainings[0].out.with_name("slurm"), max_num_timeout=REQUEUES)
    executor.update_parameters(
        job_name=f"train-{trainings[0].policy}",
        time=MINUTES,
        cpus_per_task=1,
        additional_parameters={"requeue": True},
    )
    try:
        jobs = executor.submit_array([Element(each) for each in trainings])
    except (FailedJobError, FailedSubmissionError) as error:
        raise UsageError(f"Slurm refuses the array: {error}") from error
    say(f"submitted: {', '.join(job.job_id for job in jobs)}")
    running, killed = dict(zip(jobs, trainings, strict=True)), []
    try:
        while running:
            time.sleep(LOOK_SECONDS)
            submitit.SlurmJob.watcher.update()
            for job in [job for job in running if job.done()]:
                training = running.pop(job)
                state = job.watcher.get_state(job.job_id, mode="cache")
                if training.finished():
                    say(f"{training.out}: trained by {job.job_id}")
                elif job.paths.result_pickle.exists():
                    failed.append(f"{job.job_id}: {job.result()}")
                elif state.startswith("CANCELLED"):
                    failed.append(f"{job.job_id} was cancelled")
                else:
                    say(f"{job.job_id} was killed ({state}), and is submitted again")
                    job.cancel(check=False)  # Slurm may requeue it by itself meanwhile
                    killed.append(training)
    finally:
        for job in running:
            job.cancel(check=False)
    return killed
