"""The inputs of a cycle as what changed since an earlier cycle: most of both is the same.

Arrays are compared row by row. Where an array of either has one row for each job, rows of the same job are compared, so
that jobs that come and go shift nothing.
"""

import json
import math
import zlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurmplug.ledger import codec

Array = NDArray[Any]


class Parts(NamedTuple):
    """A value as `codec.parts` takes it apart, and the jobs (n,) that arrays of n rows are about."""

    skeleton: bytes
    arrays: Sequence[Array]
    jobs: Sequence[Hashable]


def parts(value: Any, jobs: Sequence[Hashable]) -> Parts:
    """Take a value apart. Raises TypeError where `codec.dumps` does."""
    return Parts(*codec.parts(value), jobs)


def whole(given: Parts) -> bytes:
    """The bytes of a value, as `codec.dumps` makes them."""
    return codec.pack(given.skeleton, given.arrays)


def difference(given: Parts, base: Parts) -> bytes:
    """The bytes of what of a value is not in `base`, from which `restored` makes the value again, bit by bit."""
    places = {job: row for row, job in enumerate(base.jobs)}
    rows = np.array([places.get(job, -1) for job in given.jobs], dtype=np.int32)
    stored: dict[str, Array] = {"jobs": rows - np.arange(len(rows), dtype=np.int32)}
    lengths: dict[str, int] = {}
    for at, array in enumerate(given.arrays):
        before = base.arrays[at] if at < len(base.arrays) else None
        if before is None or before.dtype != array.dtype or before.shape[1:] != array.shape[1:] or not array.ndim:
            stored[str(at)] = array
            continue
        start = _start(before, rows, len(base.jobs), array.shape)
        changed = np.flatnonzero(_differ(start, array))
        if not len(changed):
            lengths[str(at)] = len(array)
        elif 2 * len(changed) < len(array):
            lengths[str(at)] = len(array)
            stored[f"{at}.rows"], stored[f"{at}.values"] = changed.astype(np.int32), array[changed]
        elif (added := _added(start, array)) is not None:
            stored[f"{at}.added"] = added
        else:
            stored[str(at)] = array
    shapes = {name: (array.dtype.str, array.shape) for name, array in stored.items()}
    header = [json.loads(given.skeleton), len(base.jobs), lengths, shapes]
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in stored.values())
    return zlib.compress(json.dumps(header).encode() + b"\n" + data)


def restored(data: bytes, base: bytes) -> Any:
    """The value of a `difference`, as `codec.loads` returns it. Raises ValueError: these are not such bytes."""
    before = codec.arrays(base)
    try:
        header, _, rest = zlib.decompress(data).partition(b"\n")
        skeleton, jobs, lengths, shapes = json.loads(header)
        stored = _cut(shapes, rest)
        rows = stored.pop("jobs")
        rows = rows + np.arange(len(rows), dtype=np.int32)
        found = {name: array for name, array in stored.items() if name.isdigit()}
        for at, length in lengths.items():
            found[at] = _start(before[at], rows, jobs, (length, *before[at].shape[1:]))
            if f"{at}.rows" in stored:
                found[at][stored[f"{at}.rows"]] = stored[f"{at}.values"]
        for name, array in stored.items():
            at, _, kind = name.partition(".")
            if kind == "added":
                found[at] = _start(before[at], rows, jobs, array.shape) + array
        return codec.filled(skeleton, found)
    except codec.DAMAGE as error:
        raise ValueError(f"not a difference to this base: {error}") from error


def _cut(shapes: Mapping[str, tuple[str, Sequence[int]]], data: bytes) -> dict[str, Array]:
    """The arrays that lie one after the other in these bytes."""
    found, at = {}, 0
    for name, (kind, shape) in shapes.items():
        dtype = np.dtype(kind)
        count = math.prod(shape)
        found[name] = np.frombuffer(data, dtype, count, at).reshape(shape) if dtype.itemsize else np.zeros(shape, dtype)
        at += count * dtype.itemsize
    return found


def _start(before: Array, rows: Array, jobs: int, shape: tuple[int, ...]) -> Array:
    """An array of that shape with the rows of `before`: those of the same jobs, or else those at the same place; zeros
    where there are none."""
    start = np.zeros(shape, dtype=before.dtype)
    if shape[0] == len(rows) and len(before) == jobs:
        known = rows >= 0
        start[known] = before[rows[known]]
    else:
        common = min(len(before), shape[0])
        start[:common] = before[:common]
    return start


def _differ(one: Array, other: Array) -> Array:
    """(n,) whether rows differ in any bit."""
    width = one.itemsize * int(np.prod(one.shape[1:]))
    if not width or not len(one):
        return np.zeros(len(one), dtype=bool)
    one, other = (np.ascontiguousarray(each).view(np.uint8).reshape(len(each), width) for each in (one, other))
    return np.asarray((one != other).any(axis=1))


def _added(start: Array, array: Array) -> Array | None:
    """What added to `start` is `array`, bit by bit; None where there is no such thing. The time that passes is one
    number in every row, which takes next to nothing."""
    if array.dtype.kind != "f":
        return None
    with np.errstate(all="ignore"):
        added = array - start
        again = start + added
    return None if _differ(again, array).any() else added
