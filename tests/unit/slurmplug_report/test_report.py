"""What a training job reports, and how it is asked to stop."""

import ast
import errno
import importlib
import json
import math
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slurmplug.spool.report_files import ReportReader
from slurmplug.spool.report_lines import fold
from slurmplug.spool.requests import Requests
from slurmplug.spool.values import Points, RunId
from tests.unit.slurmplug_report.job_python import PYTHON

report = importlib.import_module("slurmplug_report.report")  # the module: the package's `report` is the function
RUN = RunId(42, 1)
JOB = {"SLURM_JOB_ID": "42", "SLURM_RESTART_COUNT": "1"}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    (tmp_path / "reports").mkdir(mode=0o755)
    (tmp_path / "reports").chmod(0o3773)
    (tmp_path / "requests").mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
def job(spool: Path) -> Iterator[Any]:
    """The reporter of a job's only process."""
    reporter = report.Reporter.from_environment({**JOB, "SLURMPLUG_SPOOL": str(spool)})
    reporter.start()
    yield reporter
    reporter.close()


def run(script: str, spool: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A training script that runs to its end in a job."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RANK", "PMI", "HOME"))}
    return subprocess.run(
        [PYTHON, "-c", script],
        env={**clean, **JOB, "SLURMPLUG_SPOOL": str(spool), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def reported(spool: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (spool / "reports" / "42.1.jsonl").read_text().splitlines()]


def eventually(condition: Callable[[], bool], seconds: float = 15) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def test_a_script_reports_by_one_line_an_iteration_that_the_daemon_reads(spool: Path) -> None:
    script = """
from slurmplug import report
for epoch in range(3):
    assert not report(iteration=epoch, loss=1 / (epoch + 1), accuracy=0.5, perplexity=9)
report(checkpoint=2)
"""
    done = run(script, spool)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    lines = ReportReader(spool).read({RUN: os.getuid()}).lines[RUN]
    points, doubts = fold(Points(), lines, now=time.time())
    assert points.iterations.tolist() == [0, 1, 2]
    assert points.quantities["loss"].tolist() == [1, 1 / 2, 1 / 3]
    assert points.quantities["perplexity"].tolist() == [9, 9, 9]
    assert points.checkpoint == 2
    assert doubts == {}


def test_outside_slurm_nothing_happens(spool: Path) -> None:
    script = """
import threading
from slurmplug import checkpoint_requested, report
print(bool(report(loss=1)), checkpoint_requested(), threading.active_count())
"""
    assert run(script, spool, SLURM_JOB_ID="").stdout == "False False 1\n"
    assert os.listdir(spool / "reports") == []


@pytest.mark.parametrize("job_id", ["../../etc/passwd", "42/..", "4²", "", "-1", "9" * 11, "42\n"])
def test_a_job_id_that_is_none_is_outside_slurm(job_id: str, spool: Path) -> None:
    assert report.Reporter.from_environment({"SLURM_JOB_ID": job_id, "SLURMPLUG_SPOOL": str(spool)}) is None


@pytest.mark.parametrize(
    ("environment", "speaks"),
    [
        ({}, True),
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "1"}, False),
        ({"RANK": "0", "SLURM_PROCID": "1"}, True),
        ({"RANK": "3", "SLURM_PROCID": "0"}, False),
        ({"OMPI_COMM_WORLD_RANK": "2", "SLURM_PROCID": "0"}, False),
        ({"PMIX_RANK": "0", "SLURM_PROCID": "0"}, True),
        ({"PMI_RANK": "5"}, False),
        ({"LOCAL_RANK": "1", "SLURM_PROCID": "0"}, False),
    ],
)
def test_rank_zero_of_the_innermost_launcher_speaks(environment: Mapping[str, str], speaks: bool) -> None:
    assert report.is_rank_zero(environment) is speaks


def test_another_rank_neither_reports_nor_is_told(spool: Path) -> None:
    Requests(spool).issue(RUN, "stop")
    assert run("from slurmplug import report; print(report(loss=1))", spool, RANK="1").stdout == "Stop(False, '', 0)\n"
    assert os.listdir(spool / "reports") == []


