"""Logs in files: what is new in them, row by row, and `slurmplug-report run` around programs that write them."""

from pathlib import Path

import pytest

import slurmplug_report
from slurmplug_report.log_files import CsvLog
from tests.unit.slurmplug_report.job_python import PYTHON
from tests.unit.slurmplug_report.test_supervise import command, points, run, spool

__all__ = ["spool"]

ROOT = Path(slurmplug_report.__file__).parents[1]

WRITES = """
import sys, time
with open(sys.argv[1], "w", buffering=1) as file:
    file.write("epoch,train_loss,val_loss,val_acc\\n")
    for epoch in range(3):
        file.write(f"{epoch},{1 / (epoch + 1)},,\\n")
        file.write(f"{epoch},,{2 / (epoch + 1)},0.{epoch}\\n")
"""


def test_rows_are_given_once_as_soon_as_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log = CsvLog(str(path))
    assert list(log.rows()) == []
    path.write_text("epoch, loss, note\n1, 0.5, good\n2, 0.2")
    assert list(log.rows()) == [("1", {"loss": "0.5"})]
    with path.open("a") as file:
        file.write("5, \n3, , \nx, 1, \n")
    assert list(log.rows()) == [("2", {"loss": "0.25"})]
    assert list(log.rows()) == []


def test_what_an_earlier_run_wrote_is_not_read_and_a_file_that_is_begun_anew_is(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,4\n2,3\n")
    log = CsvLog(str(path))
    with path.open("a") as file:
        file.write("3,2\n")
    assert list(log.rows()) == [("3", {"loss": "2"})]
    path.write_text("global_step,acc\n1,.5\n")
    assert list(log.rows()) == [("1", {"acc": ".5", "accuracy": ".5"})]


def test_a_short_name_is_one_column_from_the_first_row_on(tmp_path: Path) -> None:
    """Lightning's CSVLogger writes a row for the training and one for the validation."""
    path = tmp_path / "metrics.csv"
    log = CsvLog(str(path))
    path.write_text("epoch,step,train_loss,val_loss\n0,9,1.5,\n0,9,,2.5\n")
    assert list(log.rows()) == [
        ("0", {"step": "9", "train_loss": "1.5"}),
        ("0", {"step": "9", "val_loss": "2.5", "loss": "2.5"}),
    ]


def test_a_file_without_iterations_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log = CsvLog(str(path))
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="names none of iteration, epoch, step, global_step"):
        list(log.rows())


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log = CsvLog(str(path))
    path.write_bytes(b"epoch,loss\n1," + b"9" * 5_000_000 + b"\n2,0.5\n")
    assert list(log.rows())[-1] == ("2", {"loss": "0.5"})


def test_a_program_that_logs_in_a_csv_file_is_reported(spool: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "log.csv")
    done = run(command(PYTHON, "-c", WRITES, path, options=("--csv", path)), spool)
    assert (done.returncode, done.stderr) == (0, b"")
    assert points(spool).iterations.tolist() == [0, 1, 2]
    assert points(spool).quantities["loss"].tolist() == [2, 1, 2 / 3]
    assert points(spool).quantities["accuracy"].tolist() == [0, 0.1, 0.2]


@pytest.mark.parametrize(
    ("writes", "said"),
    [("pass", "nothing was logged in {path}"), ("open({path!r}, 'w').write('a\\n1\\n')", "{path} is not read on: ")],
)
def test_a_log_without_progress_is_named_and_the_program_ends_as_it_does(
    spool: Path, tmp_path: Path, writes: str, said: str
) -> None:
    path = str(tmp_path / "log.csv")
    code = writes.format(path=path) + "; raise SystemExit(3)"
    done = run(command(PYTHON, "-c", code, options=("--csv", path)), spool)
    assert done.returncode == 3
    assert said.format(path=path) in done.stderr.decode()


def test_where_progress_is_has_to_be_said(spool: Path) -> None:
    done = run(command("true", options=()), spool)
    assert done.returncode == 2
    assert b"--pattern, --csv or --tensorboard" in done.stderr


def test_without_the_package_tensorboard_its_logs_are_refused_with_what_to_install(spool: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "tensorboard").mkdir(parents=True)
    (hidden / "tensorboard" / "__init__.py").write_text("raise ImportError('hidden')")
    done = run(command("true", options=("--tensorboard", "runs")), spool, PYTHONPATH=f"{hidden}:{ROOT}")
    assert done.returncode == 1
    assert b"pip install tensorboard" in done.stderr


@pytest.mark.rl
def test_scalars_of_a_summary_writer_are_reported(spool: Path, tmp_path: Path) -> None:
    code = """
import sys
import torch
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter(sys.argv[1]) as writer:
    for step in range(3):
        writer.add_scalar("Loss/train", 1 / (step + 1), step)
        writer.add_scalar("Accuracy/test", step / 4, step)
        writer.add_histogram("weights", torch.ones(3), step)
"""
    folder = str(tmp_path / "runs")
    for _ in range(2):  # the second one has the first one's files beside its own
        done = run(command(PYTHON, "-c", code, folder, options=("--tensorboard", folder)), spool)
        assert done.returncode == 0, done.stderr
    assert points(spool).iterations.tolist() == [0, 1, 2] * 2
    assert points(spool).quantities["loss"].tolist() == pytest.approx([1, 1 / 2, 1 / 3] * 2)
    assert points(spool).quantities["accuracy"].tolist() == pytest.approx([0, 0.25, 0.5] * 2)
