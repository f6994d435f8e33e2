"""`slurmplug train`: trains a model of a learnt policy on simulated workloads."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from slurmplug.commands.options import emit
from slurmplug.config import model_files
from slurmplug.errors import UsageError
from slurmplug.rl import training


@click.command()
@click.argument("policy", type=click.Choice(sorted(training.TRAINED_BY)))
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file of the model.")
@click.option("--workload", metavar="gen:NAME", help="A generator. Default: that of the policy's paper.")
@click.option("--seed", type=int, help="The seed of the first workload, from 1000 on. Default: 1000.")
@click.option("--set", "assigned", multiple=True, metavar="KEY=VALUE", help="A setting of the training, as in TOML.")
def train(*, policy: str, out: Path, workload: str | None, seed: int | None, assigned: tuple[str, ...]) -> None:
    """Train a model of POLICY. Needs the extra `rl`: pip install 'slurmplug[rl]'."""
    given = {name: value for name, value in (("workload", workload), ("seed", seed)) if value is not None}
    settings = _assigned(assigned) | given
    if not os.access(out.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(f"{out} cannot be written: name another file with --out")
    model = training.train(policy, settings, _show)
    model_files.write(model, out)
    emit([f"{out}: a model of {policy}, version {model.version}, {model.digest[:12]}",
          f"it is used with --set {policy}.model={out}, or in the configuration's [policies.{policy}]"])  # fmt: skip


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
