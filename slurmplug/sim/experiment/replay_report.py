"""What a replay found, as tables for people and as a mapping for JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from slurmplug.console import times
from slurmplug.console.table import finite, printable
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.replay import CONFIDENCE, Difference, Group, Sample, by, differences
from slurmplug.sim.experiment.replayed_waits import ReplayedWaits, replayed_waits

_NOTHING = "-"
_HEADINGS = ("slurm", "policy", "difference", "low", "high")


class Table(NamedTuple):
    """A title, headings, and rows of texts; the first `left` columns are aligned to the left."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class ReplayReport:
    """What a replay found.

    `not_followed`: settings of the site, a phrase each. `has_limits`: whether limits of QOS or associations were read.
    """

    workload: str
    cluster: str
    policy: str
    samples: int
    not_followed: tuple[str, ...]
    has_limits: bool
    never_started: int
    waits: ReplayedWaits | None
    figures: tuple[Difference, ...]
    users: tuple[Group, ...]
    accounts: tuple[Group, ...]


def report(
    found: Sequence[Sample],
    *,
    workload: str,
    cluster: str,
    policy: str,
    not_followed: Sequence[str],
    has_limits: bool,
) -> ReplayReport:
    """The report of these samples, at least one."""
    first = found[0]
    return ReplayReport(
        workload=workload,
        cluster=cluster,
        policy=policy,
        samples=len(found),
        not_followed=tuple(not_followed),
        has_limits=has_limits,
        never_started=int((first.alone.started != first.alone.started).sum()),
        waits=_waits(first, cluster),
        figures=tuple(differences(found)),
        users=tuple(by(found, "user")),
        accounts=tuple(by(found, "account")),
    )


def _waits(sample: Sample, cluster: str) -> ReplayedWaits | None:
    submitted = np.array([job.submit for job in sample.jobs])
    return replayed_waits(sample.jobs, sample.alone.started, submitted + sample.alone.jct, parse(cluster))


def as_json(made: ReplayReport) -> dict[str, Any]:
    """Numbers as numbers, seconds, null where there is none."""
    found: dict[str, Any] = finite({**asdict(made), "confidence": CONFIDENCE})
    return found


def tables(made: ReplayReport) -> Iterator[Table]:
    """The table of all jobs, and those of users and accounts."""
    headings = tuple(made.policy if each == "policy" else each for each in _HEADINGS)
    samples = f"{made.samples} sample{'s' if made.samples > 1 else ''}"
    title = f"Slurm alone and {made.policy}, {samples}, {CONFIDENCE:.0%} intervals of the difference"
    yield Table(title, ("figure", *headings), tuple((each.figure, *_cells(each)) for each in made.figures))
    for what, groups in (("user", made.users), ("account", made.accounts)):
        rows = tuple(
            (printable(each.name), str(each.jobs), f"{each.gpu_hours:.1f}", *_cells(each.wait)) for each in groups
        )
        title = f"Mean wait by {what}, those with the most GPU hours"
        yield Table(title, (what, "jobs", "gpu_hours", *headings), rows)


def waits_table(waits: ReplayedWaits) -> Table:
    """How near the replay under Slurm alone comes to what happened."""
    rows = (
        ("mean wait, true", times.format_duration(waits.true_mean)),
        ("mean wait, replayed", times.format_duration(waits.replayed_mean)),
        ("apart", _text(waits.apart, "share", signed=True)),
        ("median absolute error of the starts", times.format_duration(waits.start_error)),
        ("rank correlation of the starts", _text(waits.start_rank, "number")),
        ("rank correlation of the waits", _text(waits.wait_rank, "number")),
        ("mean wait beside idle GPUs, true", times.format_duration(waits.true_idle)),
        ("mean wait beside idle GPUs, replayed", times.format_duration(waits.replayed_idle)),
        (f"most GPUs held, true, of {waits.gpus}", f"{waits.true_most:.0f}"),
    )
    title = f"What happened, and its replay under Slurm alone: {waits.jobs} jobs whose waits are known"
    return Table(title, ("", "value"), rows)


def _cells(row: Difference) -> tuple[str, ...]:
    signed = row.alone == row.alone
    both = (_text(row.alone, row.kind), _text(row.policy, row.kind))
    return *both, *(_text(value, row.kind, signed=signed) for value in (row.difference, row.low, row.high))


def _text(value: float, kind: str, *, signed: bool = False) -> str:
    if value != value:
        return _NOTHING
    sign = ("-" if value < 0 else "+") if signed else ("-" if value < 0 else "")
    if kind == "span":
        return sign + times.format_duration(abs(value))
    if kind == "share":
        return f"{sign}{abs(value):.1%}"
    if kind == "integer":
        return f"{sign}{abs(value):.0f}"
    return f"{sign}{abs(value):.3f}" if abs(value) < 10 else f"{sign}{abs(value):.1f}"
