"""Updates that Slurm puts off: before 24.11 it changes no job that slurmdbd is just recording, and takes 5 s to say so.

It is told of several jobs at once, so where slurmdbd hangs, those jobs stay so together; jobs that come later can be
changed (`tests/live/test_long_running.py`).
"""

import logging
from collections.abc import Callable, Collection, Sequence

from policies.snapshot import JobKey
from slurmplug.cluster.port import Command, Outcome

log = logging.getLogger(__name__)


class PutOffUpdates:
    """Of the jobs whose last update was put off, one is tried, and the others only once that one can be changed."""

    def __init__(self) -> None:
        self._jobs: set[JobKey] = set()

    def keep_only(self, listed: Collection[int]) -> None:
        """Forget the jobs that have vanished from Slurm. `listed`: the job ids that the queue shows."""
        if self._jobs:
            present = frozenset(listed)
            self._jobs = {job for job in self._jobs if job.job_id in present}

    def write(
        self, commands: Sequence[Command], send: Callable[[Sequence[Command]], Sequence[Outcome]]
    ) -> list[Outcome]:
        """Send the commands; returns an outcome for each."""
        again = [command for command in commands if command.job in self._jobs]
        rest = {command.id for command in again if command.job != again[0].job}
        outcomes = {each.command: each for each in send([each for each in commands if each.id not in rest])}
        if rest:
            others = [command for command in commands if command.id in rest]
            if outcomes[again[0].id].status == "put off":
                why = f"not sent: slurmdbd has not recorded job {again[0].job.job_id} yet"
                outcomes |= {each.id: Outcome(each.id, "put off", why) for each in others}
            else:
                outcomes |= {each.command: each for each in send(others)}
        put_off = {command.job for command in commands if outcomes[command.id].status == "put off"}
        self._jobs = (self._jobs - {command.job for command in commands}) | put_off
        if put_off:
            log.warning(
                "Slurm put off the updates of %d jobs that slurmdbd has not recorded yet; they are tried again. "
                "If this lasts, look whether slurmdbd answers: sacctmgr show cluster",
                len(put_off),
            )
        return [outcomes[command.id] for command in commands]
