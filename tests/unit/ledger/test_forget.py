"""forget: nothing of a user's ended jobs is left in the ledger, not even in its free pages, and others keep theirs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.ledger.ledger import Ledger
from tests.ledgers import Site, run

SECRET = "a_name_that_nobody_may_know"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Two users, an ended job and a running one of each, with reports, commands and a model learnt from them."""
    with Site(tmp_path) as site:
        for user, uid in (("bob", 1002), ("eve", 1003)):
            for name in (f"{SECRET}_{user}", "later"):
                job = site.cluster.submit(user=user, uid=uid, name=name, comment=name)
                site.cluster.start(job)
                site.train(job, {1: 0.5, 2: 0.6})
                site.cycle()
        site.ledger.save_model("speed", "1", {"of": f"{SECRET}_eve"}, 0.0)
        for job in (1, 3):
            site.cluster.end(job)
            site.cycle()
            site.cluster.purge(job)
            site.cycle()
        yield site


def forget(site: Site, user: str, code: int = 0) -> str:
    folder = site.path.parent
    (folder / "spool" / "reports").mkdir(parents=True, exist_ok=True)
    config = folder / "slurmplug.toml"
    config.write_text(f'[ledger]\npath = "{site.path}"\n[spool]\npath = "{folder}/spool"\n')
    result = run("forget", "--config", str(config), "--user", user)
    assert result.exit_code == code, result.output
    return result.output


def bytes_of(site: Site) -> bytes:
    return b"".join(path.read_bytes() for path in site.path.parent.glob("ledger.db*"))


def test_of_the_ended_jobs_nothing_is_left_and_others_keep_theirs(site: Site) -> None:
    assert f"{SECRET}_eve".encode() in bytes_of(site)
    output = forget(site, "eve")
    assert "forgotten: 1 jobs" in output
    assert "kept, as Slurm still lists them: 1 jobs" in output
    names = [row["name"] for row in site.ledger.query("SELECT name FROM jobs ORDER BY id")]
    assert names == [f"{SECRET}_bob", "later", "later"]
    assert site.ledger.query("PRAGMA foreign_key_check") == []
    site.cycle(2)
    site.ledger.close()
    assert f"{SECRET}_eve".encode() not in bytes_of(site)
    site.ledger = Ledger(site.path)


def test_the_daemon_goes_on_with_the_jobs_that_live(site: Site) -> None:
    forget(site, "eve")
    site.train(4, {3: 0.7})
    site.cluster.submit(user="eve", uid=1003)
    site.cycle(2)
    assert site.ledger.value("SELECT count(*) FROM jobs WHERE user = 'eve'") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a file to give away")
def test_the_report_files_of_these_jobs_go_too_if_they_are_that_users(site: Site) -> None:
    forget(site, "nobody else", code=1)
    reports = site.path.parent / "spool" / "reports"
    for name, uid in (("3.0.jsonl", 1003), ("3.0.aa.jsonl", 1002), ("4.0.jsonl", 1003)):
        (reports / name).touch()
        os.chown(reports / name, uid, uid)
    assert "1 report files" in forget(site, "eve")
    assert sorted(path.name for path in reports.iterdir()) == ["3.0.aa.jsonl", "4.0.jsonl"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a file to give away")
def test_what_cannot_be_removed_or_vanishes_meanwhile_keeps_nothing_else(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(site, "nobody else", code=1)
    reports, stat = site.path.parent / "spool" / "reports", os.stat
    (reports / "3.0.aa.jsonl" / "full").mkdir(parents=True)
    for name in ("3.0.ab.jsonl", "3.0.ac.jsonl"):
        (reports / name).touch()
    for path in reports.iterdir():
        os.chown(path, 1003, 1003)

    def vanishing(name: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if name == "3.0.ab.jsonl":
            (reports / name).unlink(missing_ok=True)
        return stat(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "stat", vanishing)
    output = forget(site, "eve")
    assert "forgotten: 1 jobs, 1 report files" in output
    assert f"not removed: 1 of {reports} (Is a directory)" in output
    assert [path.name for path in reports.iterdir()] == ["3.0.aa.jsonl"]


def test_a_user_without_jobs_is_named(site: Site) -> None:
    assert "Invalid user id: mallory" in forget(site, "mallory", code=1)
