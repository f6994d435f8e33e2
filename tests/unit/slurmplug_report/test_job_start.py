"""What an earlier job with the same id left in the spool is neither obeyed nor written to."""

import importlib
import io
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmplug.spool.requests import RequestKind, Requests
from slurmplug.spool.values import RunId
from slurmplug_report import job_start
from slurmplug_report.job_start import CLOCK_DIFFERENCE, earliest_file_time

report = importlib.import_module("slurmplug_report.report")  # the module: the package's `report` is the function
RUN = RunId(42, 0)
BEGAN = 1_700_000_000
JOB = {"SLURM_JOB_ID": "42", "SLURM_JOB_START_TIME": str(BEGAN)}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    for name in ("reports", "requests"):
        (tmp_path / name).mkdir(mode=0o755)
    return tmp_path


def reporter(spool: Path, **environment: str) -> Any:
    return report.Reporter.from_environment({**JOB, "SLURMPLUG_SPOOL": str(spool), **environment})


def written(spool: Path, **environment: str) -> list[str]:
    """The names of the report files after a process of the job has reported."""
    process = reporter(spool, **environment)
    process.start()
    process.add(1, None, {"loss": 1.0})
    process.close()
    return sorted(path.name for path in (spool / "reports").iterdir())


@pytest.mark.parametrize("start", ["", "soon", "-5", "1" * 13, "١٢"])
def test_without_a_valid_start_time_nothing_is_too_old(start: str) -> None:
    assert earliest_file_time({"SLURM_JOB_START_TIME": start}) == float("-inf")


def test_slurm_states_when_the_job_started() -> None:
    assert earliest_file_time(JOB) == BEGAN - CLOCK_DIFFERENCE
    assert earliest_file_time({**JOB, "SLURM_STEP_ID": "3", "SLURM_TASK_PID": "1"}) == BEGAN - CLOCK_DIFFERENCE


def test_older_releases_only_tell_by_the_process_of_the_batch_script() -> None:
    batch = {"SLURM_TASK_PID": str(os.getpid())}
    began = earliest_file_time(batch) + CLOCK_DIFFERENCE
    here = os.stat("/proc/self").st_ctime
    assert time.time() - began >= 0
    assert began <= here + 1.0
    assert earliest_file_time({**batch, "SLURM_STEP_ID": "0"}) == float("-inf")
    parent = earliest_file_time({"SLURM_TASK_PID": str(os.getppid())})
    assert float("-inf") < parent <= earliest_file_time(batch) + 1e-3
    with subprocess.Popen(["sleep", "60"]) as other:
        found = earliest_file_time({"SLURM_TASK_PID": str(other.pid)})
        other.kill()
    assert found == float("-inf")


def test_in_a_container_that_shows_an_uptime_of_its_own_no_request_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_container(path: str, mode: str) -> Any:
        return io.BytesIO(b"60.00 60.00\n") if path == "/proc/uptime" else open(path, mode)

    monkeypatch.setattr(job_start, "open", in_container, raising=False)
    assert earliest_file_time({"SLURM_TASK_PID": str(os.getpid())}) <= time.time()


@pytest.mark.parametrize(("kind", "asked"), [("stop", "stop"), ("checkpoint", "checkpoint_requested")])
def test_a_request_from_before_the_job_is_to_another_one(spool: Path, kind: RequestKind, asked: str) -> None:
    Requests(spool).issue(RUN, kind)
    request = spool / "requests" / f"42.0.{kind}"
    job = reporter(spool)
    for when, expected in ((BEGAN - 60, False), (BEGAN + 60, True)):
        os.utime(request, (when, when))
        job._check_requests()
        assert bool(getattr(job, asked)) == expected


def test_a_file_from_before_the_job_is_left_alone(spool: Path) -> None:
    old = spool / "reports" / "42.0.jsonl"
    old.write_text('{"iteration": 9}\n')
    os.utime(old, (BEGAN - 60, BEGAN - 60))
    names = written(spool)
    assert (len(names), names[-1]) == (2, old.name)
    assert old.read_text() == '{"iteration": 9}\n'


@pytest.mark.parametrize(
    "prepare", [lambda path: path.write_text('{"iteration": 1}\n'), lambda path: path.touch(), lambda path: None]
)
def test_a_file_of_an_earlier_process_of_the_job_is_appended_to(spool: Path, prepare: Callable[[Path], object]) -> None:
    prepare(spool / "reports" / "42.0.jsonl")
    assert written(spool) == ["42.0.jsonl"]
