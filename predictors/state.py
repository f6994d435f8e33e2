"""Model states: flat mappings of arrays and plain values, whose keys are prefixed where a model contains others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

State: TypeAlias = dict[str, Any]


def prefixed(prefix: str, state: Mapping[str, Any]) -> State:
    """The state with `prefix` put before each key."""
    return {prefix + name: value for name, value in state.items()}


def unprefixed(prefix: str, state: Mapping[str, Any]) -> State:
    """The part of the state whose keys start with `prefix`, which is removed from them."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