def test_without_an_iteration_each_report_is_the_next(job: Any, spool: Path) -> None:
    for loss in (3, 2, 1):
        job.add(None, None, {"loss": loss})
    job.close()
    assert [line["iteration"] for line in reported(spool)] == [0, 1, 2]


def test_a_trial_holds_for_the_reports_after_it_and_counts_its_iterations_anew(job: Any, spool: Path) -> None:
    job.add(None, None, {"loss": 3})
    job.add(None, None, {}, "fold 1")  # nothing to report yet
    for trial in ("fold 2", None, "fold 2"):
        job.add(None, None, {"loss": 2}, trial)
    job.add(None, None, {"loss": 1}, 7)
    job.close()
    lines = [(line.get("trial"), line["iteration"]) for line in reported(spool)]
    assert lines == [(None, 0), ("fold 2", 0), ("fold 2", 1), ("fold 2", 2), (7, 0)]


@pytest.mark.parametrize(
    ("trial", "name"),
    [(3, "3"), ("lr=0.1", "lr=0.1"), (0.5, "0.5"), (True, "True"), (10**15, "1000000000000000"), ("\u03b1", "\\u03b1")],
)
def test_a_trial_is_named_as_the_program_names_it(trial: object, name: str, job: Any, spool: Path) -> None:
    job.add(0, None, {"loss": 1}, trial)
    job.close()
    points, doubts = fold(Points(), (spool / "reports" / "42.1.jsonl").read_bytes(), now=time.time())
    assert ([each.name for each in points.trials], doubts) == ([name], {})


def test_long_names_of_trials_with_the_same_beginning_stay_apart(job: Any, spool: Path) -> None:
    for number in range(2):
        job.add(0, None, {"loss": 1}, "x" * 1_000 + str(number))
    job.close()
    points, doubts = fold(Points(), (spool / "reports" / "42.1.jsonl").read_bytes(), now=time.time())
    assert (len(points.trials), doubts) == (2, {})


class Unspeakable:
    def __str__(self) -> str:
        raise KeyError("surprise")


def test_a_trial_without_a_name_is_the_one_before_and_never_raises(job: Any, spool: Path) -> None:
    for trial in (1, Unspeakable(), ""):
        job.add(None, None, {"loss": 1}, trial)
    job.close()
    assert [(line["trial"], line["iteration"]) for line in reported(spool)] == [(1, 0), (1, 1), (1, 2)]


def test_reports_in_the_same_instant_are_in_order_and_a_clock_that_is_set_back_is_followed(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: 100.0)
        assert [job._now() for _ in range(3)] == [100.0, 100.000001, 100.000002]
        patched.setattr(time, "time", lambda: 50.0)
        assert job._now() == 50.0


class Surprising:
    def __float__(self) -> float:
        raise KeyError("surprise")


@pytest.mark.parametrize("value", [Surprising(), "not a number", object(), [1, 2], 10**400])
def test_what_is_no_number_is_told_as_none_and_never_raises(value: object, job: Any, spool: Path) -> None:
    job.add(value, None, {"loss": value, "accuracy": 0.5})
    job.close()
    (line,) = reported(spool)
    assert (line["iteration"], line["loss"], line["accuracy"]) == (None, None, 0.5)


def test_scalars_of_numpy_are_numbers(job: Any, spool: Path) -> None:
    np = pytest.importorskip("numpy")
    job.add(np.int64(3), None, {"loss": np.float32(0.5), "accuracy": np.array(0.25), "bad": np.nan})
    job.close()
    (line,) = reported(spool)
    assert (line["iteration"], line["loss"], line["accuracy"]) == (3, 0.5, 0.25)
    assert math.isnan(line["bad"])


def stops(job: Any) -> bool:
    job.add(0, None, {"loss": 1})
    return bool(job.stop)


def saves(job: Any) -> bool:
    job.add(0, None, {"loss": 1})
    return bool(job.checkpoint_requested)


def test_a_stop_request_is_told(job: Any, spool: Path) -> None:
    assert not stops(job)
    Requests(spool).issue(RUN, "stop")
    assert eventually(lambda: stops(job))
    assert not job.checkpoint_requested
    Requests(spool).withdraw(RUN, "stop")
    assert eventually(lambda: not stops(job))


