"""Encodes what is known of a training run at its start (hyper-parameters, model, data set) as numeric columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats

Meta: TypeAlias = Mapping[str, Any] | None
"""Numbers and strings by name. Entries of a nested mapping (`hp`) count as entries of their own; values of any other
type are ignored."""

_FEWEST_RUNS = 3
"""runs that must have a name or a category before it becomes a column"""
_MOST_CATEGORIES = 24
_MOST_NUMBERS = 24
_MISSING = -0.5
_KNOTS = np.linspace(0.0, 1.0, 33)


@dataclass(frozen=True, eq=False)
class MetadataEncoder:
    """The columns into which metadata is encoded: numbers by their rank, categories one-hot.

    A category becomes a column unless all runs share it or exactly the same runs share another one.

    numbers: names of the numeric columns. knots: (numbers, 33) quantiles of each over the past runs; values are encoded
    as ranks because learning rates and sizes span orders of magnitude. words: (name, category) of the other columns.
    """

    numbers: tuple[str, ...] = ()
    knots: Floats = field(default_factory=lambda: np.zeros((0, len(_KNOTS))))
    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def fit(cls, metas: Sequence[Meta]) -> MetadataEncoder:
        """Choose the columns from the metadata of past runs."""
        flat = [_flatten(meta) for meta in metas]
        count = Counter(name for row in flat for name, value in row.items() if not isinstance(value, str))
        numbers = tuple(name for name, times in count.most_common(_MOST_NUMBERS) if times >= _FEWEST_RUNS)
        known = [[row[name] for row in flat if not isinstance(row.get(name, ""), str)] for name in numbers]
        knots = np.array([np.quantile(np.array(values, dtype=np.float64), _KNOTS) for values in known])
        categories = Counter((name, value) for row in flat for name, value in row.items() if isinstance(value, str))
        category_counts = Counter(name for name, _ in categories)
        columns: dict[bytes, tuple[str, str]] = {}
        for category, times in categories.most_common():
            if _FEWEST_RUNS <= times < len(metas) and category_counts[category[0]] <= len(metas) / 2:
                columns.setdefault(bytes(row.get(category[0]) == category[1] for row in flat), category)
        return cls(numbers, knots.reshape(-1, len(_KNOTS)), tuple(list(columns.values())[:_MOST_CATEGORIES]))

    def encode(self, metas: Sequence[Meta]) -> Floats:
        """(n, columns): ranks of numbers in [0, 1], negative where missing; then one column of 0 or 1 a category."""
        flat = [_flatten(meta) for meta in metas]
        ranks = [
            [_rank(row.get(name), knots) for name, knots in zip(self.numbers, self.knots, strict=True)] for row in flat
        ]
        one_hot = [[float(row.get(name) == category) for name, category in self.words] for row in flat]
        return np.concatenate(
            [
                np.array(part, dtype=np.float64).reshape(len(flat), width)
                for part, width in ((ranks, len(self.numbers)), (one_hot, len(self.words)))
            ],
            axis=1,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays, from which `from_state` makes the same encoder."""
        return {
            "numbers": np.array(self.numbers, dtype=np.str_),
            "knots": self.knots,
            "words": np.array(self.words, dtype=np.str_).reshape(-1, 2),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> MetadataEncoder:
        """The encoder whose `state` this is."""
        words = tuple((str(name), str(category)) for name, category in state["words"])
        return cls(tuple(str(name) for name in state["numbers"]), np.asarray(state["knots"]), words)


def _rank(value: float | str | None, knots: Floats) -> float:
    if value is None or isinstance(value, str):
        return _MISSING
    return float(np.searchsorted(knots, value) + np.searchsorted(knots, value, side="right")) / (2.0 * len(knots))


def _flatten(meta: Meta) -> dict[str, float | str]:
    """The finite numbers and strings, those of nested mappings (one level) included."""
    result: dict[str, float | str] = {}
    for name, value in (meta or {}).items():
        inner = value.items() if isinstance(value, Mapping) else [(name, value)]
        for key, item in inner:
            if isinstance(item, str):
                result[str(key)] = item
            elif isinstance(item, int | float | np.number) and np.isfinite(item):
                result[str(key)] = float(item)
    return result
