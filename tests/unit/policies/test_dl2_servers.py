"""DL2's 3J + 1 actions: what may be chosen, what comes of it, and the network that chooses."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.dl2 import ARRAYS, DL2, SERVER_ARRAYS, Network
from policies.dl2_allocation import FEATURES
from policies.dl2_servers import SERVER_FEATURES, ServerAllocation, ServerAllocator
from policies.model import Model
from policies.plan import Plan
from policies.seen_states import SeenStates
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import model_files
from tests.builders import NOW, jobs, nodes, servers, snapshot

WORKER, SERVER, BOTH = range(3)
VOID = -1


def queue(n: int, count: int = 1, **columns: Any) -> Snapshot:
    """Waiting jobs of up to four workers of one CPU and four servers of two, for nodes of four GPUs and 16 CPUs."""
    given = {
        "gpus": 2, "gpus_min": 1, "gpus_max": 4, "demand": [[2, 6.0, 0.0]], "submitted": NOW - n + np.arange(n),
        "kind": "vgg16", "max_iterations": 100.0,
    } | columns.pop("jobs", {})  # fmt: skip
    return snapshot(jobs(n, **given), nodes(count, capacity=[4.0, 16.0, 1000.0]), servers=servers(n, **columns))


def choices(look: Snapshot, most: int = 8) -> ServerAllocation:
    return ServerAllocator(("vgg16",), most, 1200.0).choices(look, Forecasts.unknown(len(look.jobs)), begins=True)


def choose(under_way: ServerAllocation, *steps: tuple[int, int] | int) -> ServerAllocation:
    """Steps are a job of the batch and an action, or void."""
    for step in steps:
        under_way.choose(len(under_way.mask) - 1 if isinstance(step, int) else 3 * step[0] + step[1])
    return under_way


def given(plan: Plan) -> dict[int, tuple[int, int]]:
    return {each.job.job_id: (each.gpus or 0, sum(each.servers or each.shares)) for each in plan.actions}


def column(under_way: ServerAllocation, name: str) -> list[float]:
    names = FEATURES + SERVER_FEATURES
    state = under_way.state["jobs"]
    return list(state[:, state.shape[1] - len(names) + names.index(name)].tolist())


def test_an_action_is_a_worker_a_server_or_one_of_each() -> None:
    under_way = choose(choices(queue(2)), (0, WORKER), (0, SERVER), (0, SERVER), (1, BOTH), VOID)
    assert under_way.done
    assert given(under_way.plan()) == {1: (1, 2), 2: (1, 1)}


def test_a_job_with_one_kind_alone_gets_nothing() -> None:
    plan = choose(choices(queue(3)), (0, WORKER), (0, WORKER), (1, SERVER), (2, BOTH), VOID).plan()
    assert given(plan) == {3: (1, 1)}


def test_what_has_no_room_or_is_the_most_is_masked_and_void_never_is() -> None:
    under_way = choices(queue(2, most=[4, 1]))
    assert under_way.mask.tolist() == [True] * 7
    choose(under_way, (1, BOTH))
    assert under_way.mask.tolist() == [True, True, True, True, False, False, True]
    choose(under_way, (0, BOTH), (0, BOTH), (0, BOTH))  # no GPU is left, and four CPUs
    assert under_way.mask.tolist() == [False, True, False, False, False, False, True]
    choose(under_way, (0, SERVER))
    assert under_way.done  # it has its most servers
    assert given(under_way.plan()) == {1: (3, 4), 2: (1, 1)}


def test_cpus_bound_workers_and_servers_alike() -> None:
    under_way = choose(choices(queue(2)), *[(0, SERVER)] * 4, *[(1, SERVER)] * 3)
    assert under_way.mask.tolist() == [True, False, False, True, True, False, True]  # two CPUs are left
    choose(under_way, (0, WORKER))
    assert under_way.mask.tolist() == [True, False, False, True, False, False, True]


def test_a_job_without_servers_is_given_workers_alone() -> None:
    under_way = choices(queue(2, most=[0, 4], cpus=[0.0, 2.0], jobs={"demand": [[2, 2.0, 0.0], [2, 6.0, 0.0]]}))
    assert under_way.mask.tolist() == [True, False, False, True, True, True, True]
    assert given(choose(under_way, (0, WORKER), (0, WORKER), VOID).plan())[1][0] == 2


def test_within_a_slot_running_jobs_keep_their_workers_and_servers() -> None:
    of_jobs = {"state": ["running", "pending"], "restartable": True}
    look = replace(queue(2, jobs=of_jobs, on=[3]), runs_on=np.array([[0, 0, 1]]))
    look = replace(look, nodes=replace(look.nodes, used=np.array([[1.0, 7.0, 0.0]])))
    under_way = ServerAllocator((), 8, 1200.0).choices(look, Forecasts.unknown(2), begins=False)
    assert under_way.rows.tolist() == [1]
    plan = choose(under_way, (0, BOTH), (0, SERVER), VOID).plan()
    assert given(plan) == {2: (1, 2)}
    anew = choices(look)
    assert given(choose(anew, (0, BOTH), (0, SERVER), (0, SERVER), VOID).plan()) == {}  # as it is
    assert given(choose(choices(look), (0, BOTH), VOID).plan()) == {1: (1, 1)}


def test_more_jobs_than_j_are_allocated_in_batches_by_arrival() -> None:
    under_way = choices(queue(3), most=2)
    assert (len(under_way.mask), under_way.batch.tolist()) == (7, [0, 1])
    choose(under_way, (1, BOTH), VOID)
    assert (len(under_way.mask), under_way.batch.tolist()) == (4, [2])
    assert given(choose(under_way, (0, BOTH), VOID).plan()) == {2: (1, 1), 3: (1, 1)}


def test_the_state_has_workers_servers_and_the_dominant_share() -> None:
    under_way = choose(choices(queue(2)), (0, BOTH), (0, SERVER), (0, SERVER))
    assert column(under_way, "workers") == [1 / 16, 0.0]
    assert column(under_way, "servers") == [3 / 16, 0.0]
    assert column(under_way, "log servers") == pytest.approx([math.log(4) / 3, 0.0])
    assert column(under_way, "no server yet") == [0.0, 1.0]
    assert column(under_way, "dominant share") == pytest.approx([4 * 7 / 16, 0.0])  # of CPUs; of GPUs it is a quarter
    assert column(under_way, "cpus free") == pytest.approx([9 / 16] * 2)
    assert column(under_way, "worker's cpus") == [0.25, 0.25]
    assert column(under_way, "server's cpus") == [0.5, 0.5]


def arrays(features: int, hidden: int, seed: int = 0) -> dict[str, Any]:
    rng, sizes = np.random.default_rng(seed), {"features": features, "hidden": hidden}
    return {
        name: rng.standard_normal([sizes[each] if isinstance(each, str) else each for each in shape]).astype(np.float32)
        for name, shape in {**ARRAYS, **SERVER_ARRAYS}.items()
    }


def test_the_network_answers_for_three_actions_of_each_job_and_void() -> None:
    made = arrays(6, 5)
    state = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    logits = Network(made).logits(state)
    assert logits.shape == (13,)
    for at, name in enumerate(("action.job", "action.server", "action.both")):
        alone = {name_: each for name_, each in made.items() if name_ not in SERVER_ARRAYS} | {"action.job": made[name]}
        of_action = Network(alone).logits(state)
        np.testing.assert_array_equal(logits[at:-1:3], of_action[:-1])
        assert logits[-1] == of_action[-1]


@pytest.fixture(scope="module")
def model() -> Model:
    features = 2 + len(FEATURES) + len(SERVER_FEATURES)
    seen = SeenStates.of(np.random.default_rng(2).standard_normal((50, 7))).arrays()
    return Model("dl2", DL2.version, {**arrays(features, 8), **seen}, {"types": "vgg16", "at_once": "16"})


def test_a_model_with_servers_gives_both_within_what_there_is(model: Model) -> None:
    model.require("dl2", DL2.version, DL2.shapes, DL2.optional)
    look = queue(6, count=2)
    shares = given(DL2(model=model).decide(look, Forecasts.unknown(6), {}))
    assert all(1 <= workers <= 4 and 1 <= count <= 4 for workers, count in shares.values())
    assert sum(workers for workers, _ in shares.values()) <= 8
    assert sum(workers + 2 * count for workers, count in shares.values()) <= 32


def test_where_no_job_can_have_servers_a_model_with_servers_knows_no_state_and_gives_none(model: Model) -> None:
    policy, look = DL2(model=model), queue(4)
    assert policy.distance(look, Forecasts.unknown(4)) < np.inf
    live = replace(look, servers=None)
    assert policy.distance(live, Forecasts.unknown(4)) == np.inf
    assert all(not each.servers for each in policy.decide(live, Forecasts.unknown(4), {}).actions)


def test_a_model_has_all_arrays_for_servers_or_none(model: Model) -> None:
    without = {name: each for name, each in model.arrays.items() if name != "action.both"}
    with pytest.raises(ValueError, match=r"action\.both is missing"):
        replace(model, arrays=without).require("dl2", DL2.version, DL2.shapes, DL2.optional)
    neither = {name: each for name, each in without.items() if name != "action.server"}
    replace(model, arrays=neither).require("dl2", DL2.version, DL2.shapes, DL2.optional)


def test_the_model_that_comes_with_slurmplug_gives_both_and_knows_such_states() -> None:
    shipped = model_files.shipped("dl2-servers")
    assert shipped is not None
    shipped.require("dl2", DL2.version, DL2.shapes, DL2.optional)
    policy = DL2(model=shipped)
    look = queue(8, count=16, most=16, jobs={"gpus": 4, "gpus_max": 16, "demand": [[4, 12.0, 0.0]]})
    shares = given(policy.decide(look, Forecasts.unknown(8), {}))
    assert set(shares) == set(range(1, 9))
    assert any(workers != count for workers, count in shares.values())
    assert policy.distance(look, Forecasts.unknown(8)) <= 1.0
