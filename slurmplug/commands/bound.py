"""`slurmplug bound`: what no policy, or hardly any, can do better on a workload."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from slurmplug.commands.experiment import ReadWorkload, print_results, workload_options, write, write_results
from slurmplug.console import progress
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.engine.nodes import SimNodes, parse
from slurmplug.sim.experiment.simulation import check_size

_SHOWN = (("policy", "text"), ("seed", "integer"), ("jobs", "integer"), ("jct_mean", "span"))


@click.command()
@workload_options
def bound(*, name: str, cluster: str, seeds: tuple[int, ...], read: ReadWorkload, json_path: Path | None) -> None:
    """The least mean JCT of WORKLOAD on a cluster, if every job does all its iterations.

    lower-bound: no policy is below it. fluid: a clairvoyant schedule of divisible GPUs that resizes at no cost; no
    bound, but hard to reach. `slurmplug compare BOUND.json RUNS.json --against fluid` shows how far the policies of
    simulated runs are from it; --json writes BOUND.json.
    """
    if json_path:
        write(json_path, "", "a")
    nodes = parse(cluster)
    results: list[dict[str, Any]] = []
    for seed in seeds:
        with progress.spinner(f"bounds of {name}, seed {seed}"):
            results += _figures(read(seed), nodes, seed)
    if json_path:
        write_results(json_path, name, cluster, results)
    print_results(results, _SHOWN)


def _figures(workload: Workload, nodes: SimNodes, seed: int) -> Iterator[dict[str, Any]]:
    from slurmplug.sim.experiment import fluid, lower_bound  # noqa: PLC0415  scipy.optimize takes a second to load

    for job in workload.jobs:
        check_size(job, sum(nodes.gpus), elastic=True)
    ended = fluid.completions(workload.jobs, nodes)
    jct = float(np.mean(ended - np.array([job.submit for job in workload.jobs])))
    least = lower_bound.mean_jct_bound(workload.jobs, nodes)
    for policy, seconds in (("lower-bound", least), ("fluid", jct)):
        yield {"policy": policy, "seed": seed, "jobs": len(workload.jobs), "jct_mean": seconds}
