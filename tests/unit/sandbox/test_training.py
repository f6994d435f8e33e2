"""The demo's training program really learns, and the targets of its jobs can be reached."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from slurmplug.directives import parser
from slurmplug.directives.parser import Directives
from slurmplug.sandbox import datasets, training
from slurmplug.sandbox.demo import SPEC
from slurmplug.sandbox.demo_jobs import JOBS, DemoJob
from slurmplug.sandbox.training import Floats


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the data sets."""
    path = tmp_path_factory.mktemp("data")
    datasets.save_all(path)
    return path


def load(folder: Path, name: str) -> dict[str, Floats]:
    with np.load(folder / f"{name}.npz") as file:
        return dict(file)


def curve(folder: Path, name: str, options: str) -> list[dict[str, float]]:
    arguments = training.parser().parse_args([f"{folder}/{name}.npz", *shlex.split(options)])
    data = load(folder, name)
    return [
        quantities for _, quantities in training.train(training.make_model(arguments, data), data, arguments.iterations)
    ]


@pytest.mark.parametrize("name", ["digits", "cancer", "wine", "diabetes", "clusters", "moons"])
def test_rows_held_out_are_not_learnt_from(folder: Path, name: str) -> None:
    data = load(folder, name)
    learnt, held_out = ({row.tobytes() for row in data[x]} for x in ("x", "held_out_x"))

    assert not learnt & held_out
    assert len(data["held_out_x"]) == pytest.approx(0.3 * (len(data["x"]) + len(data["held_out_x"])), abs=1)


def test_without_a_hidden_layer_it_comes_to_logistic_regression(folder: Path) -> None:
    data = load(folder, "clusters")
    known = LogisticRegression(C=1e6, max_iter=1000).fit(data["x"], data["y"])

    last = curve(folder, "clusters", "--rate=0.05 --iterations=60")[-1]

    assert last["accuracy"] == pytest.approx(known.score(data["held_out_x"], data["held_out_y"]), abs=0.02)


def test_of_a_measured_quantity_it_comes_to_least_squares(folder: Path) -> None:
    data = load(folder, "diabetes")
    known = LinearRegression().fit(data["x"], data["y"])

    last = curve(folder, "diabetes", "--rate=0.01 --iterations=200")[-1]

    assert last["r2"] == pytest.approx(known.score(data["held_out_x"], data["held_out_y"]), abs=0.03)


def test_a_hidden_layer_learns_what_no_line_can(folder: Path) -> None:
    line = curve(folder, "moons", "--rate=0.2 --iterations=60")[-1]
    bent = curve(folder, "moons", "--rate=0.2 --hidden=16 --iterations=60")[-1]

    assert line["accuracy"] < 0.9
    assert bent["accuracy"] > 0.95


@pytest.mark.parametrize("options", ["--model=linear --rate=0.001", "--model=perceptron --hidden=24 --rate=0.005"])
def test_estimators_of_scikit_learn_learn_pass_by_pass(folder: Path, options: str) -> None:
    measured = curve(folder, "digits", f"{options} --iterations=12")

    assert measured[-1]["accuracy"] > max(0.9, measured[0]["accuracy"])
    assert measured[-1]["loss"] < measured[0]["loss"]


def run(folder: Path, spool: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """As a job of Slurm would."""
    for name in ("reports", "requests"):
        (spool / name).mkdir(exist_ok=True)
    spool.chmod(0o755)
    return subprocess.run(
        [sys.executable, "-m", "slurmplug.sandbox.training", f"{folder}/wine.npz", f"--save={spool}/model", *options],
        env=os.environ | {"SLURM_JOB_ID": "7", "SLURMPLUG_SPOOL": str(spool)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_it_reports_what_it_prints(folder: Path, tmp_path: Path) -> None:
    printed = run(folder, tmp_path, "--iterations=4", "--seconds=0").stdout.splitlines()

    (file,) = (tmp_path / "reports").glob("7.0*.jsonl")
    reported = [json.loads(line) for line in file.read_text().splitlines()]
    assert printed == [
        f"iteration {line['iteration']} of 4: loss {line['loss']:.4f}, accuracy {line['accuracy']:.4f}"
        for line in reported
    ]
    assert [line["iteration"] for line in reported] == [1, 2, 3, 4]


def test_requested_to_stop_it_saves_and_exits_with_0(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir(mode=0o755)
    (tmp_path / "requests" / "7.0.stop").touch()

    printed = run(folder, tmp_path, "--iterations=5000", "--seconds=0.01").stdout.splitlines()

    assert len(printed) < 5000
    assert (tmp_path / "model.npz").exists()


def parsed(job: DemoJob) -> Directives:
    return parser.parse(job.script("python", Path("data"), 1.0), submitted=0.0)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_directives_of_the_demos_jobs_are_valid(job: DemoJob) -> None:
    assert parsed(job).problems == ()
    assert parsed(job).max_iterations == (job.iterations if job.directives else None)


@pytest.mark.parametrize("job", [job for job in JOBS if "=target" in job.directives], ids=lambda job: job.name)
def test_a_job_that_may_stop_at_its_target_reaches_it_in_half_of_its_iterations(folder: Path, job: DemoJob) -> None:
    target = parsed(job).target
    assert target is not None
    sign = -1 if target.relation == "<=" else 1

    measured = curve(folder, job.data, f"{job.model} --iterations={job.iterations // 2}")

    assert max(sign * each[target.quantity] for each in measured) >= sign * target.value


def test_the_jobs_of_the_demo_request_more_gpus_than_there_are_while_they_are_submitted() -> None:
    there_are = sum(node.gpus for node in SPEC.nodes)
    runs = [job for job in JOBS if not job.after]

    assert sum(job.elements or 1 for job in JOBS) >= 24
    assert len({job.user for job in JOBS}) > 1
    for moment in sorted({job.at for job in JOBS}):
        assert sum(job.gpus * (job.elements or 1) for job in runs if job.at <= moment) > there_are
