"""Files of learnt models: safetensors, with the policy, version and facts in the file's metadata.

A file holds nothing that is executed. Whatever it holds, it is either the model that it states or refused.
"""

import json
import os
import re
import stat
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from policies.model import Model
from slurmplug.errors import DataError

LARGEST = 16 * 2**20
"""bytes of a file that is read; the models that slurmplug comes with are under 5 MB"""
LARGEST_HEADER = 64 * 2**10
"""bytes of its header: names, types and shapes of the arrays, and the facts"""
MOST_ARRAYS = 512
MOST_DIMENSIONS = 4
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}", re.ASCII)
_FACT = "fact."
"""begins the names of the facts in the metadata"""


def read(path: Path) -> Model:
    """Read a model's file.

    Raises:
        DataError: it cannot be read, others may have written it, or it is not a model
    """
    return parse(content(path), str(path))


def content(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a file, at most `largest`, that belongs to root or to this user, and that others cannot write.

    Raises:
        DataError: it does not, cannot be read, is no file, or is larger than a model
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:  # a pipe too
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise DataError(f"model {path} cannot be read: it is not a file")
            if about.st_mode & stat.S_IWOTH or about.st_uid not in (0, os.geteuid()):
                raise DataError(f"model {path} is not used: it belongs to another user, or everybody can write it")
            data = file.read(largest + 1)
    except (OSError, ValueError) as error:
        raise DataError(f"model {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > largest:
        raise DataError(f"model {path} is not used: it is larger than {largest // 2**20} MiB")
    return data


def shipped(policy: str) -> Model | None:
    """The model of a policy that slurmplug comes with, if it comes with one.

    Raises:
        DataError: it is damaged
    """
    found = files("policies") / "models" / f"{policy}.safetensors"
    return parse(found.read_bytes(), str(found)) if found.is_file() else None


def parse(data: bytes, name: str) -> Model:
    """The model in the bytes of a file; `name` is what error messages call it.

    Raises:
        DataError: it is not a model
    """
    try:
        metadata = _checked_metadata(data)
        facts = {key.removeprefix(_FACT): text for key, text in metadata.items() if key.startswith(_FACT)}
        return Model(metadata["policy"], int(metadata["version"]), load(data), facts)
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DataError(f"model {name} is not used: {error}") from error


def encode(model: Model) -> bytes:
    """The bytes of a model's file: the same ones of the same model."""
    facts = {_FACT + key: text for key, text in model.facts.items()}
    metadata = {"policy": model.policy, "version": str(model.version), **facts}
    data = _header_in_order(save(dict(model.arrays), metadata))
    parse(data, f"of {model.policy}")
    return data


def _header_in_order(data: bytes) -> bytes:
    """The file with its header in the order of the names; the library writes the metadata in an order that it draws."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[end:]


def write(model: Model, path: Path) -> None:
    """Write a model's file, whole or not at all.

    Raises:
        DataError: it cannot be written, or no model of this size or with these names can be read
    """
    data = encode(model)
    if len(data) > LARGEST:
        raise DataError(f"model {path} is not written: it is larger than {LARGEST // 2**20} MiB")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(data)
        unfinished.chmod(0o644)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise DataError(f"model {path} cannot be written: {error.strerror}") from error


def _checked_metadata(data: bytes) -> dict[str, str]:
    """The metadata, of a header that states nothing but a bounded number of named float32 arrays.

    Raises:
        SafetensorError: it states something else
    """
    if len(data) < 8 or not 0 < (length := int.from_bytes(data[:8], "little")) <= min(LARGEST_HEADER, len(data) - 8):
        raise SafetensorError("it is not a safetensors file, is cut short, or its header is too large")
    header: Any = json.loads(data[8 : 8 + length])
    if not isinstance(header, dict) or not isinstance(metadata := header.pop("__metadata__", None), dict):
        raise SafetensorError("it is a safetensors file without a model's metadata: `slurmplug train` writes models")
    if len(header) > MOST_ARRAYS:
        raise SafetensorError(f"it has more than {MOST_ARRAYS} arrays")
    for name, about in header.items():
        if not _NAME.fullmatch(name):
            raise SafetensorError(f"{name!r:.100} is not a name of an array")
        if not isinstance(about, dict) or about.get("dtype") != "F32":
            raise SafetensorError(f"array {name} is not of float32")
        shape = about.get("shape")
        if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
            raise SafetensorError(f"array {name} has more than {MOST_DIMENSIONS} dimensions")
    for key in ("policy", "version"):
        if not isinstance(metadata.get(key), str):
            raise SafetensorError(f"its metadata has no {key}")
    if not re.fullmatch(r"[0-9]{1,9}", metadata["version"], re.ASCII):
        raise SafetensorError(f"its version is {metadata['version']!r:.100}, not a whole number")
    return {key: str(text) for key, text in metadata.items()}
