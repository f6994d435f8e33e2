"""`slurmplug train`: trains a model of a learnt policy on simulated workloads."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from slurmplug.commands.options import emit
from slurmplug.errors import UsageError
from slurmplug.rl import training
from slurmplug.rl.training import Training

SEED = "{seed}"


@click.command()
@click.argument("policy", type=click.Choice(sorted(training.TRAINED_BY)))
@click.option(
    "--out",
    required=True,
    help=f"The file of the model; of several seeds, with {SEED} in its name. Beside it is OUT.run.",
)
@click.option("--workload", metavar="gen:NAME", help="A generator. Default: that of the policy's paper.")
@click.option(
    "--seed", "seeds", type=int, multiple=True,
    help="The seed of the first workload, from 1000 on. Default: 1000. May be repeated: a model for each.",
)  # fmt: skip
@click.option("--set", "assigned", multiple=True, metavar="KEY=VALUE", help="A setting of the training, in JSON.")
@click.option(
    "--on",
    type=click.Choice(["here", "slurm"]),
    default="here",
    help="slurm: in an array, with an element for each seed.",
)
def train(
    *, policy: str, out: str, workload: str | None, seeds: tuple[int, ...], assigned: tuple[str, ...], on: str
) -> None:
    """Train a model of POLICY. Needs the extra `rl`: pip install 'slurmplug[rl]'.

    A training that was ended goes on where it was, when the same command is given again.
    """
    given = _assigned(assigned) | ({} if workload is None else {"workload": workload})
    trainings = _trainings(policy, given, out, seeds)
    if on == "slurm":
        training.library("slurmplug.rl.on_slurm").run(trainings, click.echo)
        return
    for each in trainings:
        if len(trainings) > 1 and each.finished():
            emit([f"{each.out}: was trained before"])
            continue
        model = each.run(_show)
        emit([
            f"{each.out}: a model of {policy}, version {model.version}, {model.digest[:12]}",
            f"try it: slurmplug simulate WORKLOAD --policy {policy} --set {policy}.model={each.out}",
            f"make it a candidate at a site: slurmplug policy add {each.out}",
        ])  # fmt: skip


def _trainings(policy: str, given: Mapping[str, Any], out: str, seeds: Sequence[int]) -> list[Training]:
    """
    Raises:
        UsageError: the models of several seeds would have one name, or a file cannot be written there
    """
    if len(set(seeds)) != len(seeds):
        raise UsageError("--seed: give each seed only once")
    if len(seeds) > 1 and SEED not in out:
        raise UsageError(f"--out {out}: of several seeds it needs {SEED} in its name, as in model-{SEED}.safetensors")
    found = []
    for more in [{"seed": seed} for seed in seeds] or [{}]:
        path = Path(out.replace(SEED, str(more["seed"])) if more else out)
        if path.is_dir() or not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            raise UsageError(f"{path} cannot be written: name another file with --out")
        found.append(Training(policy, {**given, **more}, path))
    return found


def _show(stage: str, step: int, figures: Mapping[str, float]) -> None:
    click.echo(f"{stage} {step}: " + ", ".join(f"{name} {value:g}" for name, value in figures.items()), err=True)


def _assigned(items: Sequence[str]) -> dict[str, Any]:
    """
    Raises:
        UsageError: one is not KEY=VALUE
    """
    given: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise UsageError(f"--set {item}: write KEY=VALUE")
        try:
            given[key] = json.loads(value)
        except ValueError:
            given[key] = value
    return given
