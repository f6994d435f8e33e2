"""What is expected of a batch script before it is submitted: of sbatch, which reads it, and of slurmplug."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplug.commands.options import user_name
from slurmplug.config.schema import SlurmSettings
from slurmplug.console.table import printable
from slurmplug.directives.grammar import HEAD_BYTES
from slurmplug.errors import UsageError
from slurmplug.reports.interface import Reports

if TYPE_CHECKING:
    from slurmplug.reports.job_request import JobRequest


MOST_PARTITIONS = 8
"""other partitions that are looked at, in the order of their names"""


@dataclass(frozen=True)
class Expected:
    """estimate: as `Reports.estimate` returns it. slurm_start: when Slurm expects to start the job. now: when that was
    asked; both in seconds since the epoch. assumed: what is assumed of it, a sentence each. partitions: those that it
    names. fits: whether its time limit is within that of the partition."""

    estimate: Mapping[str, Any]
    request: "JobRequest"
    slurm_start: float
    now: float
    assumed: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    fits: bool = True

    @property
    def start(self) -> float:
        """When it is expected to start, in seconds since the epoch; infinite where that is not known."""
        start = self.estimate["start"]["median"]
        return start if self.fits and start is not None else math.inf

    def lines(self) -> Iterator[str]:
        """For people."""
        from slurmplug.reports import estimate_lines  # noqa: PLC0415  other commands do without

        return estimate_lines.lines(self.estimate, self.request, self.slurm_start, self.now, self.assumed)


def head_of(script: Path) -> bytes:
    """The beginning of a script that may have directives, and one byte more of a longer one. Raises UsageError."""
    try:
        with script.open("rb") as file:
            return file.read(HEAD_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the script {printable(str(script))} cannot be read: {error.strerror}") from error


def expected(script: Path, head: bytes, options: Sequence[str], slurm: SlurmSettings, reports: Reports) -> Expected:
    """What is expected of a script with these options of sbatch. head: `head_of` it.

    Raises:
        ReadFailed, UsageError: sbatch cannot be asked, or refuses the job
        LedgerError, EndpointError
    """
    from slurmplug.cluster.sbatch import SbatchClient  # noqa: PLC0415  other commands do without
    from slurmplug.reports import batch_script  # noqa: PLC0415

    client = SbatchClient(slurm.conf, slurm.bin, slurm.timeout)
    tested = client.tested(script, options)
    there, now = client.nodes(tested.partition), time.time()
    request = batch_script.request_of(script, head, tested, there, user=user_name(), now=now)
    beyond = batch_script.beyond_partition(request, there)
    assumed = tuple(batch_script.assumed(tested.options, beyond))
    partitions = tuple(tested.options.get("partition", "").split(","))
    found = reports.estimate(request, now)
    return Expected(found, request, tested.start, now, assumed, partitions, beyond is None)


def with_other_partitions(
    found: Expected, options: Sequence[str], slurm: SlurmSettings, ask: Callable[[Sequence[str]], Expected]
) -> Expected:
    """The same, and among its changes each other partition in which sbatch would take the job, the earliest end first.

    Where the job names several partitions, it is what is expected of it in the one of these in which it starts first.
    ask: `expected` of the script with other options of sbatch. Raises as that, but for a refusal in such a partition.
    """
    from slurmplug.cluster.sbatch import SbatchClient  # noqa: PLC0415

    names = SbatchClient(slurm.conf, slurm.bin, slurm.timeout).partitions()
    there = {found.request.partition: found}
    for name in [each for each in names if each not in there][:MOST_PARTITIONS]:
        with suppress(UsageError):
            there[name] = ask([*options, f"--partition={name}"])
    first = min([found, *(there[name] for name in found.partitions if name in there)], key=lambda each: each.start)
    changes = []
    for name, other in there.items():
        if name not in {found.request.partition, *found.partitions} and other.fits:
            outlook = {key: other.estimate[key] for key in ("run_time", "start", "end", "in_time")}
            changes.append({"change": "partition", "value": name, **outlook})
    changes.sort(key=lambda change: change["end"]["median"] or math.inf)
    return replace(first, estimate={**first.estimate, "changes": [*first.estimate["changes"], *changes]})
