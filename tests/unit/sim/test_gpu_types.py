"""Simulated clusters of two types of GPU, and jobs that request one or train faster on one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.baselines.fair import Fair
from policies.baselines.sjf import SRTF
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.engine.workload_table import workload_table
from slurmplug.sim.workloads.csv_format import write
from slurmplug.sim.workloads.load import WorkloadError, load
from tests.sim_jobs import First, job, run, simulation, speed

TWO_TYPES = "1x4:v100+1x4:k80"


def test_a_cluster_names_the_types_of_its_gpus() -> None:
    nodes = parse("2x4:a100+1x8x16x1000:v100+1x2")
    assert nodes.gpu_type == ("a100", "a100", "v100", "")
    assert (nodes.gpus, nodes.cpus[2], nodes.memory[2]) == ((4, 4, 8, 2), 16, 1000)


def test_a_job_is_refused_on_another_type_than_it_requests() -> None:
    engine = Engine(workload_table([job(gpu_type="k80")], all_managed=True), parse(TWO_TYPES))
    engine.run_until(0.0)
    assert "k80" in engine.place(0, ((0, 1),))
    assert engine.place(0, ((1, 1),)) == ""


def test_a_job_trains_as_fast_as_on_the_slowest_of_its_types() -> None:
    wide = job(gpus=5, speed=speed((1, 1, 1.0)), type_speeds={"k80": 0.1})
    engine = Engine(workload_table([wide, job(type_speeds={"k80": 0.1})], all_managed=True), parse(TWO_TYPES))
    engine.run_until(0.0)
    engine.place(0, ((0, 4), (1, 1)))
    engine.place(1, ((1, 1),))
    engine.run_until(50.0)
    assert [engine.iterations_done(each) for each in (0, 1)] == pytest.approx([5.0, 5.0])


@pytest.mark.parametrize("launcher", ["direct", "slurm"])
@pytest.mark.parametrize("policy", [First, Fair, SRTF], ids=lambda each: each.name)
def test_jobs_wait_for_the_type_that_they_request(launcher: str, policy: Callable[[], Any]) -> None:
    jobs = (
        *(job(gpus=4, gpu_type="v100", iterations=50) for _ in range(2)),
        job(gpus=4, gpu_type="k80", submit=1.0),
        job(gpus=2, submit=2.0, iterations=10),
    )
    finished = run(*jobs, launcher=launcher, policy=policy(), cluster=TWO_TYPES).finished
    first, second, other, _ = finished
    assert all(each.ended == each.ended for each in finished)
    assert other.started < min(second.ended, first.ended)  # beside those that wait for the other type
    assert max(first.started, second.started) >= min(first.ended, second.ended)  # one after the other on four v100


def test_speeds_ahead_are_those_of_the_type_that_a_job_will_have() -> None:
    """Of four jobs of a kind on either type; in a simulation the forecasts' speeds are learnt as live."""
    kind = {"kind": "resnet", "gpus": 1, "iterations": 400, "type_speeds": {"k80": 0.1}}
    trains = [job(gpu_type=each, **kind) for each in ("v100", "k80") for _ in range(4)]
    waits = [job(gpu_type=each, submit=60.0, **kind) for each in ("v100", "k80")]
    made = simulation(*trains, *waits, cluster=TWO_TYPES, policy=First())
    made.port.wait(100.0)
    made.scheduler.run()
    made.port.wait(200.0)
    made.scheduler.run()
    snapshot, _ = made.scheduler.intake.absorb(made.port.read((), {}), 3)
    fan = made.scheduler.forecaster.forecast(snapshot, frozenset({"speed", "rigid speed"})).speed
    rates = fan.at(np.arange(8, 10), 1).median
    assert rates == pytest.approx([1.0, 0.1], rel=0.1)


def test_types_and_their_speeds_are_written_and_read(tmp_path: Path) -> None:
    jobs: tuple[SimJob, ...] = (job(gpu_type="a100", type_speeds={"a100": 2.5, "k80": 0.1}), job())
    write(Workload("w", jobs), tmp_path / "w.csv")
    again = load(str(tmp_path / "w.csv")).jobs
    assert [(each.gpu_type, each.type_speeds) for each in again] == [("a100", {"a100": 2.5, "k80": 0.1}), ("", {})]


@pytest.mark.parametrize("text", ["k80", "k80:0", "k80:fast", ":2"])
def test_a_speed_of_a_type_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.csv"
    path.write_text(f"submit,name,gpus,iterations,speed,type_speeds\n0,a,1,10,1.0,{text}\n")
    with pytest.raises(WorkloadError, match="TYPE:FACTOR"):
        load(str(path))
