"""What reporting costs a training job, and what reading reports costs the daemon."""

import importlib
import json
import os
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from slurmplug.directives.parser import parse
from slurmplug.spool.report_files import ReportReader
from slurmplug.spool.report_lines import fold
from slurmplug.spool.values import Points, RunId

NOW = 1_800_000_000.0


def spool_of(folder: Path) -> Path:
    for name in ("reports", "requests"):
        (folder / name).mkdir()
    return folder


def test_one_report(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Amortised: the thread writes meanwhile."""
    environment = {"SLURM_JOB_ID": "42", "SLURMPLUG_SPOOL": str(spool_of(tmp_path))}
    reporter = importlib.import_module("slurmplug_report.report").Reporter.from_environment(environment)
    reporter.start()
    benchmark(reporter.add, 1, None, {"loss": 0.25, "accuracy": 0.5})
    reporter.close()
    assert b'"loss":0.25' in ReportReader(tmp_path).read({RunId(42, 0): os.getuid()}).lines[RunId(42, 0)]


def test_a_cycle_over_10000_runs_of_which_1000_reported(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    spool = spool_of(tmp_path)
    wanted = {RunId(job, 0): os.getuid() for job in range(1, 10_001)}
    line = json.dumps({"time": NOW, "iteration": 1, "loss": 0.5}).encode() + b"\n"
    for run in wanted:
        (spool / "reports" / f"{run.job_id}.0.jsonl").write_bytes(line)
    hours = [0]
    reader = ReportReader(spool, clock=lambda: 3_600.0 * hours[0])
    while reader.read(wanted).lines:
        hours[0] += 1

    def some_report() -> None:
        hours[0] += 1
        for job in range(1, 1_001):
            with (spool / "reports" / f"{job}.0.jsonl").open("ab") as file:
                file.write(line)

    new = benchmark.pedantic(reader.read, args=(wanted,), setup=some_report, rounds=5)
    assert len(new.lines) == 1_000


def test_fold_a_thousand_lines(benchmark: BenchmarkFixture) -> None:
    data = b"".join(
        json.dumps({"time": NOW, "iteration": i, "loss": 1 / (i + 1), "accuracy": 0.5}).encode() + b"\n"
        for i in range(1_000)
    )
    points, _ = benchmark(fold, Points(), data, now=NOW)
    assert len(points) == 1_000


def test_fold_one_line_into_a_thousand_points(benchmark: BenchmarkFixture) -> None:
    data = b"".join(json.dumps({"iteration": i, "loss": 1 / (i + 1)}).encode() + b"\n" for i in range(1_000))
    before, _ = fold(Points(), data, now=NOW)
    points, _ = benchmark(fold, before, b'{"iteration": 1000, "loss": 0.001}\n', now=NOW)
    assert len(points) == 1_001


def test_directives_of_a_script(benchmark: BenchmarkFixture) -> None:
    script = b"""#!/bin/bash
#SBATCH --gres=gpu:4 --requeue
#PLUG --deadline=tomorrow 18:00
#PLUG --target=accuracy>=0.92 --max-iterations=90
#PLUG --stop=optstop --allow-downgrade=target
#PLUG --gpus=2..8 --checkpoint=USR1:batch --urgency=7
srun python train.py
"""
    found = benchmark(parse, script, submitted=NOW)
    assert found.problems == ()
