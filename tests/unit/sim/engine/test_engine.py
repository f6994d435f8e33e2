"""The simulated cluster: what trains how fast, what a restart costs, and what does not fit."""

from typing import Any

import numpy as np
import pytest

from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.job import Part, SimJob, Speed
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.engine.workload_table import workload_table


def speed(*points: tuple[int, int, float]) -> Speed:
    """Of points (GPUs, nodes, iterations a second)."""
    gpus, nodes, rate = zip(*points, strict=True)
    return Speed(np.array(gpus), np.array(nodes), np.array(rate))


def job(**fields: Any) -> SimJob:
    """One GPU, 100 iterations of a second each, no restart cost, unless said otherwise."""
    defaults: dict[str, Any] = {
        "name": "j", "submit": 0.0, "gpus": 1, "iterations": 100, "speed": speed((1, 1, 1.0)), "restart": 0.0,
    }  # fmt: skip
    return SimJob(**defaults | fields)


def nodes(count: int = 2, gpus: int = 4, cpus: int = 8, memory: float = 1000.0, network: float = 100.0) -> SimNodes:
    return SimNodes(
        tuple(f"n{i}" for i in range(count)), (gpus,) * count, (cpus,) * count, (memory,) * count, (network,) * count
    )


def engine(*jobs: SimJob, on: SimNodes | None = None, until: float = 0.0) -> Engine:
    """An engine whose jobs have arrived by then."""
    made = Engine(workload_table(jobs, all_managed=True), on or nodes())
    made.run_until(until)
    return made


def test_a_job_runs_its_iterations_at_its_speed_and_gives_its_gpus_back() -> None:
    site = engine(job(gpus=2, speed=speed((2, 1, 4.0))))
    assert site.place(0, ((0, 2),)) == ""
    site.run_until(20.0)
    assert site.iterations_done(0) == pytest.approx(80.0)
    assert site.nodes.used[0, 0] == 2
    site.run_until(30.0)
    assert (site.ended[0], site.logs[0].state, site.unfinished) == (25.0, "COMPLETED", 0)
    assert site.nodes.used.sum() == 0
    assert site.attained[0] == pytest.approx(50.0)


def test_speed_is_that_of_the_gpus_and_of_the_nodes_they_are_on() -> None:
    site = engine(job(gpus=4, speed=speed((4, 1, 2.0), (4, 2, 0.5))))
    site.place(0, ((0, 2), (1, 2)))
    site.run_until(10.0)
    assert site.iterations_done(0) == pytest.approx(5.0)


def test_each_hour_is_as_fast_as_its_pace_says() -> None:
    site = engine(job(iterations=15_000, paces=np.array([1.5, 0.5])), job(iterations=7_200))
    site.run_until(1_800.0)
    site.place(0, ((0, 1),))
    site.place(1, ((1, 1),))
    for until, done in [(3_600.0, 2_700.0), (7_200.0, 4_500.0), (9_000.0, 7_200.0)]:
        site.run_until(until)
        assert site.iterations_done(0) == pytest.approx(done)
    assert site.ended[1] == 9_000.0
    assert site.next_event() == 10_800.0
    site.run_until(30_000.0)
    assert site.ended[0] == pytest.approx(16_600.0)
    assert site.next_event() == np.inf


def test_a_pace_that_changes_during_a_restart_is_in_force_after_it() -> None:
    site = engine(job(startup=1_200.0, paces=np.array([2.0, 1.0, 1.0])), until=3_000.0)
    site.place(0, ((0, 1),))
    site.run_until(4_250.0)
    assert site.iterations_done(0) == pytest.approx(50.0)


def test_a_place_that_is_taken_or_too_small_is_refused_and_changes_nothing() -> None:
    site = engine(job(gpus=3), job(gpus=2))
    site.place(0, ((0, 3),))
    assert site.place(1, ((0, 2),)) == "not enough GPUs free on n0"
    assert site.place(1, ((1, 3),)) == "3 GPUs are not between 2 and 2"
    assert site.place(1, ((1, 1), (1, 1))) == "no node is named, or one twice"
    assert site.place(1, ()) == "no node is named, or one twice"
    assert site.nodes.used[:, 0].tolist() == [3, 0]


def test_free_gpus_on_many_nodes_are_no_room_on_one() -> None:
    site = engine(job(gpus=3), job(gpus=3), job(gpus=2))
    site.place(0, ((0, 3),))
    site.place(1, ((1, 3),))
    assert "GPUs" in site.place(2, ((0, 2),))
    assert site.place(2, ((0, 1), (1, 1))) == ""


@pytest.mark.parametrize(("asked", "lacks"), [({"cpus": 6}, "CPUs"), ({"memory": 600.0}, "memory")])
def test_cpus_and_memory_bound_what_a_node_holds_too(asked: dict[str, Any], lacks: str) -> None:
    site = engine(job(**asked), job(**asked))
    site.place(0, ((0, 1),))
    assert site.place(1, ((0, 1),)) == f"not enough {lacks} free on n0"


