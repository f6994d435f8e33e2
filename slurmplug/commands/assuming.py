"""The options on what is assumed of a workload: directives and learning curves, for jobs that have none."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from predictors.arrays import Floats
from slurmplug.errors import UsageError
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.workloads.assumed import OURS, with_assumed_directives


@dataclass(frozen=True, eq=False)
class Assumed:
    """share: of the jobs that have no directives; None for nothing assumed. curves: (n,) each, accuracies of the file
    `curves_of`; none for our own."""

    share: float | None
    curves: Sequence[Floats]
    curves_of: str

    def of(self, workload: Workload, seed: int) -> Workload:
        """The workload with what is assumed of it, drawn by the seed."""
        if self.share is None:
            return workload
        return with_assumed_directives(workload, self.share, seed, self.curves, self.curves_of)


def assume_options(drawn: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options on what is assumed; the command gets `assumed`. drawn: how, for --help."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_assumed(*, share: float | None, curves_path: Path | None, **others: Any) -> None:
            if curves_path and share is None:
                raise UsageError("--curves is for --assume-directives SHARE: name a share, from 0 to 1")
            command(assumed=Assumed(share, _read_curves(curves_path), str(curves_path or OURS)), **others)

        of_share = click.option(
            "--assume-directives",
            "share",
            type=click.FloatRange(0, 1, min_open=True),
            metavar="SHARE",
            help=f"Give directives and learning curves, drawn {drawn}, to this share of the jobs that have none.",
        )
        of_curves = click.option(
            "--curves",
            "curves_path",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="With --assume-directives: draw curves from this file, JSON lines with val_acc, rather than from our "
            "own.",
        )
        return of_share(of_curves(with_assumed))

    return decorate


def _read_curves(path: Path | None) -> list[Floats]:
    """The accuracy curves of a file of --curves; none without a file. Raises DataError."""
    if path is None:
        return []
    from slurmplug.learning.dataset_files import read_accuracy_curves  # noqa: PLC0415  pandas takes a second to load

    return [run.values for run in read_accuracy_curves([path])]
