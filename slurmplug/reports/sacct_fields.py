"""The fields of `slurmplug acct` that come from sacct, by the rights of who asks: of jobs, of earlier runs, of steps.

Efficiencies are those of seff(1), which comes with Slurm, and of reportseff: what was used as a share of what was
allocated for as long as the run lasted.
"""

import base64
import binascii
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from slurmplug.cluster import user_answers
from slurmplug.cluster.user_answers import Record
from slurmplug.console.table import Field, Value


class Run(NamedTuple):
    """A record of sacct, and the steps of it; a step has itself alone."""

    record: Record
    steps: Sequence[Record]


def _text(name: str) -> Callable[[Run], Value]:
    return lambda run: run.record.fields[name] or None


def _time(name: str) -> Callable[[Run], Value]:
    return lambda run: user_answers.time(run.record.fields[name])


def _whole(name: str) -> Callable[[Run], Value]:
    return lambda run: user_answers.whole(run.record.fields[name])


def _elapsed(run: Run) -> int | None:
    return user_answers.whole(run.record.fields["ElapsedRaw"])


def _memory(size: str) -> float | None:
    found = user_answers.size(size)
    return None if found is None else found / (1 << 20)


def _total_cpu(run: Run) -> float:
    return user_answers.total_cpu(run.steps)


def _max_rss(run: Run) -> float | None:
    """The largest of its tasks, MiB."""
    sizes = [size for step in run.steps if (size := _memory(step.fields["MaxRSS"])) is not None]
    return max(sizes, default=None)


def cpu_efficiency(run: Run) -> float | None:
    """TotalCPU / (Elapsed * AllocCPUS), as seff."""
    cpus, elapsed = user_answers.whole(run.record.fields["AllocCPUS"]), _elapsed(run)
    return _total_cpu(run) / (elapsed * cpus) if elapsed and cpus else None


def memory_efficiency(run: Run) -> float | None:
    """The most that a step used, MaxRSS * NTasks, of the memory allocated, as seff."""
    allocated = _memory(user_answers.tres(run.record.fields["AllocTRES"]).get("mem", "")) or _memory(
        run.record.fields["ReqMem"]
    )
    used = [
        size * (user_answers.whole(step.fields["NTasks"]) or 1)
        for step in run.steps
        if (size := _memory(step.fields["MaxRSS"])) is not None
    ]
    return max(used) / allocated if used and allocated else None


def gpu_efficiency(run: Run) -> float | None:
    """The mean utilisation of its GPUs: what Jobstats left in AdminComment, as reportseff; else of Slurm's gpuutil.

    gpuutil is per task the sum of its GPUs' per cent (acct_gather with NVML or RSMI), of which a step keeps the mean.
    """
    found = _by_jobstats(run.record.fields["AdminComment"])
    if found is not None:
        return found
    gpus, elapsed = run.record.gpus, _elapsed(run)
    used = [used for step in run.steps if (used := _gpu_percent_seconds(step)) is not None]
    return sum(used) / 100.0 / (gpus * elapsed) if used and gpus and elapsed else None


def _gpu_percent_seconds(step: Record) -> float | None:
    """Per cent of GPUs that a step used, times seconds; None where Slurm did not measure it."""
    of_task = user_answers.tres(step.fields["TRESUsageInAve"]).get("gres/gpuutil", "")
    tasks, elapsed = (user_answers.whole(step.fields[name]) for name in ("NTasks", "ElapsedRaw"))
    return float(of_task) * (tasks or 1) * (elapsed or 0) if _NUMBER.fullmatch(of_task) else None


_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


_JOBSTATS = "JS1:"
_JOBSTATS_BYTES = 1 << 20


def _by_jobstats(comment: str) -> float | None:
    """The mean of `gpu_utilization` of all nodes in a summary of Jobstats: JS1: and JSON, by gzip and base64."""
    if not comment.startswith(_JOBSTATS):
        return None
    try:
        packed = base64.b64decode(comment[len(_JOBSTATS) :], validate=True)
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            nodes = json.loads(file.read(_JOBSTATS_BYTES))["nodes"]
        used = [float(each) for node in nodes.values() for each in node.get("gpu_utilization", {}).values()]
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, zlib.error, binascii.Error):
        return None
    return sum(used) / len(used) / 100.0 if used else None


def _state(run: Run) -> str:
    return run.record.fields["State"]


ONLY: tuple[Field[Run], ...] = (
    Field("AllocTRES", "text", 30, "the resources that it was given", _text("AllocTRES")),
    Field("TotalCPU", "span", 10, "the CPU time that it used", _total_cpu),
    Field("MaxRSS", "memory", 10, "the largest memory of one of its tasks, MiB", _max_rss),
    Field("NTasks", "integer", 8, "tasks of a step", _whole("NTasks")),
    Field("CPUEff", "share", 7, "TotalCPU as a share of its allocated CPU time", cpu_efficiency),
    Field("MemEff", "share", 7, "the largest memory that it used, as a share of its allocation", memory_efficiency),
    Field("GPUEff", "share", 7, "the mean utilisation of its GPUs, if Slurm or Jobstats has it", gpu_efficiency),
)
"""Fields that slurmplug does not keep."""
_SHARED: Mapping[str, Callable[[Run], Value]] = {
    "jobid": _text("JobID"),
    "jobidraw": lambda run: None if run.record.step else run.record.job_id,
    "jobname": _text("JobName"),
    "state": _state,
    "exitcode": _text("ExitCode"),
    "submit": _time("Submit"),
    "start": _time("Start"),
    "end": _time("End"),
    "elapsed": _elapsed,
    "elapsedraw": _elapsed,
    "alloccpus": _whole("AllocCPUS"),
    "ncpus": _whole("AllocCPUS"),
    "allocnodes": _whole("NNodes"),
    "nnodes": _whole("NNodes"),
    "nodelist": _text("NodeList"),
    "partition": _text("Partition"),
    "account": _text("Account"),
    "user": _text("User"),
    "qos": _text("QOS"),
    "gpus": lambda run: run.record.gpus,
}
"""Fields that slurmplug keeps of jobs, as sacct has them of earlier runs and of steps."""


def values(names: Sequence[str], run: Run) -> list[Value]:
    """The fields of an earlier run or a step; None for those that only slurmplug has, of the job."""
    own = {field.name.lower(): field.value for field in ONLY}
    return [value(run) if (value := own.get(name) or _SHARED.get(name)) else None for name in names]
