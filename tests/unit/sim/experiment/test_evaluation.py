"""Evaluations of a model: paired with the policy in whose place it would be, on what it was not trained on."""

from pathlib import Path

import numpy as np
import pytest

from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import UsageError
from slurmplug.sim.experiment import evaluation
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
    figures = evaluation.evaluate(made, candidate, configured, cluster="2x4", interval=60.0)
    jct = figures["jct_mean"]
    assert (jct["against"], jct["policy"], jct["seeds"]) == ("mlf-h", "scripted", 2)
    assert (jct["change"], jct["low"], jct["high"]) == (0.0, 0.0, 0.0)
    assert jct["before"] == jct["after"] > 0
    assert (figures["known_states"]["before"], figures["known_states"]["after"]) == (1.0, 1.0)


@pytest.mark.parametrize(("limit", "share"), [(1e-30, 0.0), (1e30, 1.0)])
def test_it_says_how_many_states_the_model_knows(limit: float, share: float) -> None:
    config = Config()
    configured = policy_registry.policy(config)
    model = like_shipped(seen_limit=np.array([limit], dtype=np.float32))
    candidate = policy_registry.promoted(config, model, configured)
    made = evaluation.workloads("gen:dl2", (0, 1), 5)
    known = evaluation.evaluate(made, candidate, configured, cluster="8x4", interval=600.0)["known_states"]
    assert (known["before"], known["after"]) == (1.0, share)
