"""What a job that was not submitted yet would request, and its snapshot."""

from dataclasses import dataclass, replace

import numpy as np

from policies.snapshot import JobKey, Snapshot
from slurmplug.cluster.hostlist import expand
from slurmplug.directives.parser import Directives, parse
from slurmplug.errors import UsageError
from slurmplug.intake import columns
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import JobRecord

NUMBER = 2**31 - 1
"""The id of a job that has none yet, which no job of Slurm has."""


@dataclass(frozen=True)
class JobRequest:
    """A job as its user would submit it. Amounts are of the whole job, or of each element of an array.

    nodes: a host list of those on which it may run. memory: MiB. time_limit: seconds, None for no limit. begin:
    when it may start at the earliest, in seconds since the epoch. script: the `#PLUG` lines of its batch script. parts:
    into how many equal parts it may be split, each on one node, and if they are `apart` no two on the same; 0 where
    that is not known.
    """

    user: str
    nodes: str
    partition: str = ""
    account: str = ""
    qos: str = ""
    name: str = ""
    gpu_type: str = ""
    gpus: int = 0
    cpus: int = 1
    memory: float = 0.0
    time_limit: float | None = None
    begin: float | None = None
    script: tuple[str, ...] = ()
    comment: str = ""
    parts: int = 0
    apart: bool = False

    def directives(self, now: float) -> Directives:
        """Its directives, if it were submitted now."""
        return parse("\n".join(("#!/bin/sh", *self.script)), self.comment, submitted=now)

    def snapshot(self, cluster: Snapshot, gpus: int | None = None) -> Snapshot:
        """It alone in the queue of that cluster, with so many GPUs, and CPUs and memory in proportion.

        Raises:
            UsageError: none of its nodes is in the snapshot
        """
        facts = self._facts(cluster.now, self.gpus if gpus is None else gpus)
        record = JobRecord(JobKey("", NUMBER, int(cluster.now)), facts, self.directives(cluster.now))
        record.requested = facts.resources
        unknown, none = np.full(1, np.nan), np.zeros(1, dtype=np.int64)
        jobs, _ = columns.jobs_of([record], unknown, unknown, none, cluster.now)
        return replace(
            cluster,
            jobs=jobs,
            fits=self._fits(cluster)[None],
            runs_on=np.zeros((0, 3), dtype=np.int64),
            type_of_class=np.zeros(0, dtype=np.int64),
        )

    def _fits(self, cluster: Snapshot) -> np.ndarray:
        try:
            named = set(expand(self.nodes))
        except ValueError as error:
            raise UsageError(f"Invalid node list: {error}") from error
        found = np.array([name in named for name in cluster.nodes.names], dtype=np.bool_)
        if not found.any():
            raise UsageError(
                "none of the nodes on which this job may run was in the last cycle: does its partition have nodes with "
                "these features and GPUs (sinfo), and does the daemon manage this cluster?"
            )
        return found

    def _facts(self, now: float, gpus: int) -> JobFacts:
        share = gpus / self.gpus if self.gpus else 1.0
        return JobFacts(
            job_id=NUMBER, array_id=0, array_task=-1, elements=1, het_id=0, uid=0,
            user=self.user, account=self.account, qos=self.qos, partition=self.partition, state="PENDING",
            reason="None", name=self.name, comment=self.comment, dependency="", features="", reservation="",
            node_list="", batch=True, restarts=0, submit=now, eligible=now, start=None, end=None,
            time_limit=self.time_limit, nodes=1, cpus=round(self.cpus * share), memory=self.memory * share,
            gpus=gpus, gpu_type=self.gpu_type, exit_code=0, gpu_type_held="", shards=0,
        )  # fmt: skip
