"""States of networks and optimisers as trees of arrays, numbers and texts, which a checkpoint keeps."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from slurmplug.errors import DataError


def plain(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The `state_dict` of each part, without tensors."""
    return {name: _without_tensors(part.state_dict()) for name, part in parts.items()}


def restore(parts: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Load what `plain` returned into parts of the same kinds and sizes.

    Raises:
        DataError: it is of others
    """
    try:
        for name, part in parts.items():
            part.load_state_dict(_with_tensors(states[name]))
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise DataError(f"a checkpoint's networks cannot be continued: {error}") from error


def _without_tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().copy()
    if isinstance(value, Mapping):
        return {str(name): _without_tensors(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tensors(item) for item in value]
    return value


def _with_tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, Mapping):  # an optimiser numbers its parameters
        return {int(name) if name.isdecimal() else name: _with_tensors(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_tensors(item) for item in value]
    return value
