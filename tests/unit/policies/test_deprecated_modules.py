"""Earlier module names that sites' own policies may import: they warn, name the new place, and go on working."""

import importlib
import sys

import numpy as np
import pytest

from policies.placement import allocation, gpu_space, space
from tests.builders import NOW, jobs, nodes, snapshot

RENAMED = {
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
            "ranked": allocation.rank_from_order,
            "startable": allocation.startable,
            "teams": allocation.group_gangs,
            "within": allocation.managed_rank,
        },
    ),
    "policies.space": (
        "policies.placement.space",
        {"Packing": space.Packing, "Place": space.Placement, "Space": space.Space, "unused": space.free_resources},
    ),
    "policies.counted": ("policies.placement.gpu_space", {"CountedSpace": gpu_space.GPUSpace}),
}


def imported(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.warns(DeprecationWarning, match="is deprecated: import from") as warned:
        module = importlib.import_module(name)
    return module, str(warned[0].message)


@pytest.mark.parametrize("name", RENAMED)
def test_an_earlier_module_warns_and_names_the_new_one(name, monkeypatch):
    new, _ = RENAMED[name]
    _, message = imported(name, monkeypatch)
    assert name in message
    assert new in message


@pytest.mark.parametrize("name", RENAMED)
def test_an_earlier_module_has_all_its_earlier_names(name, monkeypatch):
    _, names = RENAMED[name]
    module, _ = imported(name, monkeypatch)
    for earlier, now in names.items():
        assert getattr(module, earlier) is now
    assert set(module.__all__) - {"gangs"} == set(names)


def test_gangs_takes_the_argument_that_was_called_asked(monkeypatch):
    module, _ = imported("policies.allocation", monkeypatch)
    given = snapshot(jobs(2, gpus=[4, 4], submitted=[NOW, NOW - 1]), nodes(1))
    order = module.in_order(given.jobs)
    assert module.gangs(given, order, preempt=False).tolist() == [0, 4]
    assert module.gangs(given, order, preempt=False, asked=np.array([2, 2])).tolist() == [2, 2]
