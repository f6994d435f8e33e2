"""Two policies' figures over the same seeds, and the confidence in the difference.

What differs by seed is the same for both, so differences are taken seed by seed: the interval is Student's over them,
and the test Wilcoxon's signed ranks, exact for the few seeds there are.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import t, wilcoxon

from predictors.arrays import Floats
from slurmplug.console.table import printable
from slurmplug.errors import DataError, UsageError

FILE_BYTES = 256 * 1024 * 1024
FEWEST_FOR_A_TEST = 6
"""seeds; fewer can never be significant at 5%"""
MEASURED = frozenset({"decide_ms_mean", "decide_ms_p99"})
"""figures that differ between any two runs"""
_NO_FIGURES = frozenset({"seed", "jobs", "wall_s"})


@dataclass(frozen=True)
class RunFigures:
    """One entry of `results`: numbers by name, NaN where there is none."""

    policy: str
    seed: int
    figures: Mapping[str, float]


BySeed: TypeAlias = dict[int, RunFigures]


@dataclass(frozen=True)
class ResultsFile:
    """The results of one call of `simulate --json`."""

    path: str
    workload: str
    cluster: str
    runs: tuple[RunFigures, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies in the order in which they ran."""
        return tuple(dict.fromkeys(run.policy for run in self.runs))

    def of(self, policy: str) -> BySeed:
        """The runs of a policy by seed."""
        return {run.seed: run for run in self.runs if run.policy == policy}


@dataclass(frozen=True)
class FigureComparison:
    """One figure of two policies: the means over the seeds that both have, and by how much the second differs.

    `change` is a share of the first mean, and `low` to `high` its interval; NaN where it is undefined, as `p` is.
    """

    figure: str
    policy: str
    against: str
    seeds: int
    before: float
    after: float
    change: float
    low: float
    high: float
    p: float

    def as_json(self) -> dict[str, Any]:
        """The fields by name; None for what is undefined or infinite, which JSON does not have."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def read(path: Path) -> ResultsFile:
    """The results that `simulate --json` wrote to this file.

    Raises:
        DataError
    """
    try:
        if path.stat().st_size > FILE_BYTES:
            raise DataError(f"{path}: is longer than {FILE_BYTES} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON: {error}") from error
    try:
        runs = tuple(map(_run, content["results"]))
        known = ResultsFile(str(path), str(content["workload"]), str(content["cluster"]), runs)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not what `slurmplug simulate --json` writes: {error!r}") from error
    if not runs:
        raise DataError(f"{path} has no results")
    if len({(run.policy, run.seed) for run in runs}) < len(runs):
        raise DataError(f"{path} has two results of one policy and seed")
    return known


def pairs(first: ResultsFile, second: ResultsFile | None, against: str) -> list[tuple[BySeed, BySeed]]:
    """Which policies to compare, as runs by seed of the one and of the other.

    In one file: `against`, or the first policy, and each other one. In two: each policy that both have and itself,
    unless `against` names one of the first file, or it has but one: then this and each of the second file.

    Raises:
        UsageError
    """
    if second and second.workload != first.workload:
        raise UsageError(
            f"{first.path} ran {printable(first.workload)} and {second.path} {printable(second.workload)}: "
            "only runs of one workload can be compared"
        )
    if against and against not in first.policies:
        raise UsageError(f"{first.path} has no policy {against!r}; it has {', '.join(map(printable, first.policies))}")
    if second is None:
        base = against or first.policies[0]
        chosen = [(first.of(base), first.of(each)) for each in first.policies if each != base]
    else:
        both = [each for each in first.policies if each in second.policies]
        base = against or (first.policies[0] if len(first.policies) == 1 else "")
        if base and (against or not both):
            chosen = [(first.of(base), second.of(each)) for each in second.policies]
        else:
            chosen = [(first.of(each), second.of(each)) for each in both]
    if not chosen:
        raise UsageError("no two policies to compare: run several, or name one with --against")
    return chosen


def compare_figures(before: BySeed, after: BySeed, confidence: float) -> list[FigureComparison]:
    """Every figure of both over the seeds that both have.

    Raises:
        UsageError: where they have none in common
    """
    seeds = sorted(before.keys() & after.keys())
    if not seeds:
        raise UsageError("they have no seed in common, and only runs of the same seed can be compared")
    names = [name for name in before[seeds[0]].figures if name in after[seeds[0]].figures]
    made = []
    for name in names:
        values = np.array([[runs[seed].figures.get(name, math.nan) for seed in seeds] for runs in (before, after)])
        known = values[:, ~np.isnan(values).any(axis=0)]
        if known.shape[1]:
            policies = next(iter(after.values())).policy, next(iter(before.values())).policy
            made.append(_comparison(name, policies, known, confidence))
    return made


def identical(before: BySeed, after: BySeed) -> bool:
    """Whether they have the same seeds, and for each the same value of every figure that is not measured."""
    return before.keys() == after.keys() and all(
        _unmeasured(before[seed]) == _unmeasured(after[seed]) for seed in before
    )


def _unmeasured(run: RunFigures) -> dict[str, float | None]:
    """Figures by name, None for NaN, which equals nothing."""
    return {name: None if value != value else value for name, value in run.figures.items() if name not in MEASURED}


def half_width(values: Floats, confidence: float) -> float:
    """Half of Student's interval of the mean of these values (n,); NaN for fewer than two."""
    n = len(values)
    return float(t.ppf((1 + confidence) / 2, n - 1) * values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def _comparison(name: str, policies: tuple[str, str], values: np.ndarray, confidence: float) -> FigureComparison:
    before, after = values
    n, base = len(before), float(before.mean())
    difference = after - before
    if base == 0:
        change = low = high = 0.0 if not difference.any() else math.nan
    else:
        change = float(difference.mean()) / abs(base)
        half = half_width(difference, confidence)
        low, high = change - half / abs(base), change + half / abs(base)
    testable = n >= FEWEST_FOR_A_TEST and difference.any()
    p = float(wilcoxon(difference, zero_method="zsplit").pvalue) if testable else math.nan
    return FigureComparison(name, *policies, n, base, float(after.mean()), change, low, high, p)


def _run(entry: Mapping[str, Any]) -> RunFigures:
    """Raises one of the errors that `read` expects of a malformed entry."""
    figures = {
        str(name): math.nan if value is None else float(value)
        for name, value in entry.items()
        if name not in _NO_FIGURES and (value is None or type(value) in (int, float))
    }
    return RunFigures(str(entry["policy"]), int(entry["seed"]), figures)
