"""What a learnt policy has learnt, as data: named arrays, the version of the features that they are for, and facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Singles: TypeAlias = NDArray[np.float32]
Shapes: TypeAlias = Mapping[str, tuple[int | str, ...]]
"""The shape of each array. A number is that size; a text is any size, the same one wherever the text is the same."""


@dataclass(frozen=True, eq=False)
class Model:
    """The arrays of a learnt policy.

    policy: the name of the policy that it is for. version: of that policy's features and their normalisation, as its
    code has it. arrays: float32 and finite; they cannot be written to. facts: where it is from: seed, workload, steps,
    ... digest: SHA-256 in hexadecimal digits of all the others.

    Raises:
        ValueError: there is no array, or one is not of float32, has no elements, or has one that is not finite.
    """

    policy: str
    version: int
    arrays: Mapping[str, Singles]
    facts: Mapping[str, str] = field(default_factory=dict)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Check the arrays, make them read-only, and take the digest."""
        if not self.arrays:
            raise ValueError("it has no arrays")
        arrays = {name: _read_only(name, self.arrays[name]) for name in sorted(self.arrays)}
        object.__setattr__(self, "arrays", MappingProxyType(arrays))
        object.__setattr__(self, "facts", MappingProxyType(dict(sorted(self.facts.items()))))
        object.__setattr__(self, "digest", _digest(self))

    def require(self, policy: str, version: int, shapes: Shapes, optional: Shapes = MappingProxyType({})) -> None:
        """Check that this is a model of that policy, of that version, with exactly these arrays; and with all of the
        optional ones, or none.

        Raises:
            ValueError: it is not
        """
        if self.policy != policy:
            raise ValueError(f"it is a model of {self.policy!r}, not of {policy!r}")
        if self.version != version:
            raise ValueError(
                f"it is of version {self.version} of {policy}'s features, and this slurmplug has version {version}: "
                "train it again"
            )
        wanted = {**shapes, **optional} if optional.keys() & self.arrays.keys() else shapes
        for mistake in _mistakes(self.arrays, wanted):
            raise ValueError(mistake)


def _read_only(name: str, array: NDArray[Any]) -> Singles:
    if array.dtype != np.float32:
        raise ValueError(f"array {name} is of {array.dtype}, not of float32")
    if not array.size:
        raise ValueError(f"array {name} has no elements")
    if not np.isfinite(array).all():
        raise ValueError(f"array {name} has elements that are not finite")
    own: Singles = np.array(array, order="C")
    own.flags.writeable = False
    return own


def _digest(model: Model) -> str:
    told = sha256(repr((model.policy, model.version, list(model.facts.items()))).encode())
    for name, array in model.arrays.items():
        told.update(repr((name, array.shape)).encode())
        told.update(array.tobytes())
    return told.hexdigest()


def _mistakes(arrays: Mapping[str, Singles], shapes: Shapes) -> Iterator[str]:
    """What is wrong with the names and shapes of the arrays."""
    if missing := sorted(shapes.keys() - arrays.keys()):
        yield f"array {missing[0]} is missing"
    if unknown := sorted(arrays.keys() - shapes.keys()):
        yield f"array {unknown[0]} is not one of the policy's"
    sizes: dict[str, int] = {}
    for name, wanted in shapes.items():
        found = arrays[name].shape
        fits = len(found) == len(wanted) and all(
            have == (sizes.setdefault(want, have) if isinstance(want, str) else want)
            for want, have in zip(wanted, found, strict=True)
        )
        if not fits:
            sized = ", ".join(f"{sizes.get(each, each) if isinstance(each, str) else each}" for each in wanted)
            yield f"array {name} is of shape {found}, not ({sized})"
