"""simulate sacct: and what it says of a site's own past."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policies.plan import Memory, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.commands import main
from slurmplug.sim.adapters.learnt_run_times import LearntRunTimes
from slurmplug.sim.workloads.assumed import with_assumed_directives
from slurmplug.sim.workloads.load import load
from tests.sim_jobs import First, job, run, simulation

HEADING = "JobID|User|Submit|ElapsedRaw|Timelimit|AllocTRES|JobName"


@pytest.fixture
def past(tmp_path: Path) -> str:
    """Twenty jobs of four GPUs, one a minute, of ten minutes each."""
    rows = [f"{n}|ada|2026-03-01T10:{n:02}:00|600|01:00:00|gres/gpu=4|train" for n in range(1, 21)]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([HEADING, *rows]) + "\n")
    return f"sacct:{path}"


def simulate(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["simulate", *arguments, "--cluster", "1x8"])
    assert result.exit_code == code, result.output
    return result.output


def figures(path: Path) -> dict[str, dict[str, Any]]:
    return {entry["policy"]: entry for entry in json.loads(path.read_text())["results"]}


def test_the_past_of_a_site_is_started_by_slurm_with_forecast_run_times_and_it_says_what_is_not_known(
    past: str, tmp_path: Path
) -> None:
    output = simulate(past, "--json", str(tmp_path / "r.json"))
    assert "0 of 20 jobs are managed, with 0% of the GPU hours; Slurm starts the jobs (--launcher slurm)" in output
    assert "run times are forecast from the jobs that ended before (--run-times forecast)" in output
    assert "Assumed: each job runs as long as it did" in output
    assert "Not known: directives, learning curves" in output
    assert "No policy changes anything" in output
    assert {each["launcher"] for each in figures(tmp_path / "r.json").values()} == {"slurm"}
    compared = CliRunner().invoke(main, ["compare", str(tmp_path / "r.json")]).output
    assert "slurm and mlfs are identical: every figure of every seed is the same" in compared


def test_what_papers_assume_goes_by_name(past: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    output = simulate(past, "--policy", "sjf", "--launcher", "direct", "--run-times", "told", "--json", str(path))
    assert "20 of 20 jobs are managed, with 100% of the GPU hours; the policy starts the jobs" in output
    assert figures(path)["sjf"]["launcher"] == "direct"


def test_a_share_of_the_jobs_is_given_directives_and_curves_of_a_file(past: str, tmp_path: Path) -> None:
    curves = tmp_path / "curves.jsonl"
    curves.write_text(json.dumps({"val_acc": [10.0, 50.0, *[90.0] * 38]}) + "\n")
    output = simulate(past, "--assume-directives", "1", "--curves", str(curves), "--json", str(tmp_path / "r.json"))
    assert "20 of 20 jobs are managed, with 100% of the GPU hours; Slurm starts the jobs" in output
    assert "20 jobs have directives, drawn as those of MLFS" in output
    assert f"train along {curves}" in output
    assert figures(tmp_path / "r.json")["mlfs"]["stops"] > 0
    assert "identical" not in CliRunner().invoke(main, ["compare", str(tmp_path / "r.json")]).output


def test_curves_without_a_share_are_refused(past: str, tmp_path: Path) -> None:
    assert "--curves is for --assume-directives SHARE" in simulate(past, "--curves", str(tmp_path / "c"), code=1)


def test_a_larger_share_has_the_jobs_of_a_smaller_one_and_none_changes_how_long_it_takes(past: str) -> None:
    workload = load(past)
    managed = [
        {at for at, each in enumerate(with_assumed_directives(workload, share, 3).jobs) if each.managed}
        for share in (0.3, 0.6)
    ]
    assert 0 < len(managed[0]) < len(managed[1]) < 20
    assert managed[0] <= managed[1]
    made = with_assumed_directives(workload, 1, 3).jobs[0]
    assert made.iterations / made.speed.at(4, 1) == pytest.approx(600)
    assert (made.time_limit, made.user, made.stop) == (3600.0, "ada", "optstop")


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("html", b"<!doctype html>")])
def test_a_picture_is_drawn(past: str, tmp_path: Path, ending: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"runs.{ending}"
    simulate(past, "--plot", str(path), "--policy", "slurm", "--policy", "fifo")
    assert path.read_bytes().startswith(begins)


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_simulated(past: str, tmp_path: Path) -> None:
    assert "name a file that ends in .html or .png" in simulate(past, "--plot", "runs.gif", code=1)
    assert "cannot be written" in simulate(past, "--plot", str(tmp_path / "no" / "runs.png"), code=1)


class Watching(First):
    """Notes of the last job of each cycle what is forecast of its run time, and from what."""

    needs = frozenset({"total"})

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float]] = []

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        if len(snapshot.jobs):
            self.seen.append((str(forecasts.total.source[-1]), float(forecasts.total.median[-1])))
        return super().decide(snapshot, forecasts, memory)


def test_run_times_are_learnt_from_jobs_that_completed_before() -> None:
    watching = Watching()
    jobs = [job(submit=200.0 * n, time_limit=5_000.0, user="ada") for n in range(12)]
    run(*jobs, policy=watching, run_times="forecast")
    (first, _), (last, seconds) = watching.seen[0], watching.seen[-1]
    assert first == "time limit"
    assert last != "time limit"
    assert seconds == pytest.approx(100.0, rel=0.2)


def test_a_job_that_a_policy_stopped_teaches_nothing() -> None:
    made = simulation(job())
    made.run()
    run_times = LearntRunTimes(made.engine)
    assert run_times._teaches(0)
    made.engine.logs[0].stopped = True
    assert not run_times._teaches(0)


def test_jobs_of_a_site_take_as_long_as_they_ran_on_full_nodes_too(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    rows = [f"{n}|ada|2026-03-01T10:00:00|6000|02:00:00|gres/gpu=4|32|t" for n in range(2)]
    path.write_text("\n".join(["JobID|User|Submit|ElapsedRaw|Timelimit|AllocTRES|NCPUS|JobName", *rows]) + "\n")
    simulate(f"sacct:{path}", "--policy", "slurm", "--json", str(tmp_path / "r.json"))
    assert figures(tmp_path / "r.json")["slurm"]["gpu_hours"] == pytest.approx(2 * 4 * 6000 / 3600)
