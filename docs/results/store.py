"""Results of runs, kept on disk by what was run and by the code that ran it: an interrupted `make results` goes on."""

import hashlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CODE = (
    "policies",
    "predictors",
    "slurmplug",
    "docs/results/cases.py",
    "docs/results/papers.py",
    "docs/measure_plain.py",
)
"""What a result depends on, beside the libraries and the data; a change of any file of it makes all results anew."""
LIBRARIES = ("numpy", "scipy", "scikit-learn")


def described(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """The call of a module's function in words: equal for equal calls."""
    return f"{function.__module__}.{function.__qualname__}{arguments!r}"


@dataclass(frozen=True)
class Store:
    """Results of functions in `folder`, one file for each call; of `data`, the folder of the workloads."""

    folder: Path
    data: str

    def result(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The function's result for these arguments: the one kept, or computed now."""
        kept = self.folder / _digest(described(function, arguments), code(), _state(self.data))
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            new = kept.with_suffix(".new")
            new.write_bytes(pickle.dumps(function(*arguments)))
            new.replace(kept)
        return pickle.loads(kept.read_bytes())


@cache
def code() -> str:
    """A digest of the code in the working tree and of the libraries' versions."""
    files = [path for name in CODE for path in _files(ROOT / name)]
    parts = [part for path in files for part in (str(path.relative_to(ROOT)), path.read_bytes())]
    return _digest(*map(version, LIBRARIES), *parts)


@cache
def _state(folder: str) -> str:
    """A digest of the names, sizes and times of the files in a folder."""
    files = _files(Path(folder)) if folder else ()
    return _digest(*(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files))


def _files(path: Path) -> Iterator[Path]:
    """The file, or those of the folder but for compiled ones, in order."""
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return (each for each in found if each.is_file() and each.suffix != ".pyc")


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()
