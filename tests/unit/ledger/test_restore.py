"""restore: a copy of the ledger in its place, and what is not believed of it afterwards."""

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from slurmplug.ledger import database
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.schema import MIGRATIONS
from slurmplug.spool.requests import Requests
from slurmplug.spool.values import RunId
from tests.ledgers import Site, run


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        for urgency in (2, 9, 5):
            site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={urgency}\n".encode())
        site.cycle()
        yield site


@pytest.fixture
def backup(site: Site, tmp_path: Path) -> Path:
    site.ask("backup", str(tmp_path / "copy.db"))
    return tmp_path / "copy.db"


def restore(site: Site, file: Path) -> tuple[int, str]:
    folder = site.path.parent
    for name in ("reports", "requests"):
        (folder / "spool" / name).mkdir(parents=True, exist_ok=True)
    config = folder / "slurmplug.toml"
    config.write_text(f'[ledger]\npath = "{site.path}"\n[spool]\npath = "{folder}/spool"\n')
    result = run("restore", "--config", str(config), str(file))
    return result.exit_code, result.output


def test_what_came_after_the_backup_is_gone_and_kept_aside(site: Site, backup: Path) -> None:
    before = site.ask("acct", "-a", "-S", "uts1000000000")
    site.cluster.submit(user="bob")
    site.cycle()
    after = site.ask("acct", "-a", "-S", "uts1000000000")
    site.ledger.close()
    code, output = restore(site, backup)
    assert code == 0, output
    assert site.ask("acct", "-a", "-S", "uts1000000000") == before
    aside = Path(output.split("the replaced ledger is ")[1].split(" now")[0])
    assert run("acct", "--ledger", str(aside), "-a", "-S", "uts1000000000").output == after


def test_no_label_of_it_is_believed_so_all_are_written_anew(site: Site, backup: Path) -> None:
    site.ledger.close()
    restore(site, backup)
    restored = Ledger(site.path)
    assert np.isnan(list(restored.site_factors().values())).all()
    restored.close()


def test_requests_that_it_knows_nothing_of_are_taken_back(site: Site, backup: Path) -> None:
    (site.path.parent / "spool/requests").mkdir(parents=True)
    requests = Requests(site.path.parent / "spool")
    requests.issue(RunId(1, 0), "stop")
    site.ledger.close()
    assert restore(site, backup)[0] == 0
    assert requests.open_runs("stop") == []


def test_nothing_is_restored_under_a_running_daemon(site: Site, backup: Path) -> None:
    with site.path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, output = restore(site, backup)
    assert code == 1
    assert "stop it first" in output


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda file: file.write_bytes(b"SQLite format 3\0" + b"x" * 5000), "is not a ledger"),
        (lambda file: file.write_bytes(b""), "is not a ledger, or empty"),
        (lambda file: file.unlink(), "is not there"),
        (lambda file: file.write_bytes(file.read_bytes()[:8192]), "is "),
    ],
)
def test_what_is_no_sound_ledger_changes_nothing(
    site: Site, backup: Path, damage: Callable[[Path], object], says: str
) -> None:
    damage(backup)
    before = site.ask("acct", "-a", "-S", "uts1000000000")
    code, output = restore(site, backup)
    assert code == 1
    assert says in output
    assert site.ask("acct", "-a", "-S", "uts1000000000") == before


def test_a_ledger_of_a_newer_release_is_refused(site: Site, backup: Path) -> None:
    copy = Ledger(backup)
    copy.db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    copy.close()
    code, output = restore(site, backup)
    assert code == 1
    assert "written by a newer slurmplug: upgrade this one" in output


def test_an_upgrade_keeps_a_copy_of_the_release_before(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    version = len(MIGRATIONS)
    site.ledger.close()
    monkeypatch.setattr(database, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE coming (id INTEGER)"))
    Ledger(site.path).close()
    monkeypatch.undo()
    kept = Ledger(tmp_path / f"ledger.db.version-{version}", readonly=True)
    assert [record.key.job_id for record in kept.live_records()] == [1, 2, 3]
    kept.close()
