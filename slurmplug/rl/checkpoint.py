"""What a training has done so far, in a file: one that was killed goes on from there, to the same end."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slurmplug.config.model_files import content
from slurmplug.errors import DataError, UsageError
from slurmplug.ledger import codec

T = TypeVar("T")
SHARE = 20
"""times as long as a write takes is trained before the next"""
LARGEST = 2**30
"""bytes of a file that is read"""


@dataclass
class Checkpoint:
    """The file of a training's state.

    path: None keeps nothing. about: the policy and the settings, by name; a state is of no use to others. every: the
    least seconds between two writes, which take at most a twentieth of the time.
    """

    path: Path | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    every: float = 5.0
    _due: float = 0.0

    def part(self, name: str) -> "Checkpoint":
        """The checkpoint of a part of the training, in a file beside this one."""
        path = None if self.path is None else self.path.with_name(f"{self.path.name}.{name}")
        return Checkpoint(path, self.about, self.every)

    def load(self, kind: type[T]) -> T | None:
        """The state that was kept last, of that dataclass; None where there is none.

        Raises:
            DataError: it cannot be read, or is of another release
            UsageError: it is of a training with other settings
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            kept = codec.rebuild(_Kept, codec.loads(content(self.path, LARGEST)))
            if kept.about == self.about:
                return codec.rebuild(kind, kept.state)  # type: ignore[no-any-return]
        except ValueError as error:
            raise DataError(
                f"checkpoint {self.path} is damaged or of another release: remove it to begin anew"
            ) from error
        raise UsageError(
            f"{self.path} is of a training with other settings ({_difference(kept.about, self.about)}): give the same "
            "ones, or another --out, or remove it"
        )

    def keep(self, state: Callable[[], Any]) -> None:
        """Write the state, a dataclass that `ledger.codec` can store, whole or not at all, where it is time to.

        Raises:
            DataError: it cannot be written
        """
        if self.path is None or (begin := time.monotonic()) < self._due:
            return
        data = codec.dumps(_Kept(dict(self.about), state()), packed=False)
        unfinished = self.path.with_name(f".{self.path.name}.{socket.gethostname()}.{os.getpid()}")
        try:
            self.path.parent.mkdir(exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise DataError(f"checkpoint {self.path} cannot be written: {error.strerror}") from error
        end = time.monotonic()
        self._due = end + max(self.every, SHARE * (end - begin))

    def remove(self) -> None:
        """The training has ended: neither this one nor its parts are needed."""
        if self.path is not None:
            for path in (self.path, *self.path.parent.glob(f"{self.path.name}.*")):
                path.unlink(missing_ok=True)


NOTHING_KEPT = Checkpoint()


@dataclass(frozen=True)
class _Kept:
    about: dict[str, str]
    state: Any


def generator(state: Mapping[str, Any]) -> np.random.Generator:
    """A generator of random numbers, in the state of another one's `bit_generator.state`.

    Raises:
        DataError: that is no such state
    """
    rng = np.random.default_rng()
    try:
        rng.bit_generator.state = state
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise DataError(f"a checkpoint's random numbers cannot be continued: {error}") from error
    return rng


def _difference(kept: Mapping[str, str], given: Mapping[str, str]) -> str:
    names = [name for name in {**kept, **given} if kept.get(name) != given.get(name)]
    return ", ".join(f"{name} {kept.get(name, 'unset')}, not {given.get(name, 'unset')}" for name in names[:3])
