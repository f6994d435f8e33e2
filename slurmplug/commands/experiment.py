"""What the commands on simulated clusters share: the options of a workload, and figures as a table or JSON."""

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click
from rich.console import Console
from rich.table import Table

from slurmplug.commands.options import emit, with_options
from slurmplug.console import table, times
from slurmplug.errors import UsageError
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment.side_by_side import Where
from slurmplug.sim.workloads import load
from slurmplug.sim.workloads.directives import run_time_alone

ReadWorkload: TypeAlias = Callable[[int], Workload]
"""The workload of a seed; raises WorkloadError."""
Shown: TypeAlias = Sequence[tuple[str, str]]
"""Figures that a table shows, and how: text, integer, number, share or span of time."""
_NOTHING = "-"

_OPTIONS = (
    click.argument("name", metavar="WORKLOAD"),
    click.option("--cluster", required=True, metavar="NxG", help="Nodes and GPUs on each: 16x4, or 8x4+2x8."),
    click.option("--seed", "seeds", multiple=True, type=click.IntRange(0), help="A seed; may be repeated. Default: 0."),
    click.option("--jobs", type=click.IntRange(1), help="Only the first N jobs."),
    click.option(
        "--load",
        "load_factor",
        type=click.FloatRange(0, min_open=True),
        default=1.0,
        help="Factor on the rate of arrivals.",
    ),
    click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="The folder with measured profiles."),
    click.option("--skip-bad", is_flag=True, help="Skip rows that cannot be used, rather than reject the workload."),
    click.option(
        "--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures there."
    ),
)

_WHERE = (
    click.option(
        "--processes", type=click.IntRange(1), default=1, metavar="N", help="Simulate in N processes side by side."
    ),
    click.option(
        "--on",
        type=click.Choice(["here", "slurm"]),
        default="here",
        help="slurm: in an array, with an element for each simulation.",
    ),
)


def workload_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a workload; the command gets `name`, `cluster`, `seeds`, `json_path` and `read`."""

    @functools.wraps(command)
    def with_workload(
        *,
        name: str,
        seeds: tuple[int, ...],
        jobs: int | None,
        load_factor: float,
        data: Path | None,
        skip_bad: bool,
        **others: Any,
    ) -> None:
        def read(seed: int) -> Workload:
            return load.load(name, seed=seed, load=load_factor, jobs=jobs, skip_bad=skip_bad, data=data)

        command(name=name, seeds=seeds or (0,), read=read, **others)

    return with_options(with_workload, _OPTIONS)


def where_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options on where simulations run; the command gets `where`."""

    @functools.wraps(command)
    def with_where(*, processes: int, on: str, **others: Any) -> None:
        if on == "slurm" and processes > 1:
            raise UsageError("--processes runs simulations on this machine, --on slurm does not: give one of them")
        command(where=Where(processes, on == "slurm"), **others)

    return with_options(with_where, _WHERE)


def described(workload: Workload, launcher: str, run_times: str) -> list[str]:
    """What is simulated, a sentence each: how many jobs are managed, what is assumed, what is not known."""
    managed = [job for job in workload.jobs if job.managed or launcher == "direct"]
    starts = "Slurm starts the jobs" if launcher == "slurm" else "the policy starts the jobs, as in the papers"
    told = "are known to the policy" if run_times == "told" else "are forecast from the jobs that ended before"
    first = (
        f"{_managed_share(managed, workload.jobs)}; {starts} (--launcher {launcher}), and run times {told} (--run-times"
        f" {run_times})."
    )
    return [first, *_limits_of(workload, managed)]


def described_replay(workload: Workload, samples: int) -> list[str]:
    """As `described`, for a replay of a site's own past. workload: of its first sample."""
    managed = [job for job in workload.jobs if job.managed]
    count = f"{samples} samples are" if samples > 1 else "one sample is"
    first = (
        f"{_managed_share(managed, workload.jobs)}; Slurm starts the jobs, and run times are forecast from those that"
        f" ended before; {count} drawn of what is assumed. Users submit the same jobs at the same times, also if their"
        " earlier jobs end earlier."
    )
    return [first, *_limits_of(workload, managed)]


def _managed_share(managed: Sequence[SimJob], jobs: Sequence[SimJob]) -> str:
    hours = _gpu_hours(jobs)
    share = f", with {_gpu_hours(managed) / hours:.0%} of the GPU hours" if hours else ""
    return f"{len(managed)} of {len(jobs)} jobs are managed{share}"


def _limits_of(workload: Workload, managed: Sequence[SimJob]) -> list[str]:
    lines = []
    if workload.assumed:
        lines.append(f"Assumed: {'; '.join(workload.assumed)}.")
    if workload.not_known:
        lines.append(f"Not known: {', '.join(workload.not_known)}.")
    if workload.skipped:
        lines.append(f"Skipped: {workload.skipped} rows that cannot be used.")
    if not managed:
        lines.append("No policy changes anything, because no job is managed: see --assume-directives SHARE.")
    return lines


def _gpu_hours(jobs: Sequence[SimJob]) -> float:
    return sum(job.gpus * run_time_alone(job, job.gpus) for job in jobs) / 3600


def write(path: Path, text: str, mode: Literal["a", "w"]) -> None:
    """Write to a file; called before the runs too, with mode "a", to fail early. Raises UsageError."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another file with --json") from error


def write_results(path: Path, workload: str, cluster: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Write figures as `slurmplug compare` reads them, an entry a policy and seed. Raises UsageError."""
    figures = {"workload": workload, "cluster": cluster, "results": results}
    write(path, json.dumps(table.finite(figures), indent=1, allow_nan=False) + "\n", "w")


def print_results(results: Sequence[Mapping[str, Any]], shown: Shown) -> None:
    """Print these figures, less those that no result has."""
    columns = [(key, kind) for key, kind in shown if any(_text(row[key], kind) != _NOTHING for row in results)]
    if not sys.stdout.isatty():
        cells = ([_text(row[key], kind) for key, kind in columns] for row in results)
        lines = [[heading for heading, _ in columns], *cells]
        widths = [max(len(row[column]) for row in lines) for column in range(len(columns))]
        emit("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in lines)
        return
    printed = Table()
    for heading, kind in columns:
        printed.add_column(heading.replace("_", " "), justify="left" if kind == "text" else "right")
    for row in results:
        printed.add_row(*(_text(row[key], kind) for key, kind in columns))
    Console().print(printed)


def _text(value: Any, kind: str) -> str:
    if value is None or value != value:
        return _NOTHING
    if kind == "span":
        return times.format_duration(float(value))
    if kind == "number":
        return f"{float(value):.3g}" if abs(float(value)) < 1000 else f"{float(value):.0f}"
    return table.format_value(value, kind)  # type: ignore[arg-type]
