"""backup: a copy of the ledger, taken while the daemon writes."""

import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.ledger.ledger import Ledger
from tests.ledgers import Site, run


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        site.cluster.start(site.cluster.submit(user="ada"))
        site.cycle()
        yield site


def test_the_copy_tells_what_the_ledger_told_then(site: Site, tmp_path: Path) -> None:
    before = site.ask("why", "1")
    assert site.ask("backup", str(tmp_path / "copy.db")) == f"{tmp_path}/copy.db: backed up\n"
    site.cluster.end(1)
    site.cycle()
    assert site.ask("why", "1") != before
    assert run("why", "--ledger", str(tmp_path / "copy.db"), "1").output == before


def test_a_daemon_goes_on_from_the_copy(site: Site, tmp_path: Path) -> None:
    site.ask("backup", str(tmp_path / "copy.db"))
    copy = Ledger(tmp_path / "copy.db")
    assert [record.key.job_id for record in copy.live_records()] == [1]
    assert copy.next_cycle() == site.ledger.next_cycle()
    copy.close()


def test_it_is_its_owners_only(site: Site, tmp_path: Path) -> None:
    site.ask("backup", str(tmp_path / "copy.db"))
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600


def test_the_ledger_is_left_as_it_is(site: Site, tmp_path: Path) -> None:
    before = site.path.read_bytes()
    site.ask("backup", str(tmp_path / "copy.db"))
    assert site.path.read_bytes() == before


def test_a_file_that_is_there_is_never_overwritten(site: Site, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("mine")
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere")
    for name in ("copy.db", "link.db"):
        assert f"{name} exists already: name a new file" in site.ask("backup", str(tmp_path / name), code=1)
    assert (tmp_path / "copy.db").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_is_not_there_is_named(site: Site, tmp_path: Path) -> None:
    output = site.ask("backup", str(tmp_path / "none/copy.db"), code=1)
    assert "none/copy.db cannot be written: No such file or directory" in output


def test_no_file_is_left_of_a_backup_that_failed(site: Site, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1_024, hard))
    try:
        output = site.ask("backup", str(tmp_path / "copy.db"), code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"no backup was written to {tmp_path}/copy.db" in output
    assert not (tmp_path / "copy.db").exists()


def test_a_missing_ledger_makes_no_file(tmp_path: Path) -> None:
    assert run("backup", "--ledger", str(tmp_path / "none.db"), str(tmp_path / "copy.db")).exit_code == 1
    assert not (tmp_path / "copy.db").exists()
