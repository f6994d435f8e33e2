"""`slurmplug train`: what it writes is used by a simulation; what it cannot do, it says."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurmplug.commands import main
from slurmplug.config import model_files


def train(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["train", "dl2", "--out", str(out), *arguments])


@pytest.mark.rl
def test_a_model_that_was_trained_is_used_by_a_simulation(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "mine.safetensors"
    tiny = ("jobs=8", "workloads=1", "passes=1", "hidden=4", 'clusters=["8x4"]')
    done = train(out, "--seed", "1003", *(word for each in tiny for word in ("--set", each)))
    assert done.exit_code == 0, done.output
    model = model_files.read(out)
    assert (model.policy, model.facts["seed"], model.facts["jobs"]) == ("dl2", "1003", "8")
    assert model.digest[:12] in done.output
    run = ["simulate", "gen:dl2", "--cluster", "8x4", "--jobs", "4", "--interval", "1200", "--policy", "dl2"]
    simulated = CliRunner().invoke(main, [*run, "--set", f"dl2.model={out}"])
    assert simulated.exit_code == 0, simulated.output
    assert "dl2" in simulated.output


@pytest.mark.rl
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "7"), "seed 7 is not one for training"),
        (("--workload", "history.csv"), "history.csv is no workload for training"),
        (("--set", "passes"), "--set passes: write KEY=VALUE"),
        (("--set", "passes=many"), "passes: must be a valid integer"),
        (("--set", "pases=3"), "training of dl2 has no setting 'pases'; known: workload"),
        (("--set", "teacher=nobody", "--set", "jobs=4"), "there is no policy 'nobody'"),
    ],
)
def test_what_cannot_be_used_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("torch")
    done = train(tmp_path / "m", *arguments)
    assert done.exit_code == 1
    assert message in done.output
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    done = train(tmp_path / "none" / "m")
    assert (done.exit_code, done.output.count("cannot be written")) == (1, 1)


def test_without_the_libraries_it_says_how_to_install_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slurmplug.rl.dl2", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    done = train(tmp_path / "m")
    assert done.exit_code == 1
    assert "training needs torch, which is not installed: pip install 'slurmplug[rl]'" in done.output
