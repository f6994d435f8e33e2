"""A workload through the same cycle as live: what a policy says happens, and what it may not do does not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from policies.baselines.optimus import Optimus
from policies.baselines.sjf import SJF
from policies.baselines.tiresias import Gittins, Tiresias, TiresiasSettings
from policies.mlfs.mlfs import MLFS
from policies.mlfs.with_early_stopping import WithEarlyStopping
from policies.placement.allocation import allocate, queue_order
from policies.plan import Action, Reason
from policies.snapshot import Snapshot
from slurmplug.commands import main
from slurmplug.config.schema import Stop
from slurmplug.errors import UsageError
from slurmplug.intake.job_record import Changes
from slurmplug.sim.adapters.intake import SimIntake
from slurmplug.sim.engine.job import Part, SimJob, Workload
from slurmplug.sim.experiment import comparison
from slurmplug.sim.experiment.result import RunResult
from slurmplug.sim.experiment.simulation import Simulation
from slurmplug.sim.experiment.summary import summary
from slurmplug.sim.workloads.csv_format import write
from tests.schedulers import configure
from tests.sim_jobs import First, FirstByEvents, ScriptedPolicy, job, run, simulation, speed

WHY = Reason("test")


def ends(result: RunResult) -> list[float]:
    return [each.ended for each in result.finished]


def learning(**fields: Any) -> SimJob:
    """A job whose accuracy rises to 0.9 within 60 of its 100 iterations."""
    at = np.arange(1.0, 101.0)
    return job(curve_at=at, accuracies=np.minimum(0.9, 0.015 * at), losses=2.0 / at, **fields)


def test_jobs_that_fit_start_at_the_next_cycle_and_the_others_when_there_is_room() -> None:
    result = run(*(job(gpus=4, speed=speed((4, 1, 1.0)), submit=1.0) for _ in range(3)))
    assert [each.started for each in result.finished] == [10.0, 10.0, 110.0]
    assert ends(result) == [110.0, 110.0, 210.0]
    assert [each.wait for each in result.finished] == [9.0, 9.0, 109.0]


def test_a_job_is_not_spread_where_one_node_has_room() -> None:
    slow_when_spread = speed((2, 1, 1.0), (2, 2, 0.1))
    result = run(job(gpus=3, speed=speed((3, 1, 1.0))), job(gpus=2, speed=slow_when_spread))
    assert ends(result) == [100.0, 100.0]


def test_jobs_that_change_places_give_theirs_up_before_they_take_the_other() -> None:
    def swap(snapshot: Snapshot) -> tuple[Action, ...]:
        keys, jobs = snapshot.jobs.keys, snapshot.jobs
        if snapshot.now == 0:
            return tuple(
                Action("place", key, WHY, 4, (node,), (4,)) for key, node in zip(keys, ("n1", "n2"), strict=True)
            )
        if snapshot.now == 50 and len(jobs) == 2:
            return tuple(
                Action("migrate", key, WHY, 4, (node,), (4,)) for key, node in zip(keys, ("n2", "n1"), strict=True)
            )
        return ()

    made = simulation(*(job(gpus=4, speed=speed((4, 1, 1.0))) for _ in range(2)), policy=ScriptedPolicy(swap))
    assert ends(made.run()) == [100.0, 100.0]
    assert made.port.refused == 0


def test_a_preempted_job_gives_its_gpus_to_one_that_is_placed_in_the_same_cycle() -> None:
    def plan(snapshot: Snapshot) -> tuple[Action, ...]:
        keys = snapshot.jobs.keys
        if snapshot.now == 20:
            return Action("place", keys[1], WHY, 4, ("n1",), (4,)), Action("preempt", keys[0], WHY)
        return (Action("place", keys[0], WHY, 4, ("n1",), (4,)),) if snapshot.now in (0, 120) else ()

    made = simulation(
        *(job(gpus=4, speed=speed((4, 1, 1.0))) for _ in range(2)), policy=ScriptedPolicy(plan), cluster="1x4"
    )
    result = made.run()
    assert ends(result) == [200.0, 120.0]
    assert [each.preemptions for each in result.finished] == [1, 0]


def test_a_placement_that_does_not_fit_is_refused_and_the_job_waits() -> None:
    def crowd(snapshot: Snapshot) -> tuple[Action, ...]:
        waiting = [key for key, s in zip(snapshot.jobs.keys, snapshot.jobs.state, strict=True) if s == "pending"]
        return tuple(Action("place", key, WHY, 3, ("n1",), (3,)) for key in waiting if snapshot.now in (0, 10, 100))

    made = simulation(*(job(gpus=3, speed=speed((3, 1, 1.0))) for _ in range(2)), policy=ScriptedPolicy(crowd))
    assert ends(made.run()) == [100.0, 200.0]
    assert made.port.refused == 2


def test_a_node_that_is_not_there_is_no_place() -> None:
    def nowhere(snapshot: Snapshot) -> tuple[Action, ...]:
        return (Action("place", snapshot.jobs.keys[0], WHY, 1, ("moon",), (1,)),) if snapshot.now < 30 else ()

    made = simulation(job(), policy=ScriptedPolicy(nowhere))
    result = made.run()
    assert (result.finished[0].state, made.port.refused) == ("PENDING", 3)
    assert np.isnan(result.finished[0].ended)


def test_the_parts_of_a_model_start_together_or_not_at_all() -> None:
    parts = tuple(Part(3, 0, 0.0, parents=(at - 1,) if at else ()) for at in range(3))

    def eager(snapshot: Snapshot) -> tuple[Action, ...]:
        keys, state = snapshot.jobs.keys, snapshot.jobs.state
        nodes = ("n1", "n2", "n2")
        return tuple(
            Action("place", key, WHY, 3, (node,), (3,))
            for key, node, s in zip(keys, nodes, state, strict=False)
            if s == "pending"
        )

    made = simulation(job(gpus=9, parts=parts, speed=speed((9, 2, 1.0))), policy=ScriptedPolicy(eager), cluster="3x4")
    result = made.run()
    assert np.isnan(result.finished[0].started)
    assert made.engine.nodes.used.sum() == 0


def test_a_policy_sees_what_its_jobs_have_reported_and_may_stop_them() -> None:
    seen: dict[float, tuple[float, Any]] = {}

    def plan(snapshot: Snapshot) -> tuple[Action, ...]:
        jobs = snapshot.jobs
        seen[snapshot.now] = float(jobs.iteration[0]), jobs.accuracies.row(0)[1].tolist()
        if jobs.state[0] == "pending":
            return (Action("place", jobs.keys[0], WHY, 1, ("n1",), (1,)),)
        return (Action("stop", jobs.keys[0], WHY),) if snapshot.now == 30 else ()

    result = run(learning(stop="optstop"), policy=ScriptedPolicy(plan))
    assert seen[20.0] == (20.0, pytest.approx([0.015 * at for at in range(1, 21)]))
    [finished] = result.finished
    assert (finished.state, finished.stopped, finished.ended, finished.iterations[-1]) == (
        "COMPLETED",
        True,
        31.0,
        31.0,
    )


def test_a_policy_sees_by_the_load_where_what_is_shared_is_contended_for() -> None:
    """Two of three jobs fill the CPUs of their node, 1 / 0.9 of what it can bear; the third is alone with half."""
    seen: list[Snapshot] = []

    def decide(snapshot: Snapshot) -> tuple[Action, ...]:
        seen.append(snapshot)
        return First().decide(snapshot, None, {}).actions  # type: ignore[arg-type]

    simulation(*(job(gpus=2, cpus=16) for _ in range(3)), policy=ScriptedPolicy(decide)).run()
    nodes = seen[1].nodes
    assert nodes.used[:, 1].tolist() == [32.0, 16.0]
    assert nodes.load[:, 1] == pytest.approx([32 / 0.9, 16.0])
    assert np.isnan(nodes.load[:, 0]).all()


def test_one_epsilon_holds_for_every_policy_that_stops(tmp_path: Path) -> None:
    write(Workload("w", (learning(gpus=1, stop="optstop"),), 1, 4), tmp_path / "w.csv")
    done = {}
    for epsilon in ("0", "0.5"):
        json_path = tmp_path / f"{epsilon}.json"
        given = ["--cluster", "1x4", "--policy", "fifo", "--policy", "mlfs", "--stopping", "on", "--epsilon", epsilon]
        result = CliRunner().invoke(main, ["simulate", str(tmp_path / "w.csv"), *given, "--json", str(json_path)])
        assert result.exit_code == 0, result.output
        done[epsilon] = {run["policy"]: run["jct_mean"] for run in json.loads(json_path.read_text())["results"]}
    assert done["0.5"]["fifo"] < done["0"]["fifo"]
    assert done["0.5"]["mlfs"] < done["0"]["mlfs"]
    assert done["0.5"]["fifo"] == done["0.5"]["mlfs"]


def test_an_overloaded_cluster_stops_jobs_that_have_learnt_all_with_any_policy_beside_it() -> None:
    jobs = [
        learning(gpus=4, speed=speed((4, 1, 0.1)), stop="optstop", downgrade="target", target=0.85) for _ in range(4)
    ]
    plain, stopping = run(*jobs), run(*jobs, policy=WithEarlyStopping(First()))
    assert summary(plain)["stops"] == 0
    assert summary(stopping)["stops"] == 4
    assert summary(stopping)["jct_mean"] < summary(plain)["jct_mean"]
    assert summary(stopping)["accuracy_ratio"] == 1.0


@pytest.mark.parametrize("launcher", ["direct", "slurm"])
def test_the_same_seed_gives_the_same_run(launcher: str) -> None:
    jobs = [
        learning(
            submit=7.0 * at, gpus=1 + at % 4, speed=speed((1, 1, 0.5), (4, 1, 1.0)), runtime_noise=0.3, stop="optstop"
        )
        for at in range(12)
    ]
    first, second = (summary(run(*jobs, policy=MLFS(), launcher=launcher, seed=3)) for _ in range(2))
    measured = ("decide_ms_mean", "decide_ms_p99", "wall_s")
    assert json.dumps({k: v for k, v in first.items() if k not in measured}) == json.dumps(
        {k: v for k, v in second.items() if k not in measured}
    )


def test_another_seed_draws_other_errors_of_the_forecasts() -> None:
    def forecast(seed: int) -> list[float]:
        made = simulation(*(job(runtime_noise=0.5) for _ in range(4)), seed=seed)
        made.port.wait(10.0)
        snapshot, _ = made.scheduler.intake.absorb(made.port.read((), {}), 1)
        result: list[float] = made.scheduler.forecaster.forecast(snapshot, {"total"}).total.median.tolist()
        return result

    assert forecast(1) == forecast(1) != forecast(2)
    assert len(set(forecast(1))) == 4


def test_what_is_foretold_without_an_error_is_the_truth() -> None:
    made = simulation(job(gpus=2, speed=speed((2, 1, 0.5))))
    made.port.wait(10.0)
    made.scheduler.run()
    made.port.wait(60.0)
    snapshot, _ = made.scheduler.intake.absorb(made.port.read((), {}), 1)
    result = made.scheduler.forecaster.forecast(snapshot, {"total", "remaining"})
    assert (result.total.median[0], result.remaining.median[0]) == pytest.approx((200.0, 150.0))


def test_cycles_in_which_nothing_can_change_are_left_out_and_nothing_changes_by_it() -> None:
    jobs = [
        job(submit=50.0 * at, gpus=1 + at % 4, iterations=100 + 90 * at, speed=speed((1, 1, 1.0))) for at in range(9)
    ]
    often, seldom = run(*jobs), run(*jobs, policy=FirstByEvents())
    assert ends(often) == ends(seldom)
    assert len(seldom.decide_seconds) < len(often.decide_seconds)


def test_a_policy_that_may_stop_jobs_is_asked_when_they_report_and_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, options = np.arange(1.0, 101.0), {"stop": "optstop", "speed": speed((1, 1, 0.02))}
    curve = {"curve_at": at, "accuracies": 0.9 * at / (at + 2.0), "losses": 1.0 / at}
    jobs = [job(submit=333.0 * each, **curve, **options) for each in range(4)]
    seldom = run(*jobs, policy=MLFS())
    monkeypatch.setattr(Simulation, "next_useful_cycle", lambda *_: 0.0)
    often = run(*jobs, policy=MLFS())
    assert ends(often) == ends(seldom)
    assert any(each.stopped for each in seldom.finished)
    assert len(seldom.decide_seconds) < len(often.decide_seconds)


def test_cycles_are_left_out_until_a_job_has_stopped_or_has_had_its_time_and_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_and_stop(snapshot: Snapshot) -> tuple[Action, ...]:
        jobs = snapshot.jobs
        starts = allocate(snapshot, queue_order(jobs), jobs.gpus).actions
        stops = (Action("stop", key, WHY) for key, s in zip(jobs.keys, jobs.state, strict=True) if s == "running")
        return (*starts, *stops)

    jobs = [job(iterations=9, stop="target", speed=speed((1, 1, rate))) for rate in (0.01, 0.001)]

    def cancelling() -> RunResult:
        made = simulation(*jobs, policy=ScriptedPolicy(start_and_stop))
        configure(made.scheduler, stop=Stop(cancel=True))
        return made.run()

    seldom = cancelling()
    monkeypatch.setattr(Simulation, "next_useful_cycle", lambda *_: 0.0)
    often = cancelling()
    assert ends(often) == ends(seldom) == [100.0, 310.0]
    assert [each.state for each in seldom.finished] == ["COMPLETED", "CANCELLED"]
    assert len(seldom.decide_seconds) < 10 < len(often.decide_seconds)


@pytest.fixture
def jobs_missing_at_100(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle that does not see 23 jobs, alive or ended: no simulated cluster lists only a part of its jobs."""
    absorb = SimIntake.absorb

    def partly(self: SimIntake, reading: Any, cycle: int) -> tuple[Snapshot, Changes]:
        snapshot, changes = absorb(self, reading, cycle)
        return replace(snapshot, missing=23 * (reading.now == 100)), changes

    monkeypatch.setattr(SimIntake, "absorb", partly)


