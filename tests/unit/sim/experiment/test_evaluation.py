"""Evaluations of a model: paired with the policy in whose place it would be, on what it was not trained on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from policies.mlfs.mlfs import MLFH, MLFHSettings
from policies.model import Model
from policies.plan import Memory, Plan
from policies.policy import LearntPolicy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.daemon.policy_process import PolicyProcess
from slurmplug.errors import UsageError
from slurmplug.ledger import codec
from slurmplug.sim.experiment import evaluation
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from tests.learnt_models import install_scripted, like_shipped, scripted

HISTORY = """name,submit,gpus,iterations,speed
""" + "".join(f"job{n},{1000 + 60 * n},4,10,0.05\n" for n in range(30))


def test_a_recorded_workload_is_cut_into_parts_that_each_begin_at_0(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text(HISTORY)
    made = evaluation.workloads(str(file), (3, 4), None)
    assert [len(made[seed].jobs) for seed in (3, 4)] == [15, 15]
    assert [made[seed].jobs[0].submit for seed in (3, 4)] == [0.0, 0.0]
    assert [made[seed].jobs[-1].name for seed in (3, 4)] == ["job14", "job29"]
    with pytest.raises(UsageError, match="30 jobs, too few for 4 parts of 10: name fewer seeds"):
        evaluation.workloads(str(file), (1, 2, 3, 4), None)


def test_a_generated_workload_is_drawn_by_its_seed() -> None:
    made = evaluation.workloads("gen:dl2", (0, 1), 5)
    assert [len(each.jobs) for each in made.values()] == [5, 5]
    assert made[0].jobs[0].submit != made[1].jobs[0].submit


def test_a_model_that_decides_as_the_policy_differs_by_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_scripted(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = Config(policy="mlf-h")
    model = model_files.parse(model_files.encode(scripted()), "scripted")
    configured = policy_registry.policy(config)
    candidate = policy_registry.promoted(config, model, configured)
    made = evaluation.workloads("gen:dl2", (0, 1), 12)
    figures = evaluation.evaluate(made, candidate, configured, config, cluster="2x4")
    jct = figures["jct_mean"]
    assert (jct["against"], jct["policy"], jct["seeds"]) == ("mlf-h", "scripted", 2)
    assert (jct["change"], jct["low"], jct["high"]) == (0.0, 0.0, 0.0)
    assert jct["before"] == jct["after"] > 0
    assert (figures["followed"]["before"], figures["followed"]["after"]) == (1.0, 1.0)


def unlike(limit: float = 1e-30) -> Model:
    """dl2's, which knows no state, or with a high limit every one."""
    return like_shipped(seen_limit=np.array([limit], dtype=np.float32))


@pytest.mark.parametrize(("limit", "share"), [(1e-30, 0.0), (1e30, 1.0)])
def test_it_says_in_how_many_cycles_the_model_was_followed(limit: float, share: float) -> None:
    config = Config(interval=600.0)
    configured = policy_registry.policy(config)
    candidate = policy_registry.promoted(config, unlike(limit), configured)
    made = evaluation.workloads("gen:dl2", (0, 1), 5)
    followed = evaluation.evaluate(made, candidate, configured, config, cluster="8x4")["followed"]
    assert (followed["before"], followed["after"]) == (1.0, share)


@pytest.mark.parametrize("workload", ["gen:mlfs", "gen:dl2"])
@pytest.mark.parametrize("policy", ["mlfs", "tiresias", "drf"])
def test_a_model_that_knows_no_state_changes_nothing(policy: str, workload: str) -> None:
    config = Config(policy=policy, interval=300.0)
    configured = policy_registry.policy(config)
    candidate = policy_registry.promoted(config, unlike(), configured)
    made = evaluation.workloads(workload, (1000, 1001), 12)
    before, after = evaluation.runs(made, candidate, configured, config, cluster="4x4")
    for seed in made:
        assert after[seed].figures["followed"] == 0.0
        found = {**after[seed].figures, "followed": 1.0}
        assert found == pytest.approx(before[seed].figures, rel=0, abs=0, nan_ok=True)


class Faulty(LearntPolicy):
    name = "faulty"

    def __init__(self, fault: Callable[[Plan], Plan]) -> None:
        self.settings, self._fault = MLFHSettings(), fault
        self.needs = MLFH().needs

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        return self._fault(MLFH().decide(snapshot, forecasts, memory))


def ranks_nothing(plan: Plan) -> Plan:
    return replace(plan, score=np.full(len(plan.score), np.nan))


def is_too_long(plan: Plan) -> Plan:
    return replace(plan, score=np.append(plan.score, 1.0))


def fails(plan: Plan) -> Plan:
    raise FloatingPointError(f"{len(plan.score)} scores")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (ranks_nothing, "policy faulty is not followed: it ranks none of the"),
        (is_too_long, "policy faulty failed: ValueError: score is one number per job"),
        (fails, "policy faulty failed: FloatingPointError"),
    ],
)
def test_where_the_model_has_no_valid_plan_the_configured_policy_decides(
    fault: Callable[[Plan], Plan], why: str
) -> None:
    config = Config(policy="mlf-h", interval=300.0)
    configured = policy_registry.policy(config)
    errors: list[str] = []
    before, after = evaluation.runs(
        evaluation.workloads("gen:dl2", (1000,), 12),
        Faulty(fault),
        configured,
        config,
        cluster="2x4",
        on_errors=lambda *told: errors.extend(filter(None, told[2])),
    )
    assert before[1000].figures["jct_mean"] == after[1000].figures["jct_mean"]
    assert after[1000].figures["followed"] < 1.0
    assert errors
    assert all(each.startswith(why) and each.endswith("; mlf-h decided") for each in errors)


def test_it_follows_the_model_in_the_very_cycles_in_which_the_daemon_does(tmp_path: Path) -> None:
    """The snapshots of a simulation, decided on by the process in which a promoted model decides live."""
    config = Config(interval=600.0)
    configured = policy_registry.policy(config)
    model = unlike(0.9)
    candidate = policy_registry.promoted(config, model, configured)
    workload = evaluation.workloads("gen:mlfs", (1000,), 30)[1000]
    fallback = policy_registry.fallback(config, candidate, configured)
    simulation = Simulation(workload, candidate, SimulationSettings("4x4", 600.0, 1000), fallback=fallback)
    process = PolicyProcess(candidate, config, model_files.encode(model))
    try:
        assert process.settled(60.0)
        live = replace(simulation.scheduler, policy=process, clock=perf_counter)
        cycles, decided, by = simulation.cycles(), None, set()
        while True:
            try:
                observed = cycles.send(decided)
            except StopIteration:
                break
            decided = simulation.scheduler.decide(observed)
            in_daemon = live.decide(replace(observed, policy=process))
            assert in_daemon.error == decided.error
            assert in_daemon.observed.policy.name == decided.observed.policy.name
            assert codec.dumps(in_daemon.plan) == codec.dumps(decided.plan)
            by.add(decided.observed.policy.name)
    finally:
        process.close()
    assert by == {"dl2", "mlfs"}
