"""What Slurm's own programs show the user of this process, and do for that user, by that user's rights."""

import re
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from slurmplug.cluster import user_answers
from slurmplug.cluster.programs import SlurmPrograms, last_words
from slurmplug.cluster.user_answers import Record
from slurmplug.errors import UsageError

IDS_PER_CALL = 2_000
"""job ids in one command line of sacct"""
PATH_LENGTH = 4_096
"""characters of a path that squeue prints"""
Change: TypeAlias = Literal["hold", "release", "cancel"]
_PROGRAMS: Mapping[Change, Sequence[str]] = {
    "hold": ("scontrol", "hold"),
    "release": ("scontrol", "release"),
    "cancel": ("scancel",),
}
_JOB = re.compile(r"\d+(?:_\d+|\+\d+)?", re.ASCII)
_TASKS = re.compile(r"\d+_\[\d[\d,:-]*\]", re.ASCII)
"""the elements of an array that wait together"""


class UserClient(SlurmPrograms):
    """sacct, sprio, squeue, scontrol and scancel, of this cluster or of a named one."""

    cluster = ""
    """its name, where it is not the one of slurm.conf"""

    def records(self, job_ids: Sequence[int], *, steps: bool, duplicates: bool) -> Iterator[Record]:
        """What sacct has of these jobs: with their steps, and with the earlier runs of requeued jobs, or without.

        Raises:
            ReadFailed
        """
        delimiter = secrets.token_hex(8)
        options = ["--noheader", "--parsable2", "--noconvert", "--allusers", f"--delimiter={delimiter}", *self._where()]
        options += ["--format", ",".join(user_answers.FIELDS)]
        options += [] if steps else ["--allocations"]
        options += ["--duplicates"] if duplicates else []
        for start in range(0, len(job_ids), IDS_PER_CALL):
            ids = ",".join(map(str, job_ids[start : start + IDS_PER_CALL]))
            yield from user_answers.records(self._query("sacct", *options, "--jobs", ids), delimiter)

    def priority_terms(self) -> Mapping[int, Mapping[str, float]]:
        """By job id, each weighted factor of the priority of the pending jobs that may start. Raises ReadFailed."""
        text = self._query("sprio", "--noheader", "--format", user_answers.SPRIO_FORMAT, *self._where())
        return user_answers.priority_terms(text)

    def output_file(self, job: str) -> str:
        """The file of a job's output, a job as squeue shows it; empty where Slurm names none. Raises ReadFailed."""
        if not _JOB.fullmatch(job):
            return ""
        path = user_answers.output_file(self._query("scontrol", *self._where(), "show", "job", job))
        if "%" in path:  # newer releases of scontrol show the pattern
            asked = ("--noheader", "--states=all", f"--jobs={job}", f"--Format=STDOUT:{PATH_LENGTH}")
            path = self._query("squeue", *self._where(), "--expand-patterns", *asked).rstrip()
        return path if path.startswith("/") else ""

    def change(self, change: Change, job: str) -> str:
        """Hold, release or cancel a job, written as squeue shows it; what Slurm has against it, empty if nothing.

        Raises:
            ReadFailed: the program cannot be run, or does not answer.
            UsageError: the id is none that Slurm's programs take.
        """
        if not (_JOB.fullmatch(job) or _TASKS.fullmatch(job)):
            raise UsageError(f"{job!r} does not name the jobs one by one: name them to {_PROGRAMS[change][0]} yourself")
        words = (*_PROGRAMS[change], *self._where(), job)
        answer = self._run_to_end(words, subprocess.DEVNULL)
        complaint = last_words(answer.stderr)
        return complaint or (f"{words[0]} exits {answer.returncode}" if answer.returncode else "")

    def _where(self) -> Iterable[str]:
        return (f"--clusters={self.cluster}",) if self.cluster else ()