@pytest.mark.usefixtures("jobs_missing_at_100")
def test_no_cycle_is_left_out_while_nothing_may_be_done_about_jobs_that_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_and_stop(snapshot: Snapshot) -> tuple[Action, ...]:
        jobs = snapshot.jobs
        starts = allocate(snapshot, queue_order(jobs), jobs.gpus).actions
        return (*starts, *(Action("stop", key, WHY) for key in jobs.keys[1:] if snapshot.now == 10))

    def said() -> list[tuple[float, str]]:
        made = simulation(*jobs, policy=ScriptedPolicy(start_and_stop), cluster="3x8")
        apply, issued = made.port.apply, list[tuple[float, str]]()

        def listening(commands: Any) -> Any:
            issued.extend((made.engine.now, command.verb) for command in commands)
            return apply(commands)

        monkeypatch.setattr(made.port, "apply", listening)
        made.run()
        return issued

    jobs = [job(iterations=9, stop="target", speed=speed((1, 1, rate))) for rate in (0.001, *[0.01] * 23)]
    seldom = said()
    monkeypatch.setattr(Simulation, "next_useful_cycle", lambda *_: 0.0)
    assert seldom == said()
    assert (110.0, "withdraw") in seldom


@pytest.mark.usefixtures("jobs_missing_at_100")
@pytest.mark.parametrize("policy", [FirstByEvents(), Tiresias()], ids=["by events", "until"])
def test_the_next_cycle_is_not_left_out_after_one_that_did_nothing_as_too_few_jobs_were_seen(
    policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(iterations=9_000), *(job() for _ in range(23)), *(job(submit=50.0) for _ in range(3))]
    seldom = run(*jobs, policy=policy, cluster="3x8")
    assert [each.started for each in seldom.finished[-3:]] == [110.0] * 3
    monkeypatch.setattr(Simulation, "next_useful_cycle", lambda *_: 0.0)
    assert ends(seldom) == ends(run(*jobs, policy=policy, cluster="3x8"))