def test_a_request_is_seen_though_nothing_is_reported(job: Any, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "IDLE_SECONDS", 0.1)
    job.add(0, None, {})  # ends the first, long wait
    Requests(spool).issue(RUN, "stop")
    assert eventually(lambda: bool(job.stop))


def test_a_stop_request_to_an_earlier_run_is_not_ours(job: Any, spool: Path) -> None:
    requests = Requests(spool)
    requests.issue(RunId(42, 0), "stop")
    requests.issue(RUN, "checkpoint")
    assert eventually(lambda: saves(job))
    assert not job.stop


def test_a_checkpoint_request_never_stops_and_is_answered_by_a_reported_checkpoint(job: Any, spool: Path) -> None:
    requests = Requests(spool)
    requests.issue(RUN, "checkpoint")
    assert eventually(lambda: saves(job))
    assert not job.stop
    job.add(7, 7, {})
    assert not job.checkpoint_requested
    requests.issue(RUN, "checkpoint")  # another
    assert eventually(lambda: saves(job))


SIGNALLED = """
import os, signal
from slurmplug_report import checkpoint_on_signal, checkpoint_requested, report
checkpoint_on_signal(signal.SIGUSR2)
asked = [checkpoint_requested()]
os.kill(os.getpid(), signal.SIGUSR2)
asked += [checkpoint_requested(), bool(report(iteration=3, loss=0.5)), checkpoint_requested()]
report(checkpoint=3)
asked.append(checkpoint_requested())
os.kill(os.getpid(), signal.SIGUSR2)
print(*asked, checkpoint_requested())
"""


def test_a_signal_requests_a_checkpoint_until_one_is_reported(spool: Path) -> None:
    done = run(SIGNALLED, spool)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["False", "True", "False", "True", "False", "True"]
    assert [line["checkpoint"] for line in reported(spool) if "checkpoint" in line] == [3]


def test_other_ranks_survive_a_signal_for_a_checkpoint_and_are_not_asked(spool: Path) -> None:
    done = run(SIGNALLED, spool, SLURM_PROCID="1")
    assert (done.returncode, done.stdout.split()) == (0, ["False"] * 6)


def test_outside_slurm_signals_keep_their_handlers(spool: Path) -> None:
    script = """
import signal
from slurmplug_report import checkpoint_on_signal
checkpoint_on_signal(signal.SIGUSR1)
print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)
"""
    assert run(script, spool, SLURM_JOB_ID="").stdout == "True\n"


@pytest.mark.parametrize("folder", [".", "requests"])
def test_a_request_that_anybody_could_have_made_is_not_believed(folder: str, spool: Path, job: Any) -> None:
    (spool / folder).chmod(0o777)
    Requests(spool).issue(RUN, "stop")
    Requests(spool).issue(RUN, "checkpoint")
    job._check_requests()
    assert not job.stop
    assert not job.checkpoint_requested


def test_a_requests_folder_that_is_a_link_is_not_believed(spool: Path, job: Any) -> None:
    (spool / "requests").rename(spool / "elsewhere")
    (spool / "requests").symlink_to(spool / "elsewhere")
    Requests(spool).issue(RUN, "stop")
    job._check_requests()
    assert not job.stop


def test_the_daemons_group_can_read_a_report_whatever_the_umask(spool: Path) -> None:
    assert run("import os; os.umask(0o777); from slurmplug import report; report(loss=1)", spool).returncode == 0
    assert stat.S_IMODE((spool / "reports" / "42.1.jsonl").stat().st_mode) == 0o640


