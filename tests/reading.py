"""A reader of report files whose clock does not depend on the machine."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slurmplug.spool.read_file import ReadFile
from slurmplug.spool.report_files import NewReports, ReadLimits, ReportReader

DEFAULT = ReadLimits()
NO_FILES: Mapping[str, ReadFile] = MappingProxyType({})


class ReaderOnceAMinute(ReportReader):
    """A reader by whose clock a minute passes before each reading, and nothing meanwhile."""

    def __init__(self, spool: Path, limits: ReadLimits = DEFAULT, files: Mapping[str, ReadFile] = NO_FILES) -> None:
        self._minutes = 0
        super().__init__(spool, limits, files, lambda: 60.0 * self._minutes)

    def read(self, *arguments: Any, **named: Any) -> NewReports:
        self._minutes += 1
        return super().read(*arguments, **named)
