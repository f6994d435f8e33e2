"""TensorBoard's event files, read as a program writes them, by the package tensorboard. Python 3.8."""

from __future__ import annotations

import os
from typing import Any, Iterator

from tensorboard.backend.event_processing.directory_watcher import DirectoryWatcher
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.backend.event_processing.io_wrapper import IsSummaryEventsFile
from tensorboard.util import tensor_util

from slurmplug_report.log_files import Row
from slurmplug_report.logged_metrics import quantities

SCALARS = "scalars"
"""TensorBoard's plugin for single numbers."""


class TensorBoardLog:
    """A folder that a SummaryWriter writes to. What it had before is of an earlier run, and not read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._watcher: Any = None
        self._tags: dict[str, str] = {}
        for _ in self.rows():
            pass

    def rows(self) -> Iterator[Row]:
        """The scalars that were written since the last call, by step; none while there is no folder. Raises OSError."""
        if self._watcher is None:
            if not os.path.isdir(self._folder):
                return
            self._watcher = DirectoryWatcher(self._folder, EventFileLoader, IsSummaryEventsFile)
        for event in self._watcher.Load():
            found = {}
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == SCALARS or value.tag in self._tags:
                    self._tags[value.tag] = value.tag
                    found[value.tag] = float(tensor_util.make_ndarray(value.tensor))
            named = {name: found[tag] for name, tag in quantities(self._tags).items() if tag in found}
            if named:
                yield str(event.step), named
