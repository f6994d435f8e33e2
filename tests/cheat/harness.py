"""Cheaters and their honest twins: what a claim gains for its user, and costs everybody else.

A row is one kind of claim. Its `play` is told which attempt to make, `HONEST` or one of the row's own, and answers what
its user and the bystanders came to have, in numbers of which more is better. The cheater adapts: of all attempts it
keeps the one that gains most over the honest twin in the mean over the seeds. To add a row, write a module
`tests/cheat/row_*.py` with `ROWS`.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from slurmplug.sandbox import Sandbox

HONEST = "honest"
SEEDS = 3
"""The bounds are those of the means over so many seeds."""


class Outcome(NamedTuple):
    """What an attempt led to: numbers above 0, more is better, such as a score or 1 / seconds."""

    own: float
    """what who claims has"""
    others: float = 1.0
    """what bystanders have"""


@dataclass(frozen=True)
class Stage:
    """Where an attempt is played. `cluster`: a real Slurm with an empty queue, for rows with `live`."""

    seed: int = 0
    cluster: Sandbox | None = None


@dataclass(frozen=True)
class Row:
    """One kind of claim. `gain` and `harm`: the bounds, as `docs/security.md` states them; 1 is none."""

    name: str
    claim: str
    measure: str
    """what is compared"""
    attempts: tuple[str, ...]
    play: Callable[[str, Stage], Outcome]
    gain: float = 1.05
    harm: float = 1.05
    live: bool = False


@dataclass(frozen=True)
class Verdict:
    """The most that any attempt gained and harmed, as ratios to the honest twin, and which gained it."""

    row: Row
    best: str
    gain: float
    harm: float

    @property
    def ok(self) -> bool:
        """Whether both bounds hold."""
        return self.gain <= self.row.gain and self.harm <= self.row.harm


def judge(row: Row, stages: Sequence[Stage]) -> Verdict:
    """Play every attempt on every stage, beside the honest twin's. Ratios are geometric means over the stages."""
    honest = np.log([row.play(HONEST, stage) for stage in stages])
    gains, harms = {}, {}
    for attempt in row.attempts:
        own, others = np.exp((np.log([row.play(attempt, stage) for stage in stages]) - honest).mean(axis=0))
        gains[attempt], harms[attempt] = float(own), float(1 / others)
    best = max(gains, key=gains.__getitem__)
    return Verdict(row, best, gains[best], max(harms.values()))


def rows() -> tuple[Row, ...]:
    """Every row of every module here, by name."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("row_*.py"))
    found = [row for module in modules for row in importlib.import_module(f"tests.cheat.{module}").ROWS]
    return tuple(found)


def table(verdicts: Sequence[Verdict]) -> str:
    """The verdicts in columns."""
    lines = [("row", "claim", "compared", "best attempt", "gain", "at most", "harm", "at most", "")]
    for each in verdicts:
        row = each.row
        bounds = (f"{each.gain:.2f}", f"{row.gain:.2f}", f"{each.harm:.2f}", f"{row.harm:.2f}")
        lines.append((row.name, row.claim, row.measure, each.best, *bounds, "ok" if each.ok else "BROKEN"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
