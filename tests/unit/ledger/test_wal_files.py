"""What is done to the files beside the ledger while it is open is noticed by the next cycle, and nothing is damaged."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.ledger.schema import MIGRATIONS
from tests.ledgers import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        site.cluster.submit()
        site.cycle(5)
        yield site


def beside(site: Site, ending: str) -> Path:
    return site.path.with_name(site.path.name + ending)


def elsewhere(ledger: Path, script: str) -> str:
    """What another process prints of the ledger, which it has as `path`."""
    script = f"import sys; from pathlib import Path; path = Path(sys.argv[1])\n{script}"
    return subprocess.run([sys.executable, "-c", script, ledger], stdout=subprocess.PIPE, text=True, check=True).stdout


def sound(site: Site) -> bool:
    """Whether another process finds a ledger without damage, with every job."""
    script = """import sqlite3; db = sqlite3.connect(path)
print(db.execute('PRAGMA integrity_check').fetchone()[0], *db.execute('SELECT count(*) FROM jobs').fetchone())"""
    return elsewhere(site.path, script).split() == ["ok", str(len(site.cluster.jobs))]


@pytest.mark.parametrize("gone", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids="+".join)
def test_what_is_removed_is_made_anew_and_nothing_is_lost(site: Site, gone: list[str]) -> None:
    for ending in gone:
        beside(site, ending).unlink()
    site.cluster.submit()
    site.cycle()
    assert all(beside(site, ending).exists() for ending in ("-wal", "-shm"))
    assert sound(site)
    site.cluster.submit()
    site.cycle(3)
    assert sound(site)


@pytest.mark.parametrize("size", [0, 4_096, 32_000])
def test_an_index_that_was_truncated_is_made_anew(site: Site, size: int) -> None:
    os.truncate(beside(site, "-shm"), size)
    site.cluster.submit()
    site.cycle(2)
    assert sound(site)


@pytest.mark.parametrize("part", [0, 0.5], ids=["all of it", "half of it"])
def test_a_log_that_was_truncated_ends_the_daemon_before_any_of_it_is_copied(tmp_path: Path, part: float) -> None:
    script = f"""
import os
from slurmplug.errors import LedgerLost
from tests.ledgers import Site
site = Site(path.parent)
site.cluster.submit()
site.cycle(5)
log = path.with_name("ledger.db-wal")
os.truncate(log, int({part} * log.stat().st_size))
before = path.read_bytes()
try:
    site.cycle()
except LedgerLost as error:
    print(error)
site.ledger.close()
print(path.read_bytes() == before)
"""
    says, untouched = elsewhere(tmp_path / "ledger.db", script).splitlines()
    assert re.search("-wal was truncated: start", says)
    assert untouched == "True"
    again = "from slurmplug.ledger.ledger import Ledger; print(Ledger(path).value('PRAGMA user_version'))"
    assert int(elsewhere(tmp_path / "ledger.db", again)) == len(MIGRATIONS)
