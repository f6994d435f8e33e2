"""`slurmplug train`: what it writes is used by a simulation; what it cannot do, it says."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurmplug.commands import main
from slurmplug.config import model_files


def train(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["train", "dl2", "--out", str(out), *arguments])


TINY = tuple(
    word for each in ("jobs=8", "workloads=1", "passes=2", "hidden=4", 'clusters=["8x4"]') for word in ("--set", each)
)


@pytest.mark.rl
def test_a_model_that_was_trained_is_used_by_a_simulation(tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    done = train(out, "--seed", "1003", *TINY)
    assert done.exit_code == 0, done.output
    model = model_files.read(out)
    assert (model.policy, model.facts["seed"], model.facts["jobs"]) == ("dl2", "1003", "8")
    assert model.digest[:12] in done.output
    assert model.facts["slurmplug"] == version("slurmplug")
    run = ["simulate", "gen:dl2", "--cluster", "8x4", "--jobs", "4", "--interval", "1200", "--policy", "dl2"]
    simulated = CliRunner().invoke(main, [*run, "--set", f"dl2.model={out}"])
    assert simulated.exit_code == 0, simulated.output
    assert "dl2" in simulated.output


@pytest.mark.rl
def test_a_model_of_mlf_rl_is_used_by_mlf_rl_and_by_mlfs(tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    tiny = ("jobs=8", "iterations=0", "choosing=1", 'clusters=["4x4"]', "also=[]")
    arguments = ["train", "mlf-rl", "--out", str(out), *(word for each in tiny for word in ("--set", each))]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    run = ["simulate", "gen:mlfs", "--cluster", "8x4", "--jobs", "4", "--policy", "mlf-rl", "--policy", "mlfs"]
    simulated = CliRunner().invoke(main, [*run, "--set", f"mlf-rl.model={out}", "--set", f"mlfs.model={out}"])
    assert simulated.exit_code == 0, simulated.output
    assert "mlf-rl" in simulated.output


@pytest.mark.rl
def test_its_curves_are_read_by_tensorboard_and_no_checkpoint_is_left(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "mine.safetensors"
    done = train(out, *TINY)
    assert done.exit_code == 0, done.output
    curves = EventAccumulator(str(tmp_path / "mine.safetensors.run"))
    curves.Reload()
    [loss] = [tag for tag in curves.Tags()["tensors"] if tag.startswith("supervised/")]
    assert loss == "supervised/loss"
    assert [point.step for point in curves.Tensors(loss)] == [1, 2]
    assert [path.name.split(".")[0] for path in (tmp_path / "mine.safetensors.run").iterdir()] == ["events"]


@pytest.mark.rl
def test_of_several_seeds_those_whose_models_are_there_are_not_trained_again(tmp_path: Path) -> None:
    out = tmp_path / "{seed}.safetensors"
    first = train(out, "--seed", "1001", *TINY)
    assert first.exit_code == 0, first.output
    both = train(out, "--seed", "1001", "--seed", "1002", *TINY)
    assert both.exit_code == 0, both.output
    assert both.output.count("was trained before") == 1
    assert [model_files.read(tmp_path / f"{seed}.safetensors").facts["seed"] for seed in (1001, 1002)] == [
        "1001",
        "1002",
    ]
    assert (
        train(out, "--seed", "1001", "--seed", "1002", *TINY, "--set", "passes=1").output.count("trained before") == 0
    )


@pytest.mark.parametrize(
    ("name", "seeds", "message"),
    [
        ("m", ("1001", "1002"), "of several seeds it needs {seed} in its name"),
        ("{seed}", ("1001", "1001"), "--seed: give each seed only once"),
    ],
)
def test_models_of_several_seeds_need_names_of_their_own(
    tmp_path: Path, name: str, seeds: tuple[str, ...], message: str
) -> None:
    done = train(tmp_path / name, *(word for seed in seeds for word in ("--seed", seed)))
    assert done.exit_code == 1
    assert message in done.output


@pytest.mark.rl
def test_where_no_jobs_can_be_submitted_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = train(tmp_path / "m", "--on", "slurm")
    assert done.exit_code == 1
    assert "sbatch is not found" in done.output


@pytest.mark.rl
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "7"), "seed 7 is not one for training"),
        (("--workload", "history.csv"), "history.csv is not a workload for training"),
        (("--set", "passes"), "--set passes: write KEY=VALUE"),
        (("--set", "passes=many"), "passes: must be a valid integer"),
        (("--set", "pases=3"), "training of dl2 has no setting 'pases'; known: workload"),
        (("--set", "teacher=nobody", "--set", "jobs=4"), "there is no policy 'nobody'"),
    ],
)
def test_what_cannot_be_used_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
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