def test_the_next_cycle_is_not_left_out_after_one_that_wrote_as_many_priorities_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_slowly() -> RunResult:
        made = simulation(*jobs, policy=SJF(), launcher="slurm", cluster="1x2")
        few = made.scheduler.config.guardrails.replaced(writes_per_cycle=1)
        configure(made.scheduler, guardrails=few)
        return made.run()

    first = job(gpus=2, speed=speed((2, 1, 1.0)), iterations=200)
    jobs = [first, *(job(iterations=100 - 20 * at, submit=5.0) for at in range(4))]
    seldom = run_slowly()
    assert np.argsort([-each.started for each in seldom.finished], kind="stable").tolist() == [1, 2, 3, 4, 0]
    monkeypatch.setattr(Simulation, "next_useful_cycle", lambda *_: 0.0)
    assert ends(seldom) == ends(run_slowly())


def test_tiresias_is_asked_when_a_job_falls_into_the_next_queue_and_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = Tiresias(TiresiasSettings(queues=(300.0, 900.0)))
    jobs = [
        job(submit=70.0 * at, gpus=1 + at % 3, iterations=200 + 70 * at, speed=speed((1, 1, 1.0)), restart=5.0)
        for at in range(9)
    ]
    seldom = run(*jobs, policy=policy, cluster="1x4")
    monkeypatch.setattr(Simulation, "next_useful_cycle", lambda *_: 0.0)
    often = run(*jobs, policy=policy, cluster="1x4")
    assert ends(often) == ends(seldom)
    assert sum(each.preemptions for each in seldom.finished) > 2
    assert len(seldom.decide_seconds) < len(often.decide_seconds)


