"""What Slurm's own reports, sacct and sprio, show the user of this process, by that user's rights."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slurmplug.cluster import user_answers
from slurmplug.cluster.programs import SlurmPrograms
from slurmplug.cluster.user_answers import Record

IDS_PER_CALL = 2_000
"""job ids in one command line of sacct"""


class UserClient(SlurmPrograms):
    """sacct and sprio, of this cluster or of a named one."""

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

    def _where(self) -> Iterable[str]:
        return (f"--clusters={self.cluster}",) if self.cluster else ()
