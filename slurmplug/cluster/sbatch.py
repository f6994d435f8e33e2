"""What sbatch makes of a batch script without submitting it (sbatch(1), --test-only), by the rights of who asks."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

from slurmplug.cluster import parse
from slurmplug.cluster.port import Reservation
from slurmplug.cluster.programs import SlurmPrograms, decode
from slurmplug.console.table import printable
from slurmplug.errors import ReadFailed, UsageError

_OPTION = re.compile(r"sbatch: ([a-z][a-z-]*) *: (.*)")
_LINES = 5
"""of the errors that are shown"""
_BEGIN, _END = "sbatch: defined options", "sbatch: end of defined options"
_WOULD_START = re.compile(
    r"(?:sbatch: )?Job \d+ to start at (\S+)(?: on cluster \S+)?(?: a)? using (\d+) processors on nodes (\S+) "
    r"in partition (\S+)"
)
"""From 25.11 on there is an "a" before "using"."""
_FAILURE = re.compile(r"allocation failure: (.*)")
"""What slurmctld says; what sbatch itself says, also of its options, may take several lines."""
_ERROR = re.compile(r"sbatch: error: (.*)|sbatch: ((?:unrecognized|invalid|ambiguous|unknown) option.*|option .*)")


class Tested(NamedTuple):
    """A script that sbatch did not submit.

    options: those of the script and of the command line by their long names, as sbatch reads them. start: when Slurm
    expects to start the job, in seconds since the epoch. cpus, nodes, partition: what Slurm would give it then.
    """

    options: Mapping[str, str]
    start: float
    cpus: int
    nodes: str
    partition: str


class NodeGroup(NamedTuple):
    """Nodes of a partition that are alike: their active features, their gres, and their names as a host list.

    default_limit: the partition's time limit of a job that requests none, as sinfo prints it. memory: MiB of each.
    """

    features: str
    gres: str
    default_limit: str
    limit: str
    names: str
    memory: str


class PartitionNodes(NamedTuple):
    """The nodes of a partition, and the reservations of the cluster that Slurm shows to who asks."""

    groups: Sequence[NodeGroup]
    reservations: Sequence[Reservation] = ()


class SbatchClient(SlurmPrograms):
    """sbatch, and sinfo."""

    def tested(self, script: Path, options: Sequence[str]) -> Tested:
        """What sbatch makes of this script with these options, and with its variables of this process' environment.

        Raises:
            ReadFailed: sbatch cannot be run, or does not print what is known of it
            UsageError: it refuses the job
        """
        own = {name: value for name, value in os.environ.items() if name.startswith("SBATCH_")}
        zone = os.environ.get("TZ", ":/etc/localtime")  # in which its user states --begin and --deadline
        argv = ("sbatch", "-v", "--test-only", *options, str(script))
        answer = self._run_to_end(argv, PIPE, {**own, "TZ": zone})
        return parse_tested(f"{decode(answer.stdout)}\n{decode(answer.stderr)}")

    def nodes(self, partition: str) -> PartitionNodes:
        """Those of a partition. Raises ReadFailed."""
        text = self._query("sinfo", "--noheader", f"--partition={partition}", "--exact", "--format=%b|%G|%L|%l|%N|%m")
        groups = [NodeGroup(*fields) for line in text.splitlines() if len(fields := line.split("|")) == 6]
        reservations = self._query("scontrol", "--oneliner", "show", "reservations")
        return PartitionNodes(groups, parse.reservations(reservations))

    def partitions(self) -> list[str]:
        """Those that Slurm shows to who asks. Raises ReadFailed."""
        return sorted(set(self._query("sinfo", "--noheader", "--format=%R").split()))


def parse_tested(text: str) -> Tested:
    """What sbatch -v --test-only printed, its times as SLURM_TIME_FORMAT=%s has them. Raises as `tested`."""
    lines = [line.rstrip() for line in text.splitlines()]
    if lines.count(_END) > 1:
        raise UsageError(
            "a heterogeneous job cannot be estimated as a whole: estimate its components one by one; it starts no "
            "sooner than the last of them"
        )
    found = next((match for line in lines if (match := _WOULD_START.fullmatch(line))), None)
    if found is None:
        failures = [match[1] for line in lines if (match := _FAILURE.match(line))]
        errors = [match[1] or match[2] for line in lines if (match := _ERROR.match(line))]
        if refusal := " ".join((failures or errors)[-_LINES:]):
            raise UsageError(f"sbatch --test-only refuses this job: {printable(refusal)}")
        raise ReadFailed(f"sbatch --test-only prints nothing that is known of it: {' '.join(lines)[-200:]}")
    if _BEGIN not in lines or _END not in lines:
        raise ReadFailed("sbatch -v does not print its options")
    shown = lines[lines.index(_BEGIN) : lines.index(_END)]
    options = {match[1]: match[2] for line in shown if (match := _OPTION.fullmatch(line))}
    start, cpus, nodes, partition = found.groups()
    try:
        return Tested(options, float(start), int(cpus), nodes, partition)
    except ValueError as error:
        raise ReadFailed(f"sbatch prints a start time that is not a number: {start!r}") from error