def test_optimus_is_asked_when_a_job_tells_of_another_iteration_and_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pace = speed(*((gpus, nodes, 0.005 * gpus**0.7 / nodes) for gpus in (1, 2, 4, 8) for nodes in (1, 2)))
    jobs = [
        job(
            submit=200.0 * at,
            gpus=2,
            gpus_min=1,
            gpus_max=6,
            iterations=8 + 3 * at,
            speed=pace,
            kind="net",
            restart=5.0,
        )
        for at in range(5)
    ]
    seldom = run(*jobs, policy=Optimus())
    monkeypatch.setattr(Simulation, "next_useful_cycle", lambda *_: 0.0)
    often = run(*jobs, policy=Optimus())
    assert ends(often) == ends(seldom)
    assert sum(each.resizes for each in seldom.finished) > 2
    assert len(seldom.decide_seconds) < len(often.decide_seconds)


def test_a_policy_with_rounds_is_asked_in_each_while_jobs_wait() -> None:
    jobs = [job(gpus=8, iterations=300, speed=speed((8, 2, 1.0))) for _ in range(2)]
    result = run(*jobs, policy=Gittins())
    assert len(result.decide_seconds) >= 30


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(UsageError, match="job j requests 16 GPUs, and the cluster has 8"):
        run(job(gpus=16))


