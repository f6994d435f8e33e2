"""Earlier module names that sites' own policies may import: they warn, name the new place, and go on working."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from policies.placement import allocation, gpu_space, space
from policies.plan import Plan
from predictors.forecast import Forecasts
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from tests.builders import NOW, jobs, nodes, snapshot

RENAMED: dict[str, tuple[str, dict[str, object]]] = {
    "policies.allocation": (
        "policies.placement.allocation",
        {
            "Allocation": allocation.Allocation,
            "Packing": space.Packing,
            "Place": space.Placement,
            "Space": space.Space,
            "allocate": allocation.allocate,
            "elastic": allocation.elastic,
            "grown": allocation.grow_elastic,
            "held_gpus": allocation.held_gpus,
            "in_order": allocation.queue_order,
            "left_over": allocation.leftover_gpus,
            "movable": allocation.movable,
            "placing": allocation.placement_action,
            "ranked": allocation.score_from_order,
            "startable": allocation.startable,
            "teams": allocation.group_gangs,
            "within": allocation.managed_score,
        },
    ),
    "policies.space": (
        "policies.placement.space",
        {"Packing": space.Packing, "Place": space.Placement, "Space": space.Space, "unused": space.free_resources},
    ),
    "policies.counted": ("policies.placement.gpu_space", {"CountedSpace": gpu_space.GPUSpace}),
}


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, str]:
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.warns(DeprecationWarning, match="is deprecated: import from") as warned:
        module = importlib.import_module(name)
    return module, str(warned[0].message)


@pytest.mark.parametrize("name", RENAMED)
def test_an_earlier_module_warns_and_names_the_new_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new, _ = RENAMED[name]
    _, message = imported(name, monkeypatch)
    assert name in message
    assert new in message


@pytest.mark.parametrize("name", RENAMED)
def test_an_earlier_module_has_all_its_earlier_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, names = RENAMED[name]
    module, _ = imported(name, monkeypatch)
    for earlier, now in names.items():
        assert getattr(module, earlier) is now
    assert set(module.__all__) - {"gangs"} == set(names)


def test_gangs_takes_the_argument_that_was_called_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = imported("policies.allocation", monkeypatch)
    given = snapshot(jobs(2, gpus=[4, 4], submitted=[NOW, NOW - 1]), nodes(1))
    order = module.in_order(given.jobs)
    assert module.gangs(given, order, preempt=False).tolist() == [0, 4]
    assert module.gangs(given, order, preempt=False, asked=np.array([2, 2])).tolist() == [2, 2]


OF_A_SITE = """
from dataclasses import dataclass

from policies.allocation import allocate, gangs, in_order, ranked
from policies.plan import Plan

@dataclass(frozen=True)
class Settings:
    preempt: bool = False

class Largest:
    name, needs = "largest", frozenset()

    def __init__(self, settings=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        order = in_order(snapshot.jobs, -snapshot.jobs.gpus)
        gpus = gangs(snapshot, order, preempt=self.settings.preempt)
        return Plan(ranked(snapshot.jobs, order), actions=allocate(snapshot, order, gpus).actions)
"""


def test_a_policy_of_a_site_with_the_earlier_names_decides_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "policies.allocation", raising=False)
    path = tmp_path / "ours.py"
    path.write_text(OF_A_SITE, encoding="utf-8")
    path.chmod(0o644)
    with pytest.warns(DeprecationWarning, match=r"policies\.allocation is deprecated"):
        policy = policy_registry.policy(Config.from_table({"policy": f"{path}:Largest"}))
    plan = policy.decide(snapshot(jobs(3, gpus=[1, 4, 2]), nodes(1)), Forecasts.unknown(3), {})
    assert np.argsort(-plan.score).tolist() == [1, 2, 0]
    assert [(action.kind, action.job.job_id) for action in plan.actions] == [("place", 2)]


def test_a_plan_takes_its_scores_by_the_name_that_they_had() -> None:
    with pytest.warns(DeprecationWarning, match=r"Plan\(score=\.\.\.\)"):
        plan = Plan(rank=np.array([2.0, 1.0]))
    assert plan.score.tolist() == [2.0, 1.0]
