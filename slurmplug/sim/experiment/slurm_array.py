"""Calls as the elements of a Slurm array, by submitit, which hands them over as pickled files in a folder.

Partition, account, time limit and the like are set as for any other job: by sbatch's variables, SBATCH_PARTITION,
SBATCH_ACCOUNT, SBATCH_TIMELIMIT. An element that is preempted or loses its node is requeued, and one that has a
`checkpoint` (submitit's) also at its time limit; one that is killed otherwise is submitted again.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError, UncompletedJobError

from slurmplug.errors import SlurmplugError, UsageError

T = TypeVar("T")

LOOK_SECONDS = 5.0
MINUTES = 60
"""the time limit of an element"""
REQUEUES = 100
SUBMISSIONS = 5
"""of an element, at most"""


@dataclass(frozen=True)
class Failed:
    """What an element returns that could not do its work."""

    reason: str


def attempted(call: Callable[[], T]) -> T | Failed:
    """What it returns, or why it cannot."""
    try:
        return call()
    except SlurmplugError as error:
        return Failed(str(error))


def results(
    elements: Sequence[Callable[[], T | Failed]], folder: Path, name: str, say: Callable[[str], Any]
) -> list[T]:
    """What each element returns, in their order; waits for all. Interrupted, it cancels what still runs.

    folder: gets the elements' files and output; the nodes share it.

    Raises:
        UsageError: Slurm is not there or refuses the array, or an element failed, was cancelled or killed too often
    """
    if shutil.which("sbatch") is None:
        raise UsageError("sbatch is not found: run this where jobs can be submitted, or without --on slurm")
    array = _Array(elements, folder.absolute(), name, say)
    missing = list(range(len(elements)))
    for _ in range(SUBMISSIONS):
        if missing:
            missing = array.submitted(missing)
    array.failed += [f"element {at} was killed {SUBMISSIONS} times" for at in missing]
    if array.failed:
        raise UsageError(f"{'; '.join(array.failed)}. The output of the elements is in {folder}")
    return [array.found[at] for at in range(len(elements))]


class _Array(Generic[T]):
    """found: what elements returned, by their place. failed: what is wrong with others."""

    def __init__(
        self, elements: Sequence[Callable[[], T | Failed]], folder: Path, name: str, say: Callable[[str], Any]
    ) -> None:
        self._elements, self._folder, self._name, self._say = elements, folder, name, say
        self.found: dict[int, T] = {}
        self.failed: list[str] = []

    def submitted(self, wanted: Sequence[int]) -> list[int]:
        """Run these elements and wait for them; those that were killed."""
        executor = submitit.SlurmExecutor(self._folder, max_num_timeout=REQUEUES)
        executor.update_parameters(
            job_name=self._name, time=MINUTES, cpus_per_task=1, additional_parameters={"requeue": True}
        )
        try:
            jobs = executor.submit_array([self._elements[at] for at in wanted])
        except (FailedJobError, FailedSubmissionError) as error:
            raise UsageError(f"Slurm refuses the array: {error}") from error
        self._say(f"submitted: {', '.join(job.job_id for job in jobs)}")
        running, killed = dict(zip(jobs, wanted, strict=True)), []
        try:
            while running:
                time.sleep(LOOK_SECONDS)
                submitit.SlurmJob.watcher.update()
                for job in [job for job in running if job.done()]:
                    at = running.pop(job)
                    if self._was_killed(job, at):
                        killed.append(at)
        finally:
            for job in running:
                job.cancel(check=False)
        return killed

    def _was_killed(self, job: Any, at: int) -> bool:
        """Whether an element that no longer runs is to be submitted again; what it did, else, is kept."""
        state = job.watcher.get_state(job.job_id, mode="cache")
        if job.paths.result_pickle.exists():
            result = _result(job)
            if isinstance(result, Failed):
                self.failed.append(f"{job.job_id}: {result.reason}")
            else:
                self.found[at] = result
                self._say(f"{job.job_id} is done")
        elif state.startswith("CANCELLED"):
            self.failed.append(f"{job.job_id} was cancelled")
        else:
            self._say(f"{job.job_id} was killed ({state}), and is submitted again")
            job.cancel(check=False)  # Slurm may requeue it by itself meanwhile
            return True
        return False


def _result(job: Any) -> Any:
    try:
        return job.result()
    except (FailedJobError, UncompletedJobError) as error:
        return Failed(str(error).strip().rpartition("\n")[2])