def test_slurm_starts_jobs_by_itself_between_the_cycles() -> None:
    result = run(job(submit=1.0), launcher="slurm", policy=ScriptedPolicy(lambda _: ()))
    assert result.finished[0].started == pytest.approx(1.0, abs=3.0)


def test_slurm_backfills_what_ends_before_the_first_that_waits_could_start() -> None:
    wide = {"gpus": 8, "speed": speed((8, 2, 1.0)), "time_limit": 200.0}
    jobs = [
        job(gpus=4, speed=speed((4, 1, 1.0)), time_limit=120.0),
        job(submit=5.0, **wide),
        job(submit=6.0, gpus=4, speed=speed((4, 1, 1.0)), iterations=60, time_limit=70.0),
        job(submit=7.0, gpus=4, speed=speed((4, 1, 1.0)), iterations=60, time_limit=500.0),
    ]
    first, second, third, fourth = run(*jobs, launcher="slurm", policy=ScriptedPolicy(lambda _: ())).finished
    assert third.started < second.started < fourth.started
    assert second.started == pytest.approx(first.ended, abs=3.0)


def test_our_labels_decide_what_slurm_starts_first() -> None:
    class Last(ScriptedPolicy):
        def decide(self, snapshot: Snapshot, forecasts: Any, memory: Any) -> Any:
            plan = super().decide(snapshot, forecasts, memory)
            return replace(plan, score=np.array([float(key.job_id) for key in snapshot.jobs.keys]))

    jobs = [job(gpus=8, submit=float(at), speed=speed((8, 2, 1.0)), time_limit=500.0) for at in range(4)]
    result = run(*jobs, launcher="slurm", policy=Last(lambda _: ())).finished
    assert [each.started for each in result[1:]] == sorted((each.started for each in result[1:]), reverse=True)


def test_a_job_that_is_preempted_under_slurm_saves_waits_and_goes_on() -> None:
    def plan(snapshot: Snapshot) -> tuple[Action, ...]:
        return (Action("preempt", snapshot.jobs.keys[0], WHY),) if 1000 <= snapshot.now < 1030 else ()

    jobs = [learning(speed=speed((1, 1, 0.05)), checkpoint_every=900.0, stop="optstop")]
    [result] = run(*jobs, launcher="slurm", policy=ScriptedPolicy(plan)).finished
    assert result.preemptions == 1
    assert result.state == "COMPLETED"
    assert result.wait >= 120.0
    assert 2100 < result.ended < 2250  # nothing was lost but the time in which it waited


def test_a_job_that_is_resized_under_slurm_goes_on_in_its_new_shape() -> None:
    def plan(snapshot: Snapshot) -> tuple[Action, ...]:
        grows = snapshot.now >= 1000 and snapshot.jobs.gpus[0] == 1 and snapshot.jobs.state[0] == "running"
        return (Action("resize", snapshot.jobs.keys[0], WHY, 4),) if grows else ()

    jobs = [learning(gpus_min=1, gpus_max=4, speed=speed((1, 1, 0.02), (4, 1, 0.08)), checkpoint_every=900.0)]
    made = simulation(*jobs, launcher="slurm", policy=ScriptedPolicy(plan))
    [result] = made.run().finished
    assert result.state == "COMPLETED"
    assert made.engine.gpus.tolist() == [4]
    assert result.ended < 2500
    assert made.port.read((), {}).reservations == ()


