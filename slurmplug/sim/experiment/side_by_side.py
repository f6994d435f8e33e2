"""The runs of an experiment: one after the other, side by side in processes, or as the elements of a Slurm array."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from joblib import Parallel, delayed

from slurmplug.console import progress
from slurmplug.errors import UsageError

T = TypeVar("T")

OnProgress: TypeAlias = Callable[[int, int], object] | None
"""Is told how many jobs have ended, and of how many."""


@dataclass(frozen=True)
class Run(Generic[T]):
    """title: what is shown while it runs. make: runs it; what it needs and returns can be pickled by cloudpickle."""

    title: str
    make: Callable[[OnProgress], T]


@dataclass(frozen=True)
class Where:
    """processes: of this machine that make runs side by side. on_slurm: an array makes them instead, whose files are in
    the folder `slurm` of the working directory, which the nodes have to share."""

    processes: int = 1
    on_slurm: bool = False


def results(runs: Sequence[Run[T]], where: Where) -> Iterator[T]:
    """What each run returns, in their order, the same wherever they are made.

    Raises:
        UsageError: Slurm or submitit is not there, Slurm refuses the array, or an element of it failed
    """
    if where.on_slurm:
        yield from _on_slurm(runs)
    elif min(where.processes, len(runs)) > 1:
        made = Parallel(n_jobs=where.processes, return_as="generator")(delayed(run.make)(None) for run in runs)
        with progress.bar("simulations", "done") as show:
            for done, result in enumerate(made, 1):
                if show:
                    show(done, len(runs))
                yield result
    else:
        for run in runs:
            with progress.bar(run.title, "jobs") as show:
                result = run.make(show)
            yield result


def _on_slurm(runs: Sequence[Run[T]]) -> list[T]:
    try:
        from slurmplug.sim.experiment import slurm_array  # noqa: PLC0415  needs submitit
    except ModuleNotFoundError as error:
        raise UsageError(f"--on slurm needs {error.name}: pip install 'slurmplug[slurm-array]'") from error
    elements = [partial(slurm_array.attempted, partial(run.make, None)) for run in runs]
    return slurm_array.results(elements, Path("slurm"), "slurmplug", lambda line: print(line, file=sys.stderr))
