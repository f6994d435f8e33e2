"""The figures of a training as curves that TensorBoard shows."""

from collections.abc import Mapping
from pathlib import Path

from tensorboard.summary import Writer


class Curves:
    """Event files in a folder, which is made for the first figures; each run of a training adds one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Writer | None = None

    def add(self, stage: str, step: int, figures: Mapping[str, float]) -> None:
        """A point of the curve stage/name of each figure, which a reader finds at once."""
        if self._writer is None:
            self._writer = Writer(str(self._folder))
        for name, value in figures.items():
            self._writer.add_scalar(f"{stage}/{name}", value, step)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
