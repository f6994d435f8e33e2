"""`slurmplug simulate`: runs a workload under policies on a simulated cluster."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click

from policies.mlfs.load_control import LoadControlSettings
from policies.mlfs.with_early_stopping import WithEarlyStopping
from policies.policy import Policy
from slurmplug.commands.assuming import Assumed, assume_options
from slurmplug.commands.experiment import (
    ReadWorkload,
    described,
    print_results,
    where_options,
    workload_options,
    write,
    write_results,
)
from slurmplug.commands.options import emit
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.console.table import printable
from slurmplug.errors import UsageError
from slurmplug.forecasting.forecast_cache import CachePolicies
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.experiment import plot, side_by_side, summary
from slurmplug.sim.experiment.result import RunResult
from slurmplug.sim.experiment.side_by_side import OnProgress, Run, Where
from slurmplug.sim.experiment.simulation import NO_CONTENTION, Simulation, SimulationSettings

Launcher: TypeAlias = Literal["direct", "slurm"]
RunTimes: TypeAlias = Literal["forecast", "told"]
Figures: TypeAlias = Mapping[str, Any]
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
    help="What starts the jobs: Slurm by the SiteFactors (the default of sacct: and ledger:), or the policy itself, as "
    "the papers assume (of all others).",
)
@click.option(
    "--run-times",
    type=click.Choice(["forecast", "told"]),
    help="Run times are forecast from the jobs that ended before (the default of sacct: and ledger:), or told to the "
    "policy, with the workload's error (of all others).",
)
@assume_options("by the seed")
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the jobs, the GPUs in use and the waits of the first seed, as FILE.png or FILE.html.",
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
@where_options
def simulate(
    *,
    name: str,
    cluster: str,
    seeds: tuple[int, ...],
    read: ReadWorkload,
    json_path: Path | None,
    policies: tuple[str, ...],
    launcher: Launcher | None,
    run_times: RunTimes | None,
    assumed: Assumed,
    plot_path: Path | None,
    stopping: str,
    epsilon: float,
    interval: float,
    assigned: tuple[str, ...],
    where: Where,
) -> None:
    """Run WORKLOAD (a file, gen:NAME or the name of a built-in one) under each policy on a simulated cluster."""
    wanted = [(each, policy_registry.own_name(each)) for each in policies or ("mlfs", ALONE)]
    settings = _assigned(assigned, dict(wanted))
    stops = stopping == "on"
    made = [_policy(each, own, settings.get(own, {}), interval, epsilon, stops=stops) for each, own in wanted]
    if json_path:
        write(json_path, "", "a")
    draw = plot.drawing(plot_path) if plot_path else None
    simulations = _Simulations(read, cluster, interval, launcher, run_times, stops, assumed)
    emit(map(printable, simulations.described(seeds[0])))
    drawn = seeds[0] if draw else None
    runs = [
        Run(f"{policy.name}, seed {seed}", partial(simulations.run, policy, seed, seed == drawn))
        for seed in seeds
        for policy in made
    ]
    found = list(side_by_side.results(runs, where))
    results = [figures for figures, _ in found]
    if json_path:
        write_results(json_path, name, cluster, results)
    print_results(results, _SHOWN)
    if draw:
        draw([result for _, result in found if result])


@dataclass(frozen=True, eq=False)
class _Simulations:
    """What all runs of a command have in common, as its options are named."""

    read: ReadWorkload
    cluster: str
    interval: float
    launcher: Launcher | None
    run_times: RunTimes | None
    stops: bool
    assumed: Assumed

    def described(self, seed: int) -> list[str]:
        workload, _ = _prepared(self, seed)
        return described(workload, self._starts(workload), self._times(workload))

    def run(self, policy: Policy, seed: int, keep: bool, on_progress: OnProgress) -> tuple[Figures, RunResult | None]:
        """The figures of a run; `keep`: and the run itself."""
        workload, caches = _prepared(self, seed)
        by = "slurm" if policy.name == ALONE else self._starts(workload)
        settings = SimulationSettings(
            self.cluster,
            self.interval,
            seed,
            self.stops or policy.name in ALWAYS_STOPS,
            run_times=self._times(workload),
            launcher=by,
        )
        if workload.of_slurm:
            settings = replace(settings, contention=NO_CONTENTION)
        result = Simulation(workload, policy, settings, caches).run(on_progress)
        return summary.summary(result), result if keep else None

    def _starts(self, workload: Workload) -> Launcher:
        return self.launcher or ("slurm" if workload.of_slurm else "direct")

    def _times(self, workload: Workload) -> RunTimes:
        return self.run_times or ("forecast" if workload.of_slurm else "told")


@lru_cache(maxsize=1)
def _prepared(simulations: _Simulations, seed: int) -> tuple[Workload, CachePolicies]:
    """The jobs of a seed, and the forecasts that its runs share where they follow one another."""
    return simulations.assumed.of(simulations.read(seed), seed), once_grown()


def _policy(
    name: str, own: str, settings: Mapping[str, Any], interval: float, epsilon: float, *, stops: bool
) -> Policy:
    given = {"epsilon": epsilon, **settings} if own in ALWAYS_STOPS else settings
    config = {"policy": name, "interval": interval, "policies": {own: given}}
    policy = policy_registry.policy(Config.from_table(config))
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