def test_the_command_writes_the_figures_of_each_policy_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    asked = ["simulate", "gen:mlfs", "--jobs", "6", "--cluster", "4x4", "--policy", "fifo", "--policy", "tiresias"]
    done = CliRunner().invoke(main, [*asked, "--set", "tiresias.queues=[1000]", "--seed", "1", "--json", str(path)])
    assert done.exit_code == 0, done.output
    assert "fifo" in done.output
    report = json.loads(path.read_text())
    assert [report["workload"], report["cluster"]] == ["gen:mlfs", "4x4"]
    assert [(row["policy"], row["seed"], row["jobs"]) for row in report["results"]] == [
        ("fifo", 1, 6),
        ("tiresias", 1, 6),
    ]
    asked_for = """policy seed jobs jct_mean jct_p50 jct_p99 makespan wait_mean deadline_ratio accuracy_by_deadline
        accuracy_ratio bandwidth_bytes loss_integral time_to_90_loss utility gpu_hours preemptions stops decide_ms_mean
        decide_ms_p99 wall_s""".split()
    assert set(asked_for) <= report["results"][0].keys()


def test_runs_that_are_made_side_by_side_have_the_same_figures_and_errors(tmp_path: Path) -> None:
    asked = "simulate gen:mlfs --jobs 8 --policy fifo --policy mlfs --seed 1 --seed 2".split()
    made = []
    for processes in ("1", "2"):
        path = tmp_path / f"{processes}.json"
        more = ["--cluster", "4x4", "--processes", processes, "--json", str(path)]
        done = CliRunner().invoke(main, [*asked, *more])
        assert done.exit_code == 0, done.output
        rows = json.loads(path.read_text())["results"]
        measured = comparison.MEASURED | {"wall_s"}
        made.append([{name: value for name, value in row.items() if name not in measured} for row in rows])
    assert made[0] == made[1]
    assert len(made[0]) == 4
    too_large = (
        "simulate gen:mlfs?elastic=off --jobs 20 --cluster 1x1 --policy fifo --policy srtf --processes 2".split()
    )
    refused = CliRunner().invoke(main, too_large)
    assert refused.exit_code == 1
    assert "GPUs" in refused.output


OURS = """
from dataclasses import dataclass
from policies.allocation import allocate, in_order, ranked
from policies.plan import Plan

@dataclass(frozen=True)
class Settings:
    backwards: bool = False

class Ours:
    name = "ours"

    def __init__(self, settings=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        order = in_order(snapshot.jobs)[:: -1 if self.settings.backwards else 1]
        return Plan(ranked(snapshot.jobs, order), actions=allocate(snapshot, order, snapshot.jobs.gpus).actions)
"""


def test_a_setting_of_a_sites_own_policy_goes_by_the_name_that_it_gives_itself(tmp_path: Path) -> None:
    file, path = tmp_path / "ours.py", tmp_path / "figures.json"
    file.write_text(OURS)
    file.chmod(0o644)
    run_it = ["simulate", "gen:mlfs", "--jobs", "30", "--cluster", "2x4", "--policy", f"{file}:Ours"]
    figures = []
    for setting in ("ours.backwards=false", "ours.backwards=true"):
        done = CliRunner().invoke(main, [*run_it, "--set", setting, "--json", str(path)])
        assert done.exit_code == 0, done.output
        figures.append(json.loads(path.read_text())["results"][0]["wait_mean"])
    assert figures[0] != figures[1]
    done = CliRunner().invoke(main, [*run_it, "--set", "others.backwards=true"])
    assert (done.exit_code, "of a policy that is run: ours" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (["--cluster", "sixteen"], "NODESxGPUS"),
        (["--cluster", "4x4", "--policy", "fifi"], "did you mean fifo?"),
        (["--cluster", "4x4", "--policy", "fifo", "--set", "srtf.strict=1"], "of a policy that is run: fifo"),
        (["--cluster", "4x4", "--policy", "fifo", "--set", "fifo.hurry=1"], "unknown key"),
    ],
)
def test_a_mistake_at_the_command_line_is_told_with_what_there_is(asked: list[str], complaint: str) -> None:
    done = CliRunner().invoke(main, ["simulate", "gen:mlfs", "--jobs", "2", *asked])
    assert done.exit_code != 0
    assert complaint in done.output
