"""Results of runs, kept on disk by what was run and by the code that ran it: an interrupted `make results` goes on."""

import ast
import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RUNS = (
    "policies",
    "predictors",
    "slurmplug/sim",
    "docs/results/cases.py",
    "docs/results/dl2.py",
    "docs/results/learnt.py",
    "docs/results/papers.py",
    "docs/measure_plain.py",
)
"""What makes the results; they also depend on what these import, and on the libraries and the data."""
LIBRARIES = ("numpy", "scipy", "scikit-learn")


def described(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """The call of a module's function in words: equal for equal calls."""
    return f"{function.__module__}.{function.__qualname__}{arguments!r}"


class Kept(NamedTuple):
    """A result, and the seconds of the processor that it took."""

    value: Any
    seconds: float


@dataclass(frozen=True)
class Store:
    """Results of functions in `folder`, one file for each call; of `data`, the folder of the workloads."""

    folder: Path
    data: str

    def result(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Kept:
        """The function's result for these arguments: the one kept, or computed now."""
        kept = self.folder / _digest(described(function, arguments), code(), _state(self.data))
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            new = kept.with_suffix(".new")
            began = process_time()
            new.write_bytes(pickle.dumps((function(*arguments), process_time() - began)))
            new.replace(kept)
        return Kept(*pickle.loads(kept.read_bytes()))


@cache
def code() -> str:
    """A digest of the code in the working tree and of the libraries' versions."""
    files = needed([path for name in RUNS for path in _files(ROOT / name)])
    parts = [part for path in files for part in (str(path.relative_to(ROOT)), path.read_bytes())]
    return _digest(*map(version, LIBRARIES), *parts)


def needed(files: Iterable[Path]) -> list[Path]:
    """These files and, of Python's among them, all modules of the project that they import, in order."""
    found: set[Path] = set()
    ahead = list(files)
    while ahead:
        path = ahead.pop()
        if path not in found:
            found.add(path)
            ahead += _imported(path) if path.suffix == ".py" else ()
    return sorted(found)


def _imported(path: Path) -> Iterator[Path]:
    """The modules of the project that this one imports, and the packages that they are in."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names]
        for name in names:
            parts = name.split(".")
            places = [ROOT.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)]
            files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
            yield from (file for file in files if file.is_file())


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
