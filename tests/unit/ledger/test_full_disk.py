"""A ledger on a disk that fills up."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.errors import LedgerError
from tests.ledgers import Site


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 900 kB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "none", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_a_small_disk_is_not_filled_by_what_only_waits_to_be_moved(disk: Path) -> None:
    with Site(disk) as site:
        for _ in range(20):
            site.cluster.submit()
        site.cycle(40)


def test_a_disk_that_was_full_is_used_again_as_soon_as_there_is_room(disk: Path) -> None:
    with Site(disk) as site:
        site.cycle()
        others = os.open(disk / "of others", os.O_CREAT | os.O_WRONLY)
        os.posix_fallocate(others, 0, os.fstatvfs(others).f_bavail * 4096)
        os.close(others)
        for _ in range(100):
            site.cluster.submit()
        with pytest.raises(LedgerError, match="make room on its disk"):
            site.cycle(200)
        (disk / "of others").unlink()
        site.cycle(3)
        assert site.ledger.query("SELECT count(*) AS n FROM cycles WHERE finished IS NULL") == [{"n": 0}]
