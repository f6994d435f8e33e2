"""The templates of several jobs, as they are, on a real Slurm: a sweep, and a pipeline of dependent jobs."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import joblib
import pytest
from optuna.trial import TrialState

from policies.mlfs.with_early_stopping import WithEarlyStopping
from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.live_site import fresh_site, start_again
from tests.live.template_copies import Copies
from tests.schedulers import begun

TOO_LOW, TOO_HIGH, GOOD = 0, 3, 10
"""Trials of the sweep, by their learning rates."""
ALL_NODES = "#!/bin/sh\n#SBATCH --nodes=4 --exclusive\nsleep 300\n"
PARTS = ("preprocess", "train", "evaluate")


def pipeline(copies: Copies) -> tuple[str, dict[str, str]]:
    """Submitted: its name, and the id of each part."""
    name, ids = copies.run("bash pipeline.sh").strip().split(": ")
    return name, dict(part.split() for part in ids.split(", "))


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def test_trials_of_a_sweep_are_stopped_by_optstop_and_one_that_is_moved_goes_on_from_its_checkpoint(
    cluster: Sandbox, tmp_path: Path
) -> None:
    copies = Copies(cluster, "sweep")
    with fresh_site(cluster, tmp_path) as site:
        site.scheduler = begun(site.port, WithEarlyStopping(site.policy), site.ledger, site.config)
        array = copies.run(f"sbatch --parsable --array={TOO_LOW},{TOO_HIGH},{GOOD} sweep.sbatch").strip()
        moved = site.until_running(f"_{TOO_LOW}")
        node = cluster.job(moved)["NodeList"]
        site.wants(moved, kind="migrate")
        assert site.until_over(moved) == "done"
        assert cluster.job(moved)["NodeList"] != node
        site.until(lambda: not cluster.run("root", ["squeue", "-h", "-j", array], check=False).stdout.strip())
    first, second = copies.begun_at(f"slurm-{array}_{TOO_LOW}.out")
    assert first == 0
    assert second > 0

    best, ended = re.findall("^#     (.*)$", (copies.folder / "sweep.sbatch").read_text(), re.MULTILINE)
    found = copies.run(best.replace("JOBID", array))
    assert re.fullmatch(rf"accuracy 0\.9[78]\d+ after epoch \d+: trial {GOOD}, hidden 256, rate 0\.03\n", found)

    DaemonProcess(cluster, tmp_path).configure()
    config = str(tmp_path / "slurmplug.toml")
    rows = copies.run(ended.replace("JOBID", array) + " -nP", user="root", SLURMPLUG_CONFIG=config).splitlines()
    stops = {row.split("|")[0]: (row.split("|")[1], row.split("|")[4]) for row in rows}
    assert set(stops) == {f"{array}_{trial}" for trial in (TOO_LOW, TOO_HIGH, GOOD)}
    assert stops[f"{array}_{TOO_HIGH}"] == ("COMPLETED", "optstop")
    assert stops[f"{array}_{GOOD}"] == ("COMPLETED", "target")


def test_the_trials_of_a_study_are_pruned_and_one_that_is_requeued_goes_on_from_its_checkpoint(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    copies = Copies(cluster, "optuna_sweep")
    array = copies.run("sbatch --parsable --array=0-5%2 optuna_sweep.sbatch").strip()
    cluster.wait(lambda: copies.trials(f"slurm-{array}_0.out"), 120, "a trial of the first element")
    [(trial, _)] = copies.trials(f"slurm-{array}_0.out")
    cluster.wait(lambda: any(copies.folder.glob(f"*/trial-{trial}.joblib")), 120, "its checkpoint")
    cluster.run(cluster.operator, ["scontrol", "requeue", f"{array}_0"])
    cluster.wait_job(f"{array}_0", "PENDING", 60)
    start_again(cluster, int(cluster.job(f"{array}_0")["JobId"]), cluster.operator)
    cluster.wait(
        lambda: not cluster.run("root", ["squeue", "-h", "-j", array], check=False).stdout.strip(), 300, "the end"
    )

    first_epochs = [int(epoch) for each, epoch in copies.trials(f"slurm-{array}_*.out") if each == trial]
    assert first_epochs[0] == 0
    assert first_epochs[1] > 0
    assert len(first_epochs) == 2
    study = copies.study(array)
    states = [trial.state for trial in study.get_trials()]
    assert states.count(TrialState.FAIL) == 1  # what the requeue interrupted
    assert len(states) == 7
    assert states.count(TrialState.PRUNED) + states.count(TrialState.COMPLETE) == 6
    [best] = re.findall("^#     (.*)$", (copies.folder / "optuna_sweep.sbatch").read_text(), re.MULTILINE)
    assert f"best so far: accuracy {study.best_value:.4f}" in copies.run(best.replace("JOBID", array))


def test_a_trial_at_its_target_ends_under_overload_alone_and_is_complete_with_its_value(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    copies = Copies(cluster, "optuna_sweep")
    script = copies.folder / "optuna_sweep.sbatch"
    script.write_text(script.read_text().replace(">=0.97", ">=0.05"))  # any trial comes to it
    array = copies.run("sbatch --parsable --array=0 optuna_sweep.sbatch").strip()
    cluster.wait(lambda: daemon.query("SELECT * FROM progress WHERE iteration > 3"), 120, "the target to be passed")
    daemon.pass_cycles(2)
    assert cluster.job(f"{array}_0")["JobState"] == "RUNNING"
    waiting = [cluster.sbatch(cluster.researchers[1], ALL_NODES) for _ in range(6)]
    cluster.wait_job(f"{array}_0", "COMPLETED", 60)
    cluster.run("root", ["scancel", *map(str, waiting)])
    assert '"overload": "yes"' in daemon.operation(int(array))["facts"]
    study = copies.study(array)
    assert study.best_value >= 0.05
    assert len(study.best_trial.intermediate_values) < 60


def test_trials_of_elements_that_were_cancelled_or_lost_their_node_fail_once_another_begins_or_the_study_is_shown(
    cluster: Sandbox,
) -> None:
    copies = Copies(cluster, "optuna_sweep")
    array = copies.run("sbatch --parsable --array=0-3%2 optuna_sweep.sbatch").strip()
    for element in (0, 1):
        cluster.wait(lambda: copies.trials(f"slurm-{array}_{element}.out"), 120, "a trial of each")  # noqa: B023
    cluster.run("root", ["scancel", "--signal=KILL", "--full", f"{array}_0"])
    cluster.wait(lambda: copies.trials(f"slurm-{array}_2.out"), 120, "the trial of the next element")
    states = [trial.state for trial in copies.study(array).get_trials()]
    assert (states.count(TrialState.FAIL), states.count(TrialState.RUNNING)) == (1, 2)
    [show] = re.findall("^#     (.*)$", (copies.folder / "optuna_sweep.sbatch").read_text(), re.MULTILINE)
    assert copies.run(show.replace("JOBID", array)).splitlines() == ["trials: 1 fail, 2 running"]
    cluster.run("root", ["scancel", array])
    cluster.wait(lambda: not cluster.run("root", ["squeue", "-h"]).stdout, 60, "the end of the others")
    assert copies.study(array).get_trials(states=(TrialState.RUNNING,))
    assert copies.run(show.replace("JOBID", array)).splitlines() == ["trials: 3 fail"]
    assert not copies.study(array).get_trials(states=(TrialState.RUNNING,))


def test_the_parts_of_a_pipeline_follow_each_other_after_a_stop_at_the_target_and_not_after_a_requeue(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    copies = Copies(cluster, "pipeline")
    name, ids = pipeline(copies)
    train, evaluate = ids["train"], ids["evaluate"]
    model = copies.folder / name / "model.joblib"
    cluster.wait(model.exists, 60, "a checkpoint")
    cluster.run(cluster.operator, ["scontrol", "requeue", train])
    cluster.wait_job(train, "PENDING", 60)
    assert cluster.job(evaluate)["Reason"] == "Dependency"
    _, saved = joblib.load(model)
    start_again(cluster, int(train), cluster.operator)
    cluster.wait_job(evaluate, "COMPLETED", 60)
    assert copies.begun_at(f"slurm-{train}.out") == [0, saved + 1]

    jobs = [cluster.job(ids[part]) for part in PARTS]
    assert [(job["JobState"], job["ExitCode"]) for job in jobs] == [("COMPLETED", "0:0")] * 3
    assert all(before["EndTime"] <= after["StartTime"] for before, after in pairwise(jobs))
    assert "accuracy" in (copies.folder / name / "evaluation.txt").read_text()
    daemon.pass_cycles()
    assert daemon.query("SELECT job_id, stop FROM stops JOIN jobs ON jobs.id = job") == [
        {"job_id": int(train), "stop": "target"}
    ]
    listed = daemon.command("acct", "-nP", "-j", ",".join(ids.values()), "-o", "jobid,mljob").stdout.splitlines()
    assert set(listed) == {f"{job}|{name}" for job in ids.values()}


def test_what_follows_a_part_that_did_not_succeed_is_cancelled(cluster: Sandbox) -> None:
    _, ids = pipeline(Copies(cluster, "pipeline"))
    cluster.run(cluster.researchers[0], ["scancel", ids["preprocess"]])
    for part in PARTS:
        cluster.wait_job(ids[part], "CANCELLED", 60)
