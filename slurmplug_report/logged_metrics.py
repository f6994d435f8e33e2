"""Metrics as training frameworks log them, as the quantities of a report. The standard library only, Python 3.8."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Sequence

VALIDATION = ("val", "valid", "validation", "eval", "test")
TRAINING = ("train", "training")
SHORT = {"loss": ("loss",), "accuracy": ("accuracy", "acc")}
"""Quantities that a report has by these names too, and what they are called before or behind the name of a part."""


def quantities(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics by names that a target can name, and the validation's loss and accuracy by these two names.

    Where no validation was logged, `loss` is the training's. `val/loss` becomes `val_loss`, and `Loss/val` `Loss_val`.
    """
    found = {re.sub(r"\W", "_", name): value for name, value in metrics.items()}
    by_lower = {name.lower(): name for name in reversed(list(found))}
    for short, called in SHORT.items():
        first = next((by_lower[name] for name in _names(called) if name in by_lower), None)
        if first is not None:
            found.setdefault(short, found[first])
    return {name: value for name, value in found.items() if name.isidentifier()}


def _names(called: Sequence[str]) -> Iterator[str]:
    """What a quantity may be called, the validation's first."""
    for part in (*VALIDATION, "", *TRAINING):
        for name in called:
            yield from (f"{part}_{name}", f"{name}_{part}") if part else (name,)
