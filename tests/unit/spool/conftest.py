"""A spool's folders."""

from pathlib import Path

import pytest


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "reports").mkdir()
    (tmp_path / "requests").mkdir()
    return tmp_path


@pytest.fixture
def reports(spool: Path) -> Path:
    return spool / "reports"