def test_a_restart_holds_the_gpus_and_trains_nothing_for_a_while() -> None:
    site = engine(job(restart=30.0))
    site.place(0, ((0, 1),))
    site.run_until(10.0)
    assert site.requeue(0) == ""
    site.run_until(20.0)
    site.place(0, ((1, 1),))
    site.run_until(1000.0)
    assert site.ended[0] == pytest.approx(20.0 + 30.0 + 90.0)
    assert site.attained[0] == pytest.approx(10.0 + 120.0)
    assert (site.logs[0].preemptions, site.logs[0].wait) == (1, 10.0)


def test_the_first_start_costs_what_a_startup_does_and_no_restart() -> None:
    site = engine(job(restart=30.0), job(startup=20.0))
    site.place(0, ((0, 1),))
    site.place(1, ((0, 1),))
    site.run_until(200.0)
    assert site.ended.tolist() == [100.0, 120.0]
    assert site.logs[1].iterations[:2] == [0.0, 0.0]


def test_work_since_the_last_checkpoint_is_lost_with_a_requeue() -> None:
    site = engine(job(checkpoint_every=30.0))
    site.place(0, ((0, 1),))
    site.run_until(50.0)
    site.requeue(0)
    assert site.iterations_done(0) == pytest.approx(30.0)


def test_a_checkpoint_that_was_asked_for_is_not_lost() -> None:
    site = engine(job(checkpoint_every=30.0))
    site.place(0, ((0, 1),))
    site.run_until(44.5)
    site.save(0)
    site.run_until(50.0)
    site.requeue(0)
    assert site.iterations_done(0) == pytest.approx(45.0)


def test_a_job_that_names_no_interval_loses_nothing_and_an_unmanaged_one_everything() -> None:
    site = engine(job(), job(managed=False))
    for row in (0, 1):
        site.place(row, ((row, 1),))
    site.run_until(50.0)
    for row in (0, 1):
        site.requeue(row)
    assert site.progress(np.arange(2)).tolist() == [50.0, 0.0]


def test_more_gpus_make_an_elastic_job_faster_from_then_on() -> None:
    site = engine(job(gpus_min=1, gpus_max=4, restart=5.0, speed=speed((1, 1, 1.0), (4, 1, 3.0))))
    site.place(0, ((0, 1),))
    site.run_until(10.0)
    assert site.place(0, ((0, 4),)) == ""
    site.run_until(1000.0)
    assert site.ended[0] == pytest.approx(10.0 + 5.0 + 90.0 / 3.0)
    assert site.logs[0].resizes == 1
    assert site.attained[0] == pytest.approx(10.0 + 4 * 35.0)


def test_a_start_on_another_number_of_gpus_than_requested_is_counted_each_time() -> None:
    site = engine(job(gpus_min=1, gpus_max=4, speed=speed((1, 1, 1.0), (4, 1, 3.0))))
    site.place(0, ((0, 4),))
    site.run_until(10.0)
    site.requeue(0)
    site.place(0, ((0, 1),))
    assert (site.logs[0].resized_starts, site.logs[0].resizes) == (1, 0)
    site.requeue(0)
    site.place(0, ((0, 2),))
    assert site.logs[0].resized_starts == 2


def test_a_move_counts_as_a_migration_and_moves_the_checkpoint() -> None:
    site = engine(job(params=1e6))
    site.place(0, ((0, 1),))
    site.run_until(10.0)
    site.place(0, ((1, 1),))
    site.run_until(200.0)
    log = site.logs[0]
    assert (log.migrations, log.resizes, log.bandwidth) == (1, 0, 4e6)


def test_being_put_where_it_is_changes_nothing() -> None:
    site = engine(job(restart=30.0))
    site.place(0, ((0, 1),))
    site.run_until(10.0)
    assert site.place(0, ((0, 1),)) == ""
    site.run_until(200.0)
    assert site.ended[0] == 100.0


def test_a_node_above_the_threshold_slows_all_on_it_until_someone_leaves() -> None:
    site = engine(job(cpus=4), job(cpus=4, iterations=45), on=nodes(1))
    site.place(0, ((0, 1),))
    assert site.nodes.slowdown.tolist() == [1.0]
    site.place(1, ((0, 1),))  # all CPUs are in use, so everything takes 1 / 0.9 as long
    site.run_until(50.0)
    assert site.ended[1] == pytest.approx(50.0)
    assert site.iterations_done(0) == pytest.approx(45.0)
    site.run_until(500.0)
    assert site.ended[0] == pytest.approx(50.0 + 55.0)
    assert site.nodes.overloaded(site.now) == pytest.approx(50.0)


