"""A Slurm whose queue is made up, and whose answers take next to no time. What is written shows in the next ones."""

import time
from collections.abc import Mapping, Sequence

from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.parse import JOB_FIELDS
from slurmplug.cluster.parse.table import duration
from slurmplug.cluster.port import Command, Outcome
from slurmplug.rules.site_factor import LEAST_PRIORITY
from tests.bench.test_bench_read import SEPARATORS, sinfo, squeue

SCRIPT = "#!/bin/sh\n#PLUG --max-iterations=90 --type=t$((i % 20)) --urgency=$((i % 10))\nsleep 3600"
CONFIG = """
BOOT_TIME = 1767600000
ClusterName = made-up
SLURM_VERSION = 22.05.8
PriorityType = priority/multifactor
PriorityWeightAge = 1000000
"""
_JOB, _STATE, _PRIORITY, _START, _USED = map(
    JOB_FIELDS.index, ("JobID", "State", "PriorityLong", "StartTime", "TimeUsed")
)
_END = f"{SEPARATORS.record}\n"


class MadeUpClient(CliClient):
    """A client whose answers are made up, of so many jobs, four fifths of which wait for nodes that are full.

    As Slurm does, it adds to the priority of a pending job the SiteFactor that was written, and sprio shows that; and
    jobs that run have used more time in each answer.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__(None, None, 20.0)
        self._nodes = sinfo(1_000, GresUsed="gpu:a100:8")
        self._jobs: dict[int, tuple[str, str, str]] = {}
        """what squeue lists of each: before what changes, that, and after it: its priority, or the time it has used"""
        self._pending: dict[int, tuple[float, int]] = {}
        """the priority of each that waits, without its SiteFactor, and that"""
        self._began: dict[int, int] = {}
        """when each began that runs"""
        self._marked: tuple[str, dict[int, str]] = ("", {})
        """the fields that squeue was asked for, and its records"""
        self.add(squeue(jobs))

    def add(self, records: str) -> None:
        """The jobs that squeue lists so."""
        for record in records.split(_END)[:-1]:
            told = record.split(SEPARATORS.field)
            job_id, changes = int(told[_JOB]), _PRIORITY
            if told[_STATE] == "PENDING":
                self._pending[job_id] = (float(told[_PRIORITY]), 0)
            else:
                changes = _USED
                self._began[job_id] = int(time.time() - duration(told[_USED]))
                told[_START] = str(self._began[job_id])
            before, after = (
                SEPARATORS.field.join(part) for part in ([*told[:changes], ""], ["", *told[changes + 1 :]])
            )
            self._jobs[job_id] = (before, told[changes], after)

    def set_site_factors(self, site_factors: Mapping[int, int]) -> None:
        """Those of pending jobs, by job id; those of others stay, as Slurm does not change them either."""
        for job_id, value in site_factors.items():
            if job_id in self._pending:
                own = self._pending[job_id][0]
                self._pending[job_id] = (own, value)
                before, _, after = self._jobs[job_id]
                self._jobs[job_id] = (before, f"{max(own + value, LEAST_PRIORITY):.0f}", after)
                self._marked[1].pop(job_id, None)

    def write(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        factors = {each.job.job_id: each.fields["SiteFactor"] for each in commands if "SiteFactor" in each.fields}
        self.set_site_factors({job_id: int(value) for job_id, value in factors.items()})
        return [Outcome(command.id, "done") for command in commands]

    def script(self, job_id: int) -> bytes:
        return script(job_id)

    def _config(self) -> str:
        return CONFIG

    def _query(self, *argv: str, **env: str) -> str:
        if argv[0] == "sprio":
            return "".join(f"{job_id} {factor} 0.5\n" for job_id, (_, factor) in self._pending.items())
        if argv[0] not in ("squeue", "sinfo"):
            return "No reservations in the system\n"
        fields = env.get("SQUEUE_FORMAT2", argv[-1])
        field, record = fields.partition(":")[2].partition(",")[0], fields.rpartition(":")[2]
        if argv[0] == "sinfo":
            return self._nodes.replace(SEPARATORS.field, field).replace(SEPARATORS.record, record)
        for job_id, began in self._began.items():
            before, _, after = self._jobs[job_id]
            minutes, seconds = divmod(int(time.time()) - began, 60)
            self._jobs[job_id] = (
                before,
                f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}",
                after,
            )
            self._marked[1].pop(job_id, None)
        if self._marked[0] != fields:
            self._marked = (fields, {})
        marked = self._marked[1]
        for job_id in self._jobs.keys() - marked.keys():
            marked[job_id] = f"{''.join(self._jobs[job_id]).replace(SEPARATORS.field, field)}{record}\n"
        return "".join(marked[job_id] for job_id in self._jobs)


def script(job_id: int) -> bytes:
    """A script like those that are submitted."""
    return SCRIPT.replace("$((i % 20))", str(job_id % 20)).replace("$((i % 10))", str(job_id % 10)).encode()
