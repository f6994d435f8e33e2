"""The request of a batch script, from what sbatch prints of it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slurmplug.cluster import tres
from slurmplug.cluster.hostlist import compress, expand
from slurmplug.cluster.port import Reservation
from slurmplug.cluster.sbatch import NodeGroup, PartitionNodes, Tested
from slurmplug.cluster.user_answers import duration
from slurmplug.console import times
from slurmplug.console.table import printable
from slurmplug.directives import grammar
from slurmplug.errors import ReadFailed, UsageError
from slurmplug.intake.eligibility import satisfies
from slurmplug.reports.job_request import JobRequest

OF_EACH_NODE = frozenset({"nodes", "gres", "gpus-per-node", "gpus-per-socket", "ntasks-per-node", "exclusive"})
"""sbatch's options that state the number of nodes, or the GPUs or tasks of each"""


def request_of(
    script: Path, text: bytes, tested: Tested, there: PartitionNodes, *, user: str, now: float
) -> JobRequest:
    """What the job would request, if it were submitted now. text: of the script, as much as is read; there: the nodes
    of its partition.

    Of an array each element is such a job.

    Raises:
        ReadFailed: what Slurm printed cannot be read
        UsageError: its reservation is over, or Slurm does not show it
    """
    options = tested.options
    try:
        would_get = set(expand(tested.nodes))
        nodes = max(len(would_get), 1)
        whole = [group for group in there.groups for name in expand(group.names) if name in would_get]
        gpus = _gpus(tested, nodes, whole)
        count, gpu_type = sum(gpus.values()), tres.types(gpus)
        suits = [each for each in there.groups if _suits(each, options.get("constraint", ""), gpu_type)]
        parts, apart = _parts(options, nodes, count)
        memory = _memory(tested, nodes, count, whole)
        reserved = _reserved(options, there.reservations, now)
        begin = max(float(options.get("begin", 0)), reserved.start if reserved else 0.0)
        names = _open_to_it(suits, there.reservations, reserved, now)
        limit = options.get("time") or next((each.default_limit for each in there.groups), "")
        if limit in ("", "n/a"):
            limit = next((each.limit for each in there.groups), "")
    except ValueError as error:
        raise ReadFailed(f"what sbatch prints of this script cannot be read: {error}") from error
    return JobRequest(
        user=user,
        nodes=compress(_chosen(names, options, nodes)),
        partition=tested.partition,
        account=options.get("account", ""),
        qos=options.get("qos", ""),
        name=options.get("job-name", script.name),
        gpu_type=gpu_type,
        gpus=count,
        cpus=tested.cpus,
        memory=memory,
        time_limit=duration(limit),
        begin=begin if begin > now else None,
        script=directive_lines(text),
        comment=options.get("comment", "")[: grammar.LINE_BYTES],
        parts=parts,
        apart=apart,
    )


def beyond_partition(request: JobRequest, there: PartitionNodes) -> float | None:
    """The time limit of its partition in seconds, where its own is longer; sbatch may take such a job all the same."""
    most = max((duration(each.limit) or math.inf for each in there.groups), default=math.inf)
    return most if request.time_limit is not None and request.time_limit > most else None


def assumed(options: Mapping[str, str], beyond: float | None = None) -> Iterator[str]:
    """What is assumed of it, a sentence each. options: as in `Tested`; beyond: as `beyond_partition` returns it."""
    if beyond is not None:
        yield (
            f"Its time limit is longer than that of its partition ({times.format_duration(beyond)}): it does not start "
            "before one of them is changed, unless its QOS allows it."
        )
    if "dependency" in options:
        yield (
            f"Its dependency {printable(options['dependency'])} is assumed to be fulfilled; until it is, the job does "
            "not start."
        )
    if "hold" in options:
        yield "It would be held: the times are those of a job that is released at once."
    if "array" in options:
        yield "Each element of the array is such a job; the times are those of the first one, as if it were alone."


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