def test_a_network_in_use_by_spread_jobs_slows_their_nodes() -> None:
    spread = {"gpus": 2, "traffic": 180.0, "speed": speed((2, 2, 1.0))}
    site = engine(job(**spread), job(), on=nodes(network=50.0))
    site.place(0, ((0, 1), (1, 1)))  # 90 bytes a second at each node, of 50
    site.place(1, ((0, 1),))
    site.run_until(20.0)
    assert site.progress(np.arange(2)).tolist() == pytest.approx([10.0, 10.0])
    site.run_until(1000.0)
    assert site.logs[0].bandwidth == pytest.approx(180.0 * 100)


def test_a_job_on_one_node_sends_nothing_between_nodes() -> None:
    site = engine(job(gpus=2, traffic=10.0, speed=speed((2, 1, 1.0))))
    site.place(0, ((0, 2),))
    site.run_until(500.0)
    assert site.logs[0].bandwidth == 0.0


PARTS = (Part(1, 0, 0.0, share=0.5), Part(1, 0, 0.0, share=0.5, parents=(0,)))


def test_parts_train_only_while_all_of_them_run() -> None:
    site = engine(job(gpus=2, parts=PARTS, speed=speed((2, 1, 1.0))))
    site.place(0, ((0, 1),))
    site.run_until(40.0)
    assert site.iterations_done(0) == 0.0
    site.place(1, ((0, 1),))
    site.run_until(50.0)
    assert site.iterations_done(0) == pytest.approx(10.0)
    site.requeue(0)
    site.run_until(90.0)
    assert site.iterations_done(0) == pytest.approx(10.0)
    assert site.logs[0].wait == pytest.approx(40.0)
    site.place(0, ((0, 1),))
    site.run_until(500.0)
    assert site.ended[0] == pytest.approx(180.0)
    assert site.nodes.used.sum() == 0


def test_of_parts_that_traffic_crosses_nodes_whose_dependencies_do() -> None:
    three = (*PARTS, Part(1, 0, 0.0, parents=(1,)))
    site = engine(job(gpus=3, parts=three, traffic=8.0, speed=speed((3, 2, 1.0))))
    for row, node in enumerate((0, 0, 1)):
        site.place(row, ((node, 1),))
    site.run_until(500.0)
    assert site.logs[0].bandwidth == pytest.approx(8.0 / 2 * 100)


def test_a_stop_ends_a_job_after_the_iteration_it_is_in() -> None:
    site = engine(job(speed=speed((1, 1, 0.1))))
    site.place(0, ((0, 1),))
    site.run_until(25.0)
    site.stop(0)
    site.run_until(500.0)
    assert (site.ended[0], site.iteration[0]) == (pytest.approx(30.0), 3.0)
    assert (site.logs[0].state, site.logs[0].stopped) == ("COMPLETED", True)


def test_a_stop_that_is_taken_back_never_was() -> None:
    site = engine(job())
    site.place(0, ((0, 1),))
    site.run_until(25.5)
    site.stop(0)
    site.withdraw_stop(0)
    site.run_until(500.0)
    assert (site.ended[0], site.logs[0].stopped) == (pytest.approx(100.0), False)


def test_a_run_ends_at_its_time_limit() -> None:
    site = engine(job(time_limit=40.0))
    site.place(0, ((0, 1),))
    site.run_until(500.0)
    assert (site.ended[0], site.logs[0].state) == (40.0, "TIMEOUT")
    assert site.iteration[0] == pytest.approx(40.0)


def test_a_requeued_run_has_its_time_limit_anew() -> None:
    site = engine(job(time_limit=60.0))
    site.place(0, ((0, 1),))
    site.run_until(50.0)
    site.requeue(0)
    site.place(0, ((0, 1),))
    site.run_until(500.0)
    assert (site.ended[0], site.logs[0].state) == (pytest.approx(100.0), "COMPLETED")


def test_jobs_arrive_when_they_were_submitted() -> None:
    site = engine(job(submit=10.0), job(submit=5.0))
    assert site.place(0, ((0, 1),)) == "the job is neither pending nor running"
    assert site.next_event() == 5.0
    site.run_until(7.0)
    assert site.place(0, ((0, 1),)) == ""
    assert site.place(1, ((0, 1),)) == "the job is neither pending nor running"


def test_an_ended_job_is_out_of_reach() -> None:
    site = engine(job())
    site.place(0, ((0, 1),))
    site.run_until(200.0)
    assert site.place(0, ((0, 1),)) == "the job is neither pending nor running"
    assert site.requeue(0) == "the job is not running"


def test_progress_is_recorded_as_corners_between_which_it_is_linear() -> None:
    site = engine(job(restart=10.0, checkpoint_every=20.0))
    site.place(0, ((0, 1),))
    site.run_until(30.0)
    site.requeue(0)
    site.run_until(50.0)
    site.place(0, ((0, 1),))
    site.run_until(500.0)
    log = site.logs[0]
    assert log.times == pytest.approx([0, 30, 30, 50, 60, 140])
    assert log.iterations == pytest.approx([0, 30, 20, 20, 20, 100])
