"""What a program learns of a request to stop: why, and with which status to exit."""

import copy
import importlib
import json
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.plan import Reason
from slurmplug.operations.stop_request import REASONS, content
from slurmplug.spool.requests import Requests
from slurmplug.spool.values import RunId
from slurmplug_report.stop import GO_ON, MAX_BYTES, Stop, read_request
from tests.builders import jobs
from tests.unit.slurmplug_report.job_python import PYTHON

report = importlib.import_module("slurmplug_report.report")
RUN = RunId(42, 0)
MET: dict[str, float | str] = {"cause": "reached", "achieved": 0.93, "target": 0.92, "iteration": 41.0}
MISSED: dict[str, float | str] = {"cause": "misses", "achieved": 0.8, "target": 0.92, "iteration": 41.0}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    for name in ("reports", "requests"):
        (tmp_path / name).mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
def job(spool: Path) -> Any:
    return report.Reporter.from_environment({"SLURM_JOB_ID": "42", "SLURMPLUG_SPOOL": str(spool)})


def request(spool: Path, facts: dict[str, float | str], **columns: Any) -> None:
    said = content(Reason("a rule", facts), jobs(1, **columns), 0)
    Requests(spool).issue(RUN, "stop", said)


class TestTheAnswer:
    def test_is_a_number_that_is_true_to_stop(self) -> None:
        stop = Stop(True, "target", 0)
        assert stop
        assert bool(stop) is True
        assert [stop == other for other in (True, 1, False, 0)] == [True, True, False, False]
        assert (stop + 1, stop * 3, int(stop), [10, 20][stop], max(stop, 0)) == (2, 3, 1, 20, 1)
        assert not GO_ON
        assert [other == GO_ON for other in (True, 1, False, 0)] == [False, False, True, True]
        assert (GO_ON.reason, GO_ON.status) == ("", 0)
        assert json.dumps([stop, GO_ON]) == "[1, 0]"

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda stop: pickle.loads(pickle.dumps(stop))])
    def test_says_the_same_as_a_copy_and_on_another_rank(self, copied: Callable[[Stop], Stop]) -> None:
        stop = copied(Stop(True, "out of reach", 1))
        assert (bool(stop), stop.reason, stop.status) == (True, "out of reach", 1)
        assert repr(stop) == "Stop(True, 'out of reach', 1)"

    def test_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            GO_ON.status = 1  # type: ignore[misc]

    def test_becomes_a_tensor(self) -> None:
        torch = pytest.importorskip("torch")
        for stop in (Stop(True, "target", 0), GO_ON):
            assert bool(torch.tensor(stop)) == bool(stop)
            assert torch.tensor([stop, False], dtype=torch.uint8).tolist() == [int(stop), 0]
            assert torch.tensor(stop, dtype=torch.uint8).item() == int(stop)

    def test_becomes_an_array(self) -> None:
        np = pytest.importorskip("numpy")
        assert np.array(Stop(True, "target", 0)).tolist() == 1


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("reached", "slurmplug: stop requested after iteration 41: accuracy 0.93 meets the target 0.92"),
        ("maximum", "slurmplug: stop requested after iteration 41: accuracy 0.93 is not likely to get better"),
        (
            "misses",
            "slurmplug: stop requested after iteration 41: accuracy 0.93 is not likely to reach the target 0.92",
        ),
        ("diverged", "slurmplug: stop requested after iteration 41: the training has diverged"),
        ("of another policy", "slurmplug: stop requested after iteration 41"),
    ],
)
def test_a_program_learns_the_cause_and_its_user_the_figures(
    cause: str, line: str, spool: Path, job: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    request(spool, {**MET, "cause": cause})
    job._check_requests()
    assert job.stop
    assert job.stop.reason == REASONS.get(cause, "other")
    assert capfd.readouterr().err == f"{line}\n"


def test_figures_of_a_quantity_that_is_better_when_lower_have_their_own_sign(spool: Path) -> None:
    request(spool, {**MET, "achieved": -0.08, "target": -0.1}, quantity="loss", sign=-1.0)
    line = read_request(str(spool / "requests" / "42.0.stop")).line
    assert line == "slurmplug: stop requested after iteration 41: loss 0.08 meets the target 0.1"


def test_a_best_value_of_an_earlier_iteration_is_told_with_it(spool: Path) -> None:
    request(spool, {**MET, "achieved_at": 30.0})
    line = read_request(str(spool / "requests" / "42.0.stop")).line
    assert line == "slurmplug: stop requested after iteration 41: accuracy 0.93 of iteration 30 meets the target 0.92"


@pytest.mark.parametrize(
    ("facts", "requires_target", "status"),
    [
        (MET, True, 0),
        (MISSED, False, 0),
        (MISSED, True, 1),
        ({**MISSED, "cause": "maximum", "achieved": 0.93}, True, 0),  # it gets no better, and has met its target
        ({"cause": "diverged"}, True, 1),
        ({}, True, 1),
    ],
)
def test_the_status_is_a_failure_only_where_the_script_requires_a_target_that_is_not_met(
    facts: dict[str, float | str], requires_target: bool, status: int, spool: Path, job: Any
) -> None:
    request(spool, facts, requires_target=requires_target)
    job._check_requests()
    assert job.stop.status == status


def test_the_line_is_written_once_though_the_request_is_repeated_and_not_by_other_ranks(
    spool: Path, job: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    other = report.Reporter("42.0", str(spool), writes=False)
    for _ in range(2):
        request(spool, MET)
        job._check_requests()
        other._check_requests()
        assert job.stop
        assert other.stop.reason == "target"
    assert capfd.readouterr().err.count("stop requested") == 1
    Requests(spool).withdraw(RUN, "stop")
    job._check_requests()
    assert job.stop is GO_ON


def test_a_user_without_a_standard_error_is_still_told_to_stop(spool: Path) -> None:
    request(spool, MET)
    script = "import os, time; os.close(2); from slurmplug import report\nwhile not report(loss=1): time.sleep(0.01)"
    environment = {**os.environ, "SLURM_JOB_ID": "42", "SLURMPLUG_SPOOL": str(spool)}
    assert subprocess.run([PYTHON, "-c", script], env=environment, timeout=30, check=False).returncode == 0


class TestAnyFileIsARequest:
    @pytest.mark.parametrize(
        "data",
        [
            b"",  # as releases before wrote it
            b'{"version": 1, "reason": "tar',
            b"[1]",
            b"\xff\xfe",
            b"[" * MAX_BYTES,
            b'{"version": 2, "reason": "target", "status": 1}',
            b'{"version": 1, "reason": "target", "status": 1}' + b" " * MAX_BYTES,
            b'{"version": 1, "reason": "\\u001b[2J", "status": 300}',
            b'{"version": 1, "reason": ["target"], "status": true, "iteration": "x", "value": NaN, "quantity": 3}',
            b'{"version": 1, "iteration": 1e999, "value": ' + b"9" * 400 + b"}",
        ],
    )
    def test_whatever_it_says(self, data: bytes, spool: Path, job: Any, capfd: pytest.CaptureFixture[str]) -> None:
        (spool / "requests" / "42.0.stop").write_bytes(data)
        job._check_requests()
        assert (bool(job.stop), job.stop.reason, job.stop.status) == (True, "other", 0)
        assert capfd.readouterr().err == "slurmplug: stop requested\n"

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
    def test_and_nothing_else_is_read(self, make: Callable[[Path], None], spool: Path, job: Any) -> None:
        make(spool / "requests" / "42.0.stop")
        job._check_requests()
        assert job.stop.reason == "other"

    def test_it_says_more_when_it_is_complete(self, spool: Path, job: Any) -> None:
        path = spool / "requests" / "42.0.stop"
        path.write_bytes(b"")
        os.utime(path, (1, 1))
        job._check_requests()
        path.write_text(content(Reason("", MET), jobs(1), 0))
        job._check_requests()
        assert job.stop.reason == "target"


def test_a_request_to_save_says_nothing_and_stops_nothing(
    spool: Path, job: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    Requests(spool).issue(RUN, "checkpoint")
    job._check_requests()
    assert job.checkpoint_requested
    assert job.stop is GO_ON
    assert capfd.readouterr().err == ""
