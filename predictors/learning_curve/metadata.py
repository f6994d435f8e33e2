"""What is known of a training run at its start, as columns: hyper-parameters, model, data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats

Meta: TypeAlias = Mapping[str, Any] | None
"""Numbers and texts by name; a mapping inside it (`hp`) counts as part of it, anything else is passed over."""

_RAREST = 3
_MOST_WORDS = 24
_MOST_NUMBERS = 24
_MISSING = -0.5
_KNOTS = np.linspace(0.0, 1.0, 33)


@dataclass(frozen=True, eq=False)
class MetaColumns:
    """Which names and words of past runs are columns: numbers seen in at least three runs, words likewise,
    unless all runs have them, or just the runs that have another.

    knots: (numbers, 33) quantiles of each number: a column holds ranks, as rates and sizes span orders of magnitude.
    """

    numbers: tuple[str, ...] = ()
    knots: Floats = field(default_factory=lambda: np.zeros((0, len(_KNOTS))))
    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, metas: Sequence[Meta]) -> MetaColumns:
        flat = [_flat(meta) for meta in metas]
        count = Counter(name for row in flat for name, value in row.items() if not isinstance(value, str))
        numbers = tuple(name for name, times in count.most_common(_MOST_NUMBERS) if times >= _RAREST)
        known = [[row[name] for row in flat if not isinstance(row.get(name, ""), str)] for name in numbers]
        knots = np.array([np.quantile(np.array(values, dtype=np.float64), _KNOTS) for values in known])
        words = Counter((name, value) for row in flat for name, value in row.items() if isinstance(value, str))
        kinds = Counter(name for name, _ in words)
        columns: dict[bytes, tuple[str, str]] = {}
        for word, times in words.most_common():
            if _RAREST <= times < len(metas) and kinds[word[0]] <= len(metas) / 2:
                columns.setdefault(bytes(row.get(word[0]) == word[1] for row in flat), word)
        telling = list(columns.values())[:_MOST_WORDS]
        return cls(numbers, knots.reshape(-1, len(_KNOTS)), tuple(telling))

    def matrix(self, metas: Sequence[Meta]) -> Floats:
        """(n, columns): ranks of numbers within 0 and 1, below 0 where missing; words as 0 or 1."""
        flat = [_flat(meta) for meta in metas]
        ranks = [
            [_rank(row.get(name), knots) for name, knots in zip(self.numbers, self.knots, strict=True)] for row in flat
        ]
        words = [[float(row.get(name) == word) for name, word in self.words] for row in flat]
        return np.concatenate(
            [
                np.array(part, dtype=np.float64).reshape(len(flat), width)
                for part, width in ((ranks, len(self.numbers)), (words, len(self.words)))
            ],
            axis=1,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        return {
            "numbers": np.array(self.numbers, dtype=np.str_),
            "knots": self.knots,
            "words": np.array(self.words, dtype=np.str_).reshape(-1, 2),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> MetaColumns:
        words = tuple((str(name), str(word)) for name, word in state["words"])
        return cls(tuple(str(name) for name in state["numbers"]), np.asarray(state["knots"]), words)


def _rank(value: float | str | None, knots: Floats) -> float:
    if value is None or isinstance(value, str):
        return _MISSING
    return float(np.searchsorted(knots, value) + np.searchsorted(knots, value, side="right")) / (2.0 * len(knots))


def _flat(meta: Meta) -> dict[str, float | str]:
    """Finite numbers and texts, one level of mappings unfolded."""
    result: dict[str, float | str] = {}
    for name, value in (meta or {}).items():
        inner = value.items() if isinstance(value, Mapping) else [(name, value)]
        for key, item in inner:
            if isinstance(item, str):
                result[str(key)] = item
            elif isinstance(item, int | float | np.number) and np.isfinite(item):
                result[str(key)] = float(item)
    return result
