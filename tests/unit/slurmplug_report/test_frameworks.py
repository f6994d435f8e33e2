"""Lightning and the Trainer of Hugging Face, the real ones: the templates report, save, stop, and resume."""

import os
import runpy
import time
from pathlib import Path
from typing import Any

import pytest

for library in ("torch", "lightning", "transformers", "accelerate"):
    pytest.importorskip(library)

import slurmplug_report  # noqa: E402 only where they are installed
from slurmplug_report.stop import GO_ON, Stop  # noqa: E402

pytestmark = pytest.mark.rl
TEMPLATES = Path(__file__).parents[3] / "sbatch_templates"
JOB, EPOCHS = "4711", 6
REPORTERS = {"lightning_digits": "lightning", "huggingface": "huggingface"}
SAVED = {"lightning_digits": "lightning_digits.pt", "huggingface": f"huggingface-{JOB}/last/model.safetensors"}
FIRST = {"lightning_digits": 0, "huggingface": 1}


class Killed(BaseException):
    """The job's process ends here."""


class Requests:
    """What a job reports, and when it is requested to do what: after so many reports."""

    def __init__(self, *, save_after: int = 0, stop_after: int = 0) -> None:
        self.save_after, self.stop_after = save_after, stop_after
        self.iterations: list[float] = []
        self.checkpoints: list[float] = []
        self.reported: dict[str, Any] = {}

    def report(self, iteration: Any = None, checkpoint: Any = None, **quantities: Any) -> Stop:
        if iteration is not None:
            self.iterations.append(iteration)
            self.reported = quantities
        if checkpoint is not None:
            self.checkpoints.append(checkpoint)
            if self.save_after:
                raise Killed
        stops = self.stop_after and len(self.iterations) >= self.stop_after
        return Stop(True, "out of reach", 1) if stops else GO_ON

    def checkpoint_requested(self) -> bool:
        return self.save_after == len(self.iterations) > 0


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a template of fewer epochs in a folder; its exit status."""
    monkeypatch.setenv("SLURM_JOB_ID", JOB)
    monkeypatch.setattr(time, "sleep", lambda _: None)

    def run(name: str, folder: str, requests: Requests) -> int:
        reporter = f"slurmplug_report.{REPORTERS[name]}"
        monkeypatch.setattr(f"{reporter}.report", requests.report)
        monkeypatch.setattr(f"{reporter}.checkpoint_requested", requests.checkpoint_requested)
        monkeypatch.setattr(slurmplug_report, "report", requests.report)
        where = tmp_path / folder
        where.mkdir(exist_ok=True)
        lines = (TEMPLATES / f"{name}.py").read_text().splitlines(keepends=True)
        short = "".join(f"EPOCHS = {EPOCHS}\n" if line.startswith("EPOCHS = ") else line for line in lines)
        (where / f"{name}.py").write_text(short)
        monkeypatch.chdir(where)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(f"{name}.py", run_name="__main__")
        return int(ended.value.code or 0)

    return run


def weights(path: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    return dict(load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True))


@pytest.mark.parametrize("name", REPORTERS)
class TestFramework:
    def test_one_that_was_moved_ends_with_the_weights_of_one_that_was_not(
        self, tmp_path: Path, training: Any, name: str
    ) -> None:
        first = FIRST[name]
        whole, before, after = Requests(), Requests(save_after=2), Requests()
        assert training(name, "whole", whole) == 0
        assert whole.iterations == list(range(first, first + EPOCHS))
        assert {"loss", "accuracy"} <= whole.reported.keys()
        with pytest.raises(Killed):
            training(name, "moved", before)
        assert before.checkpoints == [first + 1]
        assert training(name, "moved", after) == 0
        assert after.iterations == list(range(first + 2, first + EPOCHS))
        expected, found = (weights(tmp_path / folder / SAVED[name]) for folder in ("whole", "moved"))
        assert found.keys() == expected.keys()
        assert all(found[each].equal(expected[each]) for each in expected)

    def test_it_stops_when_that_is_requested_with_the_status_that_the_request_says(
        self, tmp_path: Path, training: Any, name: str
    ) -> None:
        requests = Requests(stop_after=2)
        assert training(name, "stopped", requests) == 1
        assert len(requests.iterations) == 2
        assert (tmp_path / "stopped" / SAVED[name]).exists()


def test_lightning_finds_it_by_its_entry_point_and_outside_slurm_it_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    from lightning.pytorch import Trainer

    from slurmplug_report.lightning import SlurmplugCallback, resume_path

    trainer = Trainer(logger=False, enable_checkpointing=False, default_root_dir=tmp_path)
    [found] = [each for each in trainer.callbacks if isinstance(each, SlurmplugCallback)]
    found.on_train_epoch_end(None, None)
    assert resume_path(str(tmp_path)) is None


def test_a_lightning_training_goes_on_from_the_newest_of_its_checkpoints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", JOB)
    from slurmplug_report.lightning import resume_path

    root, own = str(tmp_path), tmp_path / "own" / "deeper"
    own.mkdir(parents=True)
    assert resume_path(root, str(tmp_path / "own")) is None
    requested, regular = tmp_path / f"slurmplug-{JOB}.ckpt", own / "epoch=9.ckpt"
    for written, path in enumerate((requested, regular)):
        path.touch()
        os.utime(path, (written, written))
    assert resume_path(root) == str(requested)
    assert resume_path(root, str(tmp_path / "own")) == str(regular)
    os.utime(requested, (2, 2))
    assert resume_path(root, str(tmp_path / "own")) == str(requested)
    monkeypatch.delenv("SLURM_JOB_ID")
    assert resume_path(root, str(tmp_path / "own")) is None
