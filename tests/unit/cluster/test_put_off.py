"""Of jobs that slurmdbd has not recorded one at a time is tried; all others are written to."""

from collections.abc import Sequence

from policies.snapshot import JobKey
from slurmplug.cluster.port import Command, Outcome
from slurmplug.cluster.put_off import PutOffUpdates


class Slurm:
    """Puts off updates of the jobs that are being recorded."""

    def __init__(self, *recording: int) -> None:
        self.recording = set(recording)
        self.tried: list[list[int]] = []

    def __call__(self, commands: Sequence[Command]) -> list[Outcome]:
        self.tried.append([command.job.job_id for command in commands])
        return [Outcome(each.id, "put off" if each.job.job_id in self.recording else "done") for each in commands]


def write(updates: PutOffUpdates, slurm: Slurm, *ids: int) -> dict[int, str]:
    """The status of an update of each of these jobs."""
    commands = [
        Command(f"{at}-{job_id}", "update", JobKey("c", job_id, 0), {"SiteFactor": "5"})
        for at, job_id in enumerate(ids)
    ]
    outcomes = updates.write(commands, slurm)
    assert [outcome.command for outcome in outcomes] == [command.id for command in commands]
    return {job_id: outcome.status for job_id, outcome in zip(ids, outcomes, strict=True)}


def test_of_those_that_were_put_off_one_is_tried_and_new_ones_are_written_to() -> None:
    updates, slurm = PutOffUpdates(), Slurm(2, 3, 4)
    assert write(updates, slurm, 1, 2, 3, 4) == {1: "done", 2: "put off", 3: "put off", 4: "put off"}
    assert write(updates, slurm, 5, 3, 2) == {5: "done", 3: "put off", 2: "put off"}
    assert slurm.tried == [[1, 2, 3, 4], [5, 3]]


def test_once_one_is_recorded_all_are_written_to() -> None:
    updates, slurm = PutOffUpdates(), Slurm(1, 2, 3)
    write(updates, slurm, 1, 2, 3)
    slurm.recording, slurm.tried = set(), []
    assert write(updates, slurm, 2, 3) == {2: "done", 3: "done"}
    assert slurm.tried == [[2], [3]]
    slurm.tried = []
    assert write(updates, slurm, 1, 2, 3) == {1: "done", 2: "done", 3: "done"}
    assert slurm.tried == [[1, 2, 3]]


def test_all_commands_of_the_one_that_is_tried_are_sent() -> None:
    updates, slurm = PutOffUpdates(), Slurm(1)
    write(updates, slurm, 1)
    slurm.recording, slurm.tried = set(), []
    write(updates, slurm, 1, 1)
    assert slurm.tried == [[1, 1]]


def test_a_job_that_vanished_before_it_could_be_changed_is_forgotten() -> None:
    updates, slurm = PutOffUpdates(), Slurm(1, 2, 3)
    write(updates, slurm, 1, 2, 3)
    updates.keep_only([2, 9])
    slurm.tried = []
    write(updates, slurm, 1, 2, 3)
    assert slurm.tried == [[1, 2, 3]], "of those that were put off, job 2 alone is still known"
