"""Where root goes in a folder of the daemon's account: nothing that this account puts there reaches root's files."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmplug.commands.reset import SpoolAsOwner
from slurmplug.errors import LedgerError
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.lock import daemon_runs, only_one
from slurmplug.ledger.owner import as_owner_of, become_owner_of
from slurmplug.spool.values import RunId
from tests.ledgers import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has a way to give away")
THEIRS = 64_001


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the daemon's account, with its ledger, that anyone can reach."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    folder = top / "slurmplug"
    folder.mkdir(mode=0o750)
    os.chown(folder, THEIRS, THEIRS)
    with as_owner_of(folder):
        Ledger(folder / "ledger.db").close()
    yield folder
    shutil.rmtree(top)


@pytest.fixture
def victim(folder: Path) -> Path:
    """A file of root's beside it."""
    victim = folder.parent / "victim"
    victim.write_text("root's")
    return victim


def copied(folder: Path) -> Path:
    copy = folder.parent / "copy.db"
    if not copy.exists():
        assert run("backup", "--ledger", str(folder / "ledger.db"), str(copy)).exit_code == 0
    return copy


def restore(folder: Path) -> tuple[int, str]:
    copy, config = copied(folder), folder.parent / "slurmplug.toml"
    config.write_text(f'[ledger]\npath = "{folder}/ledger.db"\n[spool]\npath = "{folder}/spool"\n')
    result = run("restore", "--config", str(config), str(copy))
    return result.exit_code, result.output


def untouched(victim: Path) -> bool:
    return (victim.stat().st_uid, victim.read_text()) == (0, "root's")


def test_a_link_in_the_place_of_the_lock_gives_no_file_away(folder: Path, victim: Path) -> None:
    (folder / "ledger.lock").symlink_to(victim)
    code, output = restore(folder)
    assert code == 1
    assert "ledger.lock cannot be made" in output
    assert untouched(victim)


@pytest.mark.parametrize(
    "name", ["ledger.db.coming", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal", "ledger.db"]
)
def test_no_link_in_the_place_of_another_file_is_followed(folder: Path, victim: Path, name: str) -> None:
    copied(folder)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    restore(folder)
    run("pause", "--ledger", str(folder / "ledger.db"))
    assert untouched(victim)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_the_place_of_the_lock_is_named_at_once(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "ledger.lock")
    with pytest.raises(LedgerError, match=r"ledger\.lock"), only_one(folder / "ledger.lock"):
        pass
    daemon_runs(folder / "ledger.db")


def test_a_reset_withdraws_no_request_through_a_link(folder: Path) -> None:
    of_root = folder.parent / "of root"
    of_root.mkdir()
    (of_root / "5.0.stop").touch()
    (folder / "requests").symlink_to(of_root)
    (folder / "waiting").write_text("7\n")
    spool = SpoolAsOwner(folder)
    with pytest.raises(OSError, match="Not a directory"):
        spool.open_runs("stop")
    with pytest.raises(PermissionError):
        spool.withdraw(RunId(5, 0), "stop")
    assert (of_root / "5.0.stop").exists()
    assert spool.read_waiting() == {7}
    assert os.geteuid() == 0


def test_what_root_restores_is_the_daemons(folder: Path) -> None:
    code, output = restore(folder)
    assert code == 0, output
    assert {path.stat().st_uid for path in folder.iterdir()} == {THEIRS}
    assert os.geteuid() == 0


def test_what_root_writes_to_the_ledger_is_the_daemons(folder: Path) -> None:
    with as_owner_of(folder):
        ledger = Ledger(folder / "ledger.db")
    ledger.set_control("paused", "by root")
    assert {path.name for path in folder.iterdir()} == {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
    assert {path.stat().st_uid for path in folder.iterdir()} == {THEIRS}
    ledger.close()


def test_a_copy_in_the_daemons_folder_follows_no_link(folder: Path, victim: Path) -> None:
    result = run("backup", "--ledger", str(folder / "ledger.db"), str(folder / "copy.db"))
    assert result.exit_code == 0, result.output
    assert (folder / "copy.db").stat().st_uid == THEIRS
    (folder / "link.db").symlink_to(victim.parent / "not there")
    assert run("backup", "--ledger", str(folder / "ledger.db"), str(folder / "link.db")).exit_code == 1
    assert not (victim.parent / "not there").exists()


def test_a_daemon_that_root_starts_is_the_owner_of_its_ledger(folder: Path) -> None:
    child = os.fork()
    if child == 0:
        become_owner_of(folder)
        os._exit(os.getresuid() != (THEIRS,) * 3 or os.getresgid() != (THEIRS,) * 3 or 0 in os.getgroups())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(LedgerError, match=r"ledger\.lock cannot be made: No such"),
        only_one(tmp_path / "none/ledger.lock"),
    ):
        pass