def _directory(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


@pytest.mark.parametrize("squat", [_directory, _fifo, _link])
def test_who_takes_a_runs_name_blocks_no_report(squat: Callable[[Path], None], spool: Path) -> None:
    squat(spool / "reports" / "42.1.jsonl")
    assert run("from slurmplug import report; report(iteration=1, loss=1)", spool).returncode == 0
    assert b'"loss":1' in ReportReader(spool).read({RUN: os.getuid()}).lines[RUN]
    assert not (spool / "reports" / "victim").exists()


def test_who_takes_a_runs_name_with_a_file_of_their_own_blocks_no_report(spool: Path) -> None:
    path = spool / "reports" / "42.1.jsonl"
    path.write_text("theirs\n")
    theirs = 65_534 if os.geteuid() == 0 else None
    if theirs is None:
        path.unlink()
        path.symlink_to("/etc/hostname")  # without root, a file of root's
    else:
        os.chown(path, theirs, theirs)
        path.chmod(0o666)
    run("from slurmplug import report; report(iteration=1, loss=1)", spool)
    assert b'"loss":1' in ReportReader(spool).read({RUN: os.getuid()}).lines[RUN]


def test_a_spool_that_is_not_there_is_said_once_and_harms_nothing(tmp_path: Path) -> None:
    script = """
import time
from slurmplug import report
for i in range(3):
    report(iteration=i, loss=i)
    time.sleep(0.6)  # a flush each
print("trained")
"""
    done = run(script, tmp_path / "missing")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.count("progress is not reported") == 1


def test_a_process_forked_after_a_report_neither_repeats_nor_loses_reports(spool: Path) -> None:
    script = """
import os, warnings
from slurmplug import report
warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12, of any fork beside a thread
report(iteration=0, loss=1)
child = os.fork()
if child == 0:
    report(iteration=1, loss=2)
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
report(iteration=2, loss=3)
"""
    done = run(script, spool)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(line["iteration"] for line in reported(spool)) == [0, 1, 2]


def test_a_multiprocessing_child_loses_no_report(spool: Path) -> None:
    script = """
import multiprocessing
from slurmplug import report
child = multiprocessing.get_context("fork").Process(target=report, kwargs={"iteration": 5, "loss": 2})
child.start(); child.join(); assert child.exitcode == 0
"""
    done = run(script, spool)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line["iteration"] for line in reported(spool)] == [5]


def test_a_job_that_reports_very_often_writes_a_bounded_part_with_its_last_report_and_its_checkpoints(
    job: Any, spool: Path
) -> None:
    job._written = 3 * report.THINNING_BYTES
    job._queue.extend({"iteration": i} for i in range(5_000))
    job._queue.insert(2_500, {"checkpoint": 7})
    lines = [json.loads(line) for line in job._lines().splitlines()]
    assert lines[-1] == {"iteration": 4_999}
    assert {"checkpoint": 7} in lines
    assert 64 < len(lines) <= 129


def test_a_job_that_reports_very_often_writes_where_each_of_its_trainings_begins(job: Any) -> None:
    job._written = 10 * report.THINNING_BYTES
    iterations = [iteration for _ in range(3) for iteration in range(40)]
    lines = b""
    for at in range(5, 120, 40):
        job._queue.extend({"time": float(at), "iteration": i, "loss": 0.5} for i in iterations[max(0, at - 40) : at])
        lines += job._lines()
    told = [json.loads(line)["iteration"] for line in lines.splitlines()]
    assert told == [0, 4, 0, 4, 0, 4]
    points, _ = fold(Points(), lines, now=200.0)
    assert len(points.trials) == 3


def test_a_line_torn_by_a_full_disk_spoils_no_later_line(job: Any, spool: Path, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b'{"iterat')
        job._partial_line = True
        job._write(file.fileno(), b'{"iteration":1}\n')
    assert (tmp_path / "file").read_bytes().splitlines()[-1] == b'{"iteration":1}'


def test_a_disk_that_is_full_for_a_while_costs_the_job_no_report_and_no_open_file(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = report.Reporter.from_environment({**JOB, "SLURMPLUG_SPOOL": str(spool)})
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 10:
            return write(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    job.add(0, None, {"loss": 3})
    job._flush()
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for iteration in range(1, 5):
            job.add(iteration, iteration, {"loss": 3 - iteration / 2})
            job._flush()
    assert len(os.listdir("/proc/self/fd")) <= before
    job._flush()
    job.add(5, None, {"loss": 0.1})
    job._flush()
    points, _ = fold(Points(), (spool / "reports" / "42.1.jsonl").read_bytes(), now=time.time())
    assert points.iterations.tolist() == [0, 1, 2, 3, 4, 5]
    assert points.checkpoint == 4


def test_only_the_standard_library_is_imported_inside_a_job() -> None:
    code = "import sys; old = set(sys.modules); import slurmplug_report.report; print(sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in ast.literal_eval(done.stdout)}
    assert tops - set(sys.stdlib_module_names) == {"slurmplug_report"}
