"""A site's own past: the jobs of all users that sacct lists."""

import secrets
from pathlib import Path

from slurmplug.cluster.programs import SlurmPrograms

COLUMNS = (
    "JobID", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "ElapsedRaw", "Timelimit",
    "AllocTRES", "ReqTRES", "NCPUS", "State", "JobName",
)  # fmt: skip
TIMEOUT = 600.0
"""seconds; slurmdbd takes minutes for a busy month"""


class PastClient(SlurmPrograms):
    """sacct, of a site."""

    def __init__(self, conf: Path | None, folder: Path | None) -> None:
        """Start nothing yet. conf, folder: as of `SlurmPrograms`."""
        super().__init__(conf, folder, TIMEOUT)

    def listed(self, since: str) -> str:
        """The runs of all jobs since then, those of requeued jobs each, as `sacct --parsable2` lists them.

        since: as `sacct --starttime` takes it. In a job's name `|` is a `/`, as it separates the columns.

        Raises:
            ReadFailed
        """
        delimiter = secrets.token_hex(8)
        options = ("--allusers", "--allocations", "--duplicates", "--parsable2", f"--delimiter={delimiter}")
        text = self._query("sacct", *options, f"--starttime={since}", f"--format={','.join(COLUMNS)}")
        return text.replace("|", "/").replace(delimiter, "|")
