"""`slurmplug simulate`: runs a workload under policies on a simulated cluster."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from policies.policy import Policy
from slurmplug.commands.options import emit
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.console import table, times
from slurmplug.errors import UsageError
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.experiment import summary
from slurmplug.sim.experiment.early_stopping import WithEarlyStopping
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load

ALONE = "slurm"
"""the policy that is its own launcher"""
ALWAYS_STOPS = frozenset({"mlfs"})
_SHOWN = (
    ("policy", "text"), ("seed", "integer"), ("jobs", "integer"), ("jct_mean", "span"), ("jct_p50", "span"),
    ("jct_p99", "span"), ("wait_mean", "span"), ("makespan", "span"), ("deadline_ratio", "share"),
    ("accuracy_by_deadline", "number"), ("unfair_ratio", "share"), ("rho_max", "number"), ("slowdown_max", "number"),
    ("plain_wait_mean", "span"), ("gpu_hours", "number"), ("preemptions", "integer"), ("stops", "integer"),
    ("decide_ms_mean", "number"), ("wall_s", "number"),
)  # fmt: skip
"""the figures of a result that are shown in the table, those that some result has"""
_NOTHING = "-"


@click.command()
@click.argument("name", metavar="WORKLOAD")
@click.option("--cluster", required=True, metavar="NxG", help="Nodes and GPUs on each: 16x4, or 8x4+2x8.")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="A policy; may be repeated. Default: mlfs and slurm."
)
@click.option(
    "--launcher",
    type=click.Choice(["direct", "slurm"]),
    default="direct",
    show_default=True,
    help="What starts the jobs: the policy itself, as the papers assume, or Slurm by the SiteFactors.",
)
@click.option(
    "--stopping",
    type=click.Choice(["off", "on"]),
    default="off",
    show_default=True,
    help="Add MLF-C and OptStop to every policy; mlfs always has its own.",
)
@click.option("--seed", "seeds", multiple=True, type=click.IntRange(0), help="A seed; may be repeated. Default: 0.")
@click.option("--jobs", type=click.IntRange(1), help="Only the first N jobs.")
@click.option(
    "--load",
    "load_factor",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    help="Factor on the rate of arrivals.",
)
@click.option("--interval", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds between cycles.")
@click.option("--set", "assigned", multiple=True, metavar="POLICY.KEY=VALUE", help="A policy's setting, as in TOML.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="The folder with measured profiles.")
@click.option("--skip-bad", is_flag=True, help="Skip rows that cannot be used, rather than reject the workload.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures there.")
def simulate(
    *,
    name: str,
    cluster: str,
    policies: tuple[str, ...],
    launcher: Literal["direct", "slurm"],
    stopping: str,
    seeds: tuple[int, ...],
    jobs: int | None,
    load_factor: float,
    interval: float,
    assigned: tuple[str, ...],
    data: Path | None,
    skip_bad: bool,
    json_path: Path | None,
) -> None:
    """Run WORKLOAD (a file, gen:NAME or the name of a built-in one) under each policy on a simulated cluster."""
    wanted = [(each, policy_registry.own_name(each)) for each in policies or ("mlfs", ALONE)]
    settings = _assigned(assigned, dict(wanted))
    made = [_policy(each, {own: settings.get(own, {})}, interval, stops=stopping == "on") for each, own in wanted]
    if json_path:
        _write(json_path, "", "a")
    results: list[Mapping[str, Any]] = []
    for seed in seeds or (0,):
        jobs_of_seed = load.load(name, seed=seed, load=load_factor, jobs=jobs, skip_bad=skip_bad, data=data)
        caches = once_grown()
        for policy in made:
            by = "slurm" if policy.name == ALONE else launcher
            stops = stopping == "on" or policy.name in ALWAYS_STOPS
            run_settings = SimulationSettings(cluster, interval, seed, stops, launcher=by)
            simulation = Simulation(jobs_of_seed, policy, run_settings, caches)
            with _bar(f"{policy.name}, seed {seed}") as show_progress:
                results.append(summary.summary(simulation.run(show_progress)))
    if json_path:
        figures = {"workload": name, "cluster": cluster, "results": results}
        _write(json_path, json.dumps(_finite(figures), indent=1, allow_nan=False) + "\n", "w")
    _print(results)


def _write(path: Path, text: str, mode: Literal["a", "w"]) -> None:
    """Write to a file; called before the runs too, with mode "a", to fail early. Raises UsageError."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another file with --json") from error


def _policy(name: str, settings: Mapping[str, Mapping[str, Any]], interval: float, *, stops: bool) -> Policy:
    policy = policy_registry.policy(Config.model_validate({"policy": name, "interval": interval, "policies": settings}))
    return WithEarlyStopping(policy) if stops and policy.name not in ALWAYS_STOPS else policy


def _assigned(items: Sequence[str], own_names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The settings of each policy, by its own name. own_names: these, by the names of --policy.

    Raises:
        UsageError
    """
    settings: dict[str, dict[str, Any]] = {}
    for item in items:
        where, equals, value = item.partition("=")
        policy, _, key = where.partition(".")
        own = own_names.get(policy, policy)
        if not (equals and key) or own not in own_names.values():
            named = ", ".join(dict.fromkeys(own_names.values()))
            raise UsageError(f"--set {item}: write POLICY.KEY=VALUE, of a policy that is run: {named}")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        settings.setdefault(own, {})[key] = tuple(parsed) if isinstance(parsed, list) else parsed
    return settings


@contextmanager
def _bar(title: str) -> Iterator[Any]:
    """A progress bar, if on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.completed}/{task.total} jobs"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda ended, jobs: progress.update(task, completed=ended, total=jobs)


def _finite(value: Any) -> Any:
    """The value with NaN and infinity replaced by None, as JSON has neither."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def _print(results: Sequence[Mapping[str, Any]]) -> None:
    columns = [(key, kind) for key, kind in _SHOWN if any(_text(row[key], kind) != _NOTHING for row in results)]
    if not sys.stdout.isatty():
        cells = ([_text(row[key], kind) for key, kind in columns] for row in results)
        shown = [[heading for heading, _ in columns], *cells]
        widths = [max(len(row[column]) for row in shown) for column in range(len(columns))]
        emit("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)
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
