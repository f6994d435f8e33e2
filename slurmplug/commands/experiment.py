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

from slurmplug.commands.options import emit
from slurmplug.console import table, times
from slurmplug.errors import UsageError
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.workloads import load

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

    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_workload)


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
    write(path, json.dumps(_finite(figures), indent=1, allow_nan=False) + "\n", "w")


def _finite(value: Any) -> Any:
    """The value with NaN and infinity replaced by None, as JSON has neither."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


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
