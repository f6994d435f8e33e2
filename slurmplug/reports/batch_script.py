"""The request of a batch script, from what sbatch prints of it."""

from collections.abc import Sequence
from pathlib import Path

from slurmplug.cluster import tres
from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.sbatch import NodeGroup, Tested
from slurmplug.cluster.user_answers import duration
from slurmplug.directives import grammar
from slurmplug.errors import ReadFailed
from slurmplug.intake.eligibility import satisfies
from slurmplug.reports.job_request import JobRequest


def request_of(script: Path, text: bytes, tested: Tested, groups: Sequence[NodeGroup], user: str) -> JobRequest:
    """What the job would request. text: of the script, as much as is read; groups: the nodes of its partition.

    Of an array each element is such a job. Raises ReadFailed where what Slurm printed cannot be read.
    """
    options = tested.options
    try:
        nodes = max(len(expand(tested.nodes)), 1)
        gpus = _gpus(tested, nodes)
        count, gpu_type = sum(gpus.values()), tres.types(gpus)
        memory = _memory(tested, nodes, count)
        limit = options.get("time") or next((each.default_limit for each in groups), "")
        if limit in ("", "n/a"):
            limit = next((each.limit for each in groups), "")
    except ValueError as error:
        raise ReadFailed(f"what sbatch prints of this script cannot be read: {error}") from error
    return JobRequest(
        user=user,
        nodes=",".join(each.names for each in groups if _suits(each, options.get("constraint", ""), gpu_type)),
        partition=tested.partition,
        account=options.get("account", ""),
        qos=options.get("qos", ""),
        name=options.get("job-name", script.name),
        gpu_type=gpu_type,
        gpus=count,
        cpus=tested.cpus,
        memory=memory,
        time_limit=duration(limit),
        script=directive_lines(text),
        comment=options.get("comment", "")[: grammar.LINE_BYTES],
    )


def directive_lines(script: bytes) -> tuple[str, ...]:
    """Its `#PLUG` lines, as far as the daemon reads them."""
    found = []
    for line in script[: grammar.HEAD_BYTES].split(b"\n")[: grammar.HEAD_LINES]:
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            break
        if stripped.startswith(grammar.PREFIX.encode()) and len(stripped) <= grammar.LINE_BYTES:
            found.append(stripped.decode("ascii", "replace"))
    return tuple(found[: len(grammar.TABLE)])


def _gpus(tested: Tested, nodes: int) -> dict[str, int]:
    """The GPUs of the whole job, by type."""
    options = tested.options
    tasks = int(options.get("ntasks") or nodes * int(options.get("ntasks-per-node", "1")))
    for name, times in (("gpus", 1), ("gpus-per-node", nodes), ("gpus-per-task", tasks), ("gres", nodes)):
        text = options.get(name, "")
        found = tres.gpus(text if name == "gres" else f"gpu:{text}") if text else {}
        if found:
            return {kind: count * times for kind, count in found.items()}
    return {}


def _memory(tested: Tested, nodes: int, gpus: int) -> float:
    """MiB of the whole job; 0 where it requests none, and has what the site gives it."""
    options = tested.options
    for name, times in (("mem", nodes), ("mem-per-cpu", tested.cpus), ("mem-per-gpu", gpus)):
        if name in options:
            return tres.memory(f"mem={options[name]}") * times
    return 0.0


def _suits(group: NodeGroup, constraint: str, gpu_type: str) -> bool:
    features = frozenset(group.features.split(",")) - {"(null)"}
    has = tres.gpus(group.gres)
    return satisfies(constraint, features) and (not gpu_type or not has.keys().isdisjoint(gpu_type.split(",")))
