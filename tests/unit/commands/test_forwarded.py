"""`slurmplug run` and `slurmplug report`, which are `slurmplug-report`'s."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("program", [["-m", "slurmplug_report"], ["-c", "from slurmplug.commands import main; main()"]])
def test_both_programs_do_the_same(program: list[str], tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    environment = {"SLURM_JOB_ID": "42", "SLURMPLUG_SPOOL": str(tmp_path)}
    for words in (
        ["report", "iteration=7", "loss=0.5", "trial=b"],
        ["run", "--pattern", r"loss=(?P<loss>\S+)", "--", sys.executable, "-c", "print('loss=0.25'); exit(3)"],
        ["run", "--pattern", r"(?P<loss>x)"],
        ["run", "--help"],
    ):
        done = subprocess.run(
            [sys.executable, *program, *words], env=environment, capture_output=True, timeout=60, check=False
        )
        expected = {"report": 0, "--": 3, "--help": 0}
        assert done.returncode == next((status for word, status in expected.items() if word in words), 2), done.stderr
    (file,) = (tmp_path / "reports").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    points = [{name: line[name] for name in line if name not in ("time", "load")} for line in lines]
    assert [point for point in points if point] == [
        {"iteration": 7, "loss": 0.5, "trial": "b"},
        {"iteration": 0, "loss": 0.25},
    ]
