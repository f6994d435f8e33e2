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

from policies.mlfs.load_control import LoadControlSettings
from policies.policy import Policy
from slurmplug.commands.experiment import ReadWorkload, print_results, workload_options, write, write_results
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import UsageError
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.experiment import summary
from slurmplug.sim.experiment.early_stopping import WithEarlyStopping
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

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


@click.command()
@workload_options
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
@click.option(
    "--epsilon",
    type=click.FloatRange(0, 1, max_open=True),
    default=LoadControlSettings.epsilon,
    show_default=True,
    help="With MLF-C: the share of the achieved value that is not worth further training, for every policy.",
)
@click.option("--interval", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds between cycles.")
@click.option("--set", "assigned", multiple=True, metavar="POLICY.KEY=VALUE", help="A policy's setting, as in TOML.")
def simulate(
    *,
    name: str,
    cluster: str,
    seeds: tuple[int, ...],
    read: ReadWorkload,
    json_path: Path | None,
    policies: tuple[str, ...],
    launcher: Literal["direct", "slurm"],
    stopping: str,
    epsilon: float,
    interval: float,
    assigned: tuple[str, ...],
) -> None:
    """Run WORKLOAD (a file, gen:NAME or the name of a built-in one) under each policy on a simulated cluster."""
    wanted = [(each, policy_registry.own_name(each)) for each in policies or ("mlfs", ALONE)]
    settings = _assigned(assigned, dict(wanted))
    stops = stopping == "on"
    made = [_policy(each, own, settings.get(own, {}), interval, epsilon, stops=stops) for each, own in wanted]
    if json_path:
        write(json_path, "", "a")
    results: list[Mapping[str, Any]] = []
    for seed in seeds:
        jobs_of_seed = read(seed)
        caches = once_grown()
        for policy in made:
            by = "slurm" if policy.name == ALONE else launcher
            stopped = stops or policy.name in ALWAYS_STOPS
            run_settings = SimulationSettings(cluster, interval, seed, stopped, launcher=by)
            simulation = Simulation(jobs_of_seed, policy, run_settings, caches)
            with _bar(f"{policy.name}, seed {seed}") as show_progress:
                results.append(summary.summary(simulation.run(show_progress)))
    if json_path:
        write_results(json_path, name, cluster, results)
    print_results(results, _SHOWN)


def _policy(
    name: str, own: str, settings: Mapping[str, Any], interval: float, epsilon: float, *, stops: bool
) -> Policy:
    given = {"epsilon": epsilon, **settings} if own in ALWAYS_STOPS else settings
    config = {"policy": name, "interval": interval, "policies": {own: given}}
    policy = policy_registry.policy(Config.model_validate(config))
    if not stops or policy.name in ALWAYS_STOPS:
        return policy
    return WithEarlyStopping(policy, LoadControlSettings(epsilon=epsilon))


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
