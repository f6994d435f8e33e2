"""Values to bytes and back, without pickle: how the ledger stores the inputs of a cycle and the state of a model.

The bytes are NumPy's npz format (numpy.lib.format): the arrays of the value, and a JSON skeleton that says where each
belongs. Arrays of text are stored as their distinct texts and an index into them, as are tables whose rows repeat.
"""

import functools
import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_ARRAY, _TEXTS, _ROWS = _MARKS = ("@array", "@texts", "@rows")
_MIN_ROWS = 64
"""Named tuples are stored by columns, and tables by their distinct rows, if there are at least this many."""
_LEVEL = 1
"""zlib's fastest: a cycle's inputs are written within that cycle"""
_PLAIN = (str, int, float)
DAMAGE = (
    OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error, SyntaxError, OverflowError, tokenize.TokenError,
)  # fmt: skip
"""What NumPy and zipfile raise over bytes that were cut or changed."""


def dumps(value: Any, *, packed: bool = True) -> bytes:
    """The bytes of a tree of dataclasses, mappings with text keys, sequences, arrays, texts and numbers.

    `packed`: whether they are compressed, which takes longer than all else; not worth it for what is soon replaced.

    Raises:
        TypeError: something else is in it.
    """
    return pack(*parts(value), packed=packed)


def parts(value: Any) -> tuple[bytes, list[NDArray[Any]]]:
    """The JSON skeleton of such a tree, and the arrays that it refers to by their places. Raises TypeError."""
    arrays: list[NDArray[Any]] = []
    return json.dumps(_skeleton(value, arrays)).encode(), arrays


def pack(skeleton: bytes, arrays: Sequence[NDArray[Any]], *, packed: bool = True) -> bytes:
    """The bytes of such parts, as `dumps` makes them."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method, compresslevel=_LEVEL) as archive:
        for name, array in [("skeleton", np.frombuffer(skeleton, dtype=np.uint8)), *enumerate(arrays)]:
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in what `dumps` made, by their places in digits. Raises ValueError: these are not such bytes."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGE as error:
        raise ValueError(f"not a value of this codec: {error}") from error


def loads(data: bytes) -> Any:
    """The tree from its bytes, with dataclasses as mappings and sequences as lists.

    Raises:
        ValueError: these are not bytes that `dumps` made.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return filled(json.loads(archive["skeleton"].tobytes()), archive)
    except DAMAGE as error:
        raise ValueError(f"not a value of this codec: {error}") from error


def rebuild(kind: Any, tree: Any) -> Any:
    """Turn what `loads` returned into a value of the type `kind`: dataclasses, named tuples, sequences and mappings.

    Raises:
        ValueError: the tree is of another type.
    """
    return _adapter(kind).validate_python((tree,))[0]


@functools.cache
def _adapter(kind: Any) -> "TypeAdapter[tuple[Any]]":
    """In a tuple, as pydantic takes no settings for a dataclass alone. Arrays are only checked to be arrays."""
    from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415  it takes long to load, and most reports do without

    return TypeAdapter(tuple[kind], config=ConfigDict(arbitrary_types_allowed=True))


def _skeleton(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """The value as JSON has it, with references to its arrays, which are appended to `arrays`."""
    if isinstance(value, np.ndarray):
        return _array_skeleton(value, arrays)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _skeleton(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        if not value.keys().isdisjoint(_MARKS):
            raise TypeError(f"a mapping with the key {' or '.join(_MARKS)} cannot be kept")
        return {str(key): _skeleton(item, arrays) for key, item in value.items()}
    if isinstance(value, str | bool | int | float | None):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list) and len(value) >= _MIN_ROWS and (columns := _by_columns(value)):
        return {_ROWS: [_skeleton(column, arrays) for column in columns]}
    if isinstance(value, Sequence | frozenset | set) and not isinstance(value, bytes):
        return [item if item.__class__ in _PLAIN else _skeleton(item, arrays) for item in value]
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def _array_skeleton(value: NDArray[Any], arrays: list[NDArray[Any]]) -> Any:
    if value.dtype.kind == "U":
        arrays.extend(_distinct(value))
        return {_TEXTS: len(arrays) - 2}
    if value.dtype.kind not in "bifu":
        raise TypeError(f"an array of {value.dtype} cannot be kept; use numbers, truth values or texts")
    if value.ndim == 2 and value.shape[1] and len(value) >= _MIN_ROWS:
        distinct, index = _distinct_rows(value)
        if 2 * len(distinct) < len(value):
            arrays.extend((distinct, index))
            return {_TEXTS: len(arrays) - 2}
    arrays.append(value)
    return {_ARRAY: len(arrays) - 1}


def _distinct(texts: NDArray[np.str_]) -> tuple[NDArray[np.str_], NDArray[np.int32]]:
    """The distinct texts, and an array like `texts` of indices into them."""
    found, index = _numbered(texts.ravel().tolist())
    return np.array(found, dtype=np.str_), index.reshape(texts.shape)


def _distinct_rows(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The distinct rows (m, k) of a table (n, k), compared bit by bit, and an index into them for each row (n,)."""
    data, width = table.tobytes(), table.itemsize * table.shape[1]
    found, index = _numbered([data[start : start + width] for start in range(0, len(data), width)])
    return np.frombuffer(b"".join(found), dtype=table.dtype).reshape(-1, table.shape[1]), index


def _numbered(values: list[T]) -> tuple[list[T], NDArray[np.int32]]:
    """The distinct values in order of first occurrence, and an index into them for each value."""
    numbers = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return list(numbers), np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))


def _by_columns(rows: Sequence[Any]) -> list[NDArray[Any]]:
    """The columns of these rows, if they are named tuples of one class and every column has one type; else empty."""
    kind = type(rows[0])
    if not hasattr(kind, "_fields") or any(row.__class__ is not kind for row in rows):
        return []
    columns = []
    for values in zip(*rows, strict=True):
        types = set(map(type, values))
        if len(types) > 1 or types.pop() not in _PLAIN:
            return []
        column = np.array(values)
        if column.dtype.kind not in "ifU" or column.tolist() != list(values):
            return []
        columns.append(column)
    return columns


def filled(skeleton: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value of a skeleton, with its arrays in their places."""
    if isinstance(skeleton, dict):
        if _ARRAY in skeleton:
            return arrays[str(skeleton[_ARRAY])]
        if _TEXTS in skeleton:
            at = skeleton[_TEXTS]
            return arrays[str(at)][arrays[str(at + 1)]]
        if _ROWS in skeleton:
            columns = (filled(column, arrays).tolist() for column in skeleton[_ROWS])
            return [list(row) for row in zip(*columns, strict=True)]
        return {key: filled(item, arrays) for key, item in skeleton.items()}
    if isinstance(skeleton, list):
        return [filled(item, arrays) for item in skeleton]
    return skeleton