def _gpus(tested: Tested, nodes: int, whole: Sequence[NodeGroup]) -> dict[str, int]:
    """The GPUs of the whole job, by type. whole: the group of each node that it would get."""
    options = tested.options
    if options.get("exclusive") == "exclusive":
        of_nodes = [tres.gpus(each.gres) for each in whole]
        return {kind: sum(each.get(kind, 0) for each in of_nodes) for kind in set().union(*of_nodes)}
    tasks = int(options.get("ntasks") or nodes * int(options.get("ntasks-per-node", "1")))
    sockets = nodes * int(options.get("sockets-per-node", "1"))
    of_gres = {"gres": nodes, "tres-per-task": tasks}
    times = {"gpus": 1, "gpus-per-node": nodes, "gpus-per-task": tasks, "gpus-per-socket": sockets, **of_gres}
    for name, many in times.items():
        text = options.get(name, "")
        found = tres.gpus(text if name in of_gres else f"gpu:{text}") if text else {}
        if found:
            return {kind: count * many for kind, count in found.items()}
    return {"": math.ceil(tasks / int(options["ntasks-per-gpu"]))} if "ntasks-per-gpu" in options else {}


def _parts(options: Mapping[str, str], nodes: int, gpus: int) -> tuple[int, bool]:
    """Into how many equal parts the job may be split, each on one node, and whether no two may be on the same. gpus: of
    the whole job. A job that states no number of nodes, and nothing of each node, may be split by GPUs and tasks."""
    tasks = int(options.get("ntasks", "1"))
    if options.keys() & OF_EACH_NODE:
        return nodes, True
    if "gpus" in options:
        return max(gpus, 1), False
    return max(min(tasks, gpus) if gpus else tasks, 1), False


def _memory(tested: Tested, nodes: int, gpus: int, whole: Sequence[NodeGroup]) -> float:
    """MiB of the whole job; 0 where it requests none, and has what the site gives it. whole: as of `_gpus`."""
    options = tested.options
    if options.get("mem", "").rstrip("?") == "0":  # as sbatch prints --mem=0: all memory of each node
        return sum(float(each.memory) for each in whole)
    for name, many in (("mem", nodes), ("mem-per-cpu", tested.cpus), ("mem-per-gpu", gpus)):
        if name in options:
            return tres.memory(f"mem={options[name]}") * many
    return 0.0


def _suits(group: NodeGroup, constraint: str, gpu_type: str) -> bool:
    features = frozenset(group.features.split(",")) - {"(null)"}
    has = tres.gpus(group.gres)
    return satisfies(constraint, features) and (not gpu_type or not has.keys().isdisjoint(gpu_type.split(",")))


def _reserved(options: Mapping[str, str], reservations: Sequence[Reservation], now: float) -> Reservation | None:
    """The first one of the reservations that it names and that are not over. Raises UsageError where none is left."""
    named = options.get("reservation", "")
    found = [each for each in reservations if each.name in named.split(",") and now < each.end]
    if named and not found:
        raise UsageError(
            f"the reservation {printable(named)} is over, or Slurm does not show it (scontrol show reservations)"
        )
    return min(found, key=lambda each: each.start, default=None)


def _open_to_it(
    groups: Sequence[NodeGroup], reservations: Sequence[Reservation], reserved: Reservation | None, now: float
) -> set[str]:
    """Those nodes of the groups that are reserved for it, or that are not reserved now."""
    names = {name for each in groups for name in expand(each.names)}
    if reserved:
        return names & reserved.nodes
    return names.difference(*(each.nodes for each in reservations if each.start <= now < each.end))


def _chosen(names: set[str], options: Mapping[str, str], count: int) -> set[str]:
    """Those of the nodes that its options choose. count: on how many it would run."""
    listed = set(expand(options.get("nodelist", "")))
    if len(listed) >= count:  # else it runs on others beside them
        names = names & listed
    return names - set(expand(options.get("exclude", "")))
