"""A workload as a job log, for `slurmplug evaluate runtime`."""

import math

import numpy as np

from slurmplug.forecasting.run_times import known_at_submit
from slurmplug.learning.dataset_files import JobLog
from slurmplug.sim.workloads.directives import run_time_alone
from slurmplug.sim.workloads.load import is_workload, load


def job_log(name_or_path: str) -> JobLog | None:
    """The jobs of a workload as a log that run times can be learnt from; None for other files.

    A workload says when a job was submitted and how long it ran, not how long it waited, so each counts as ended that
    much earlier.

    Raises:
        WorkloadError: as `load`
    """
    if not is_workload(name_or_path):
        return None
    workload = load(name_or_path)
    runtimes = np.array([run_time_alone(job, workload.gpus_a_node or job.gpus) for job in workload.jobs])
    jobs = [
        {
            **known_at_submit(
                user=job.user, account=job.account, partition=job.partition, qos=job.qos, kind=job.kind, name=job.name,
                gpus=job.gpus, gpu_type=job.gpu_type, cpus=job.cpus, memory=job.memory,
                time_limit=None if math.isnan(job.time_limit) else job.time_limit, submit=job.submit, work=job.work,
            ),
            "end": job.submit + seconds,
        }
        for job, seconds in zip(workload.jobs, runtimes.tolist(), strict=True)
    ]  # fmt: skip
    return JobLog(jobs, runtimes, np.full(len(jobs), np.nan))
