"""`slurmplug report`: a report from a shell script, under a name that others can neither guess nor take."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmplug.spool.requests import Requests
from slurmplug.spool.values import RunId
from tests.ledgers import run


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o755)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports").chmod(0o3773)
    (tmp_path / "requests").mkdir(mode=0o755)
    (tmp_path / "home").mkdir()
    for name in [name for name in os.environ if name.startswith(("SLURM", "RANK", "PMI", "XDG"))]:
        monkeypatch.delenv(name)
    for name, value in {"SLURM_JOB_ID": "42", "SLURMPLUG_SPOOL": str(tmp_path), "HOME": f"{tmp_path}/home"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def written(spool: Path) -> list[dict[str, object]]:
    [file] = [path for path in (spool / "reports").iterdir() if path.is_file() and path.stat().st_size]
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_call_adds_a_line_to_one_file_of_the_run(spool: Path) -> None:
    for iteration in (1, 2, 3):
        result = run("report", f"iteration={iteration}", "loss=0.5", "accuracy=nan", "trial=2")
        assert (result.exit_code, result.output) == (0, "")
    lines = written(spool)
    assert [(line["iteration"], line["loss"], line["trial"]) for line in lines] == [
        (1, 0.5, 2),
        (2, 0.5, 2),
        (3, 0.5, 2),
    ]


def test_its_name_is_not_the_runs_and_is_another_for_another_user(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("report", "iteration=1", "loss=1")
    (spool / "other").mkdir()
    monkeypatch.setenv("HOME", f"{spool}/other")
    run("report", "iteration=1", "loss=1")
    names = {path.name for path in (spool / "reports").iterdir()}
    assert len(names) == 2
    assert "42.0.jsonl" not in names
    assert all(len(name) == len("42.0..jsonl") + 32 for name in names)


@pytest.mark.parametrize("taken", ["fifo", "file", "link"])
def test_who_takes_the_runs_name_blocks_nothing(spool: Path, taken: str) -> None:
    path = spool / "reports" / "42.0.jsonl"
    if taken == "fifo":
        os.mkfifo(path)
    elif taken == "link":
        path.symlink_to(spool / "victim")
    else:
        path.touch()
        if os.geteuid() == 0:
            os.chown(path, 65_534, 65_534)
    run("report", "iteration=1", "loss=1")
    assert written(spool)[0]["loss"] == 1
    assert not (spool / "victim").exists()


def test_a_key_that_others_could_read_is_not_used(spool: Path) -> None:
    run("report", "iteration=1", "loss=1")
    key = spool / "home/.local/state/slurmplug/report.key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    run("report", "iteration=2", "loss=1")
    assert (spool / "reports" / "42.0.jsonl").exists()


def test_without_a_home_it_has_the_runs_name(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    run("report", "checkpoint=1")
    assert [path.name for path in (spool / "reports").iterdir()] == ["42.0.jsonl"]


def test_it_prints_why_the_job_is_requested_to_stop(spool: Path) -> None:
    (spool / "requests").chmod(0o755)
    content = {"version": 1, "reason": "target", "status": 0}
    Requests(spool).issue(RunId(42, 0), "stop", json.dumps(content))
    assert "target\n" in run("report", "iteration=1", "loss=1").output


def test_a_spool_that_is_not_there_does_not_end_the_script(spool: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from slurmplug.commands import main; main()", "report", "iteration=1", "loss=1"],
        env={**os.environ, "SLURMPLUG_SPOOL": f"{tmp_path}/none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "progress is not reported" in done.stderr


def test_outside_slurm_nothing_happens(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    assert run("report", "iteration=1").exit_code == 0
    assert not list((spool / "reports").iterdir())


@pytest.mark.parametrize("words", [["loss"], ["loss=1"], ["3=loss", "iteration=1"]])
def test_a_mistaken_call_says_how_to_write_it(words: list[str]) -> None:
    result = run("report", *words)
    assert result.exit_code == 2
    assert "such as" in result.output
