"""What a job's node bears, from the meter in the job to the nodes of a snapshot."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import JobRecord
from slurmplug.intake.node_load import LOAD_MAX_AGE, reported_load
from slurmplug.spool.report_lines import fold
from slurmplug.spool.values import Points
from slurmplug_report import gpu_load
from slurmplug_report.gpu_load import LoadMeter, visible_gpus
from slurmplug_report.report import Reporter
from tests.builders import NOW


def record(job_id: int, told: dict[str, float], at: float = NOW) -> JobRecord:
    facts: dict[str, Any] = {**dict.fromkeys(JobFacts._fields, ""), "restarts": 0}  # no other is looked at
    return JobRecord(JobKey("testing", job_id, int(NOW)), JobFacts(**facts), points=Points(load=told, load_time=at))


class FakeNvml:
    """Two GPUs: one half busy and full, one idle and empty."""

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return {"GPU-b": 1}[name]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=[50, 0][handle])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=[8, 0][handle], total=8)


def test_the_visible_gpus_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_load, "_started_nvml", FakeNvml)
    monkeypatch.setattr(gpu_load, "_module", lambda name: None)
    for visible, expected in [("", (0.25, 0.5)), ("0", (0.5, 1.0)), ("GPU-b", (0.0, 0.0)), ("0,1", (0.25, 0.5))]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert LoadMeter().measure() == {"gpu": expected[0], "gpu_memory": expected[1]}


def test_a_driver_that_fails_ends_nobodys_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_load, "_started_nvml", FakeNvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-unknown")
    assert LoadMeter().measure() == {}


def test_all_gpus_are_visible_where_the_variable_is_empty() -> None:
    assert visible_gpus("", 2) == ["0", "1"]
    assert visible_gpus(" 3, 5 ", 8) == ["3", "5"]


def test_the_network_is_told_as_a_rate_since_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = LoadMeter()
    counted = iter([(0, 0), (2_000_000, 6_000_000)])

    def counters(pernic: bool) -> dict[str, Any]:
        sent, received = next(counted)
        return {
            "eth0": SimpleNamespace(bytes_sent=sent, bytes_recv=received),
            "lo": SimpleNamespace(bytes_sent=9e9, bytes_recv=9e9),
        }

    fake = SimpleNamespace(net_io_counters=counters, net_if_stats=lambda: {"eth0": SimpleNamespace(speed=100)})
    monkeypatch.setattr(meter, "_psutil", fake)
    monkeypatch.setattr(meter, "_nvml", None)
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert meter.measure() == {}
    assert meter.measure() == {"sent": 1_000_000.0, "network": 0.24}


def test_report_tells_the_load_in_lines_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadMeter, "measure", lambda self: {"gpu": 0.5})
    (tmp_path / "reports").mkdir()
    (tmp_path / "requests").mkdir()
    reporter = Reporter("7.0", str(tmp_path), writes=True)
    reporter.start()
    reporter.add(1, None, {"loss": 0.5})
    reporter.close()
    lines = [json.loads(line) for line in (tmp_path / "reports" / "7.0.jsonl").read_text().splitlines()]
    assert [line["load"] for line in lines if "load" in line] == [{"gpu": 0.5}]
    assert [line["loss"] for line in lines if "loss" in line] == [0.5]


def test_the_last_load_that_was_told_is_kept_beside_the_points() -> None:
    result = b'{"time": %d, "load": {"gpu": 0.5, "sent": 1e6}}\n{"time": %d, "iteration": 1, "loss": 2}\n'
    points, doubts = fold(Points(), result % (NOW - 9, NOW - 8), now=NOW)
    assert (points.load, points.load_time, doubts) == ({"gpu": 0.5, "sent": 1e6}, NOW - 9, {})
    assert points.iterations.tolist() == [1]


@pytest.mark.parametrize("told", ['{"gpu": 1.5}', '{"gpu": -1}', '{"sent": "x"}', '{"other": 1}', "7"])
def test_a_load_that_cannot_be_is_dropped_and_counted(told: str) -> None:
    points, doubts = fold(Points(), f'{{"load": {told}}}\n'.encode(), now=NOW)
    assert points.load == {}
    assert doubts == {"impossible load": 1}


def test_what_jobs_report_of_their_nodes_stays_with_the_job_that_reported_it() -> None:
    records = [
        record(1, {"gpu": 0.5, "network": 0.2, "sent": 3.0}, NOW - 40),
        record(2, {"gpu": 1.0, "network": 0.9}, NOW - 10),
        record(3, {"network": 1.0}, NOW - LOAD_MAX_AGE - 1),
    ]
    every = np.arange(3)
    np.testing.assert_array_equal(reported_load(records, "network", every, NOW), [0.2, 0.9, np.nan])
    np.testing.assert_array_equal(reported_load(records, "sent", every, NOW), [3.0, np.nan, np.nan])
    np.testing.assert_array_equal(reported_load(records, "sent", np.array([1]), NOW), [np.nan] * 3)


def test_a_load_that_the_run_before_a_requeue_measured_says_nothing_of_the_nodes_of_the_next() -> None:
    again = record(1, {"gpu": 0.5, "network": 0.2, "sent": 3.0})
    again.facts = again.facts._replace(restarts=1)
    assert np.isnan([*(reported_load([again], name, np.arange(1), NOW) for name in ("network", "sent"))]).all()
