"""The accounting of past jobs of all users, by sacct(1): the workload of `slurmplug replay --since`."""

import secrets
from pathlib import Path

from slurmplug.cluster.programs import SlurmPrograms

COLUMNS = (
    "JobID", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "ElapsedRaw", "Timelimit",
    "AllocTRES", "ReqTRES", "NCPUS", "State", "JobName",
)  # fmt: skip
TIMEOUT = 600.0
"""seconds; slurmdbd takes minutes for a busy month"""


class JobHistoryClient(SlurmPrograms):
    """Reads past jobs by sacct."""

    def __init__(self, conf: Path | None, folder: Path | None) -> None:
        """Start nothing yet. conf, folder: as of `SlurmPrograms`."""
        super().__init__(conf, folder, TIMEOUT)

    def runs(self, since: str) -> str:
        """The runs of all jobs since then in the format of `sacct --parsable2`; each run of a requeued job is a line.

        In names of jobs, `|`, which separates the columns, is replaced by `/`, and line breaks by spaces.

        since: as for `sacct --starttime`.

        Raises:
            ReadFailed: sacct cannot be run, fails, or takes longer than `TIMEOUT`.
        """
        delimiter = secrets.token_hex(8)
        options = ("--allusers", "--allocations", "--duplicates", "--parsable2", f"--delimiter={delimiter}")
        text = self._query("sacct", *options, f"--starttime={since}", f"--format={','.join(COLUMNS)}")
        records: list[str] = []
        for line in text.replace("\r", " ").split("\n"):
            if delimiter in line:
                records.append(line)
            elif records:  # the name of the last job goes on
                records[-1] += f" {line}"
        return "".join(f"{each.rstrip()}\n" for each in records).replace("|", "/").replace(delimiter, "|")
