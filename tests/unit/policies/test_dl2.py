"""DL2's state, masks, batches and network, against slow computations of the same."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.choices import Choices
from policies.dl2 import ARRAYS, DL2, FEATURES, UNKNOWN_SLOTS, Allocation, Allocator, Network, slot_begins
from policies.model import Model
from policies.plan import Plan
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import model_files
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

SLOT = 1200.0
TYPES = ("ctc", "vgg16")
VOID = -1


def queue(n: int, servers: int = 2, **columns: Any) -> Snapshot:
    """Waiting elastic jobs of 1 to 4 GPUs, by arrival, for nodes of 4 GPUs each."""
    given = {"gpus": 2, "gpus_min": 1, "gpus_max": 4, "submitted": NOW - n + np.arange(n), "kind": "vgg16"} | columns
    return snapshot(jobs(n, **given), nodes(servers))


def choices(given: Snapshot, known: Forecasts | None = None, most: int = 8, *, begins: bool = True) -> Allocation:
    return Allocator(TYPES, most, SLOT).choices(given, known or Forecasts.unknown(len(given.jobs)), begins=begins)


def choose(under_way: Allocation, *numbers: int) -> Allocation:
    for number in numbers:
        under_way.choose(len(under_way.mask) - 1 if number == VOID else number)
    return under_way


def gpus(plan: Plan) -> dict[int, int | None]:
    return {action.job.job_id: action.gpus for action in plan.actions if action.kind in ("place", "resize")}


def column(under_way: Choices, name: str) -> list[float]:
    state = under_way.state["jobs"]
    return list(state[:, state.shape[1] - len(FEATURES) + FEATURES.index(name)].tolist())


def test_a_choice_is_one_more_worker_and_the_first_of_a_job_its_minimum() -> None:
    under_way = choose(choices(queue(2, gpus_min=[1, 2])), 0, 1, 0, 1, VOID)
    assert under_way.done
    assert gpus(under_way.plan()) == {1: 2, 2: 3}


def test_jobs_with_their_most_or_without_room_are_masked_and_void_never_is() -> None:
    under_way = choices(queue(3, servers=1, gpus_max=[2, 4, 8], gpus=[2, 2, 4], gpus_min=[1, 1, 4]))
    assert under_way.mask.tolist() == [True, True, True, True]
    choose(under_way, 0)
    assert under_way.mask.tolist() == [True, True, False, True]  # three GPUs are left, and the last needs four
    choose(under_way, 0)
    assert under_way.mask.tolist() == [False, True, False, True]
    choose(under_way, 1, 1)
    assert under_way.done  # all are taken
    assert gpus(under_way.plan()) == {1: 2, 2: 2}


def test_a_rigid_job_has_all_its_gpus_by_one_choice() -> None:
    under_way = choose(choices(queue(2, gpus_min=[3, 1], gpus_max=[3, 4], gpus=[3, 2])), 0)
    assert under_way.mask.tolist() == [False, True, True]
    assert gpus(choose(under_way, VOID).plan()) == {1: 3}


def test_more_jobs_than_j_are_allocated_in_batches_by_arrival() -> None:
    under_way = choices(queue(5, submitted=NOW - np.array([1, 2, 3, 4, 5])), most=2)
    assert [len(under_way.mask) - 1, under_way.batch.tolist()] == [2, [4, 3]]
    choose(under_way, 1, VOID)
    assert under_way.batch.tolist() == [2, 1]
    choose(under_way, VOID)
    assert [len(under_way.mask) - 1, under_way.batch.tolist()] == [1, [0]]
    assert gpus(choose(under_way, 0, VOID).plan()) == {4: 1, 1: 1}
    assert under_way.done


def test_the_state_is_the_papers() -> None:
    n = 3
    given = queue(
        n, kind=["ctc", "vgg16", "ctc"], submitted=NOW - np.array([9000.0, 6000.0, 10.0]), waited=[600.0, 6000.0, 10.0],
        iteration=[25.0, 0.0, 0.0], max_iterations=[100.0, 40.0, np.nan],
    )  # fmt: skip
    known = forecasts(n, total=[4800.0, 2400.0, np.nan], remaining=[3000.0, 2400.0, 1800.0])
    under_way = choose(choices(given, known), 0, 0, 1)
    run = [(9000 - 600) / SLOT, 0.0, 0.0]
    left = [4800 * 0.75 / SLOT, 2400 / SLOT]
    assert under_way.state["jobs"][:, : len(TYPES) + 1].tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert column(under_way, "slots run") == pytest.approx([math.log(1 + each) / 3 for each in run])
    assert column(under_way, "remaining")[:2] == pytest.approx([math.log(1 + each) / 3 for each in left])
    assert column(under_way, "share remaining") == [0.75, 1.0, 1.0]
    assert column(under_way, "workers") == [2 / 16, 1 / 16, 0.0]
    assert column(under_way, "none yet") == [0.0, 0.0, 1.0]
    assert column(under_way, "dominant share") == pytest.approx([4 * 2 / 8, 4 * 1 / 8, 0.0])
    assert column(under_way, "free") == pytest.approx([5 / 8] * n)


def test_a_type_that_is_not_known_has_the_row_of_all_others() -> None:
    under_way = choices(queue(3, kind=["bert", "", "ctc"]))
    assert under_way.state["jobs"][:, : len(TYPES) + 1].tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]


def test_without_a_forecast_a_job_counts_as_one_of_some_slots() -> None:
    assert column(choices(queue(1)), "remaining") == pytest.approx([math.log(1 + UNKNOWN_SLOTS) / 3])


def test_running_jobs_are_allocated_anew_in_a_new_slot_only() -> None:
    given = snapshot(
        jobs(2, state=["running", "pending"], gpus=2, gpus_min=1, gpus_max=4, restartable=True, submitted=[0, 1]),
        nodes(1),
        runs_on=np.array([[0, 0, 2]]),
    )
    anew = choices(given)
    assert anew.rows.tolist() == [0, 1]
    assert gpus(choose(anew, 1, 1, 1, 0).plan()) == {1: 1, 2: 3}
    within = choices(given, begins=False)
    assert within.rows.tolist() == [1]
    assert gpus(choose(within, 0, 0).plan()) == {2: 2}
    assert within.done


def test_a_slot_begins_once() -> None:
    assert slot_begins(3, {})
    assert slot_begins(3, {"slot": np.array([2])})
    assert not slot_begins(3, {"slot": np.array([3])})


def test_jobs_that_are_not_managed_start_first_and_are_no_choice() -> None:
    under_way = choices(queue(2, servers=1, managed=[True, False], gpus=[2, 3]))
    assert under_way.rows.tolist() == [0]
    choose(under_way, 0)
    assert under_way.done
    assert gpus(under_way.plan()) == {1: 1, 2: 3}


def test_without_jobs_there_is_nothing_to_choose() -> None:
    under_way = choices(queue(0))
    assert under_way.done
    assert under_way.plan().actions == ()


def test_the_network_is_two_layers_that_read_each_job_and_the_mean_of_all() -> None:
    rng = np.random.default_rng(0)
    sizes = {"features": 5, "hidden": 4}
    arrays = {
        name: rng.standard_normal([sizes[each] if isinstance(each, str) else each for each in shape]).astype(np.float32)
        for name, shape in ARRAYS.items()
    }
    state = rng.standard_normal((3, 5)).astype(np.float32)
    hidden = [[float(each) for each in row] for row in state]
    for layer in ("first", "second"):
        job, mean, bias = (arrays[f"{layer}.{part}"] for part in ("job", "mean", "bias"))
        average = [sum(row[i] for row in hidden) / len(hidden) for i in range(len(hidden[0]))]
        hidden = [
            [
                max(0.0, sum(row[i] * job[i, j] + average[i] * mean[i, j] for i in range(len(row))) + bias[j])
                for j in range(4)
            ]
            for row in hidden
        ]
    average = [sum(row[i] for row in hidden) / 3 for i in range(4)]
    logits = [float(np.dot(row, arrays["action.job"])) + arrays["action.bias"][0] for row in hidden]
    logits.append(float(np.dot(average, arrays["action.void"])) + arrays["action.bias"][1])
    found = Network(arrays)
    np.testing.assert_allclose(found.logits(state), logits, rtol=1e-4, atol=1e-5)
    best = int(np.argmax(logits))
    assert found.best(state, np.ones(4, dtype=bool)) == best
    assert found.best(state, np.arange(4) != best) == int(np.argsort(logits)[-2])


def test_the_order_in_which_jobs_arrived_does_not_change_a_jobs_logit() -> None:
    rng, sizes = np.random.default_rng(1), {"features": 6, "hidden": 8}
    arrays = {
        name: rng.standard_normal([sizes[each] if isinstance(each, str) else each for each in shape]).astype(np.float32)
        for name, shape in ARRAYS.items()
    }
    state, turned = rng.standard_normal((5, 6)).astype(np.float32), rng.permutation(5)
    logits = Network(arrays).logits(state)
    np.testing.assert_allclose(Network(arrays).logits(state[turned])[:-1], logits[:-1][turned], rtol=1e-4, atol=1e-5)


def test_a_held_job_is_left_alone() -> None:
    given = queue(2)
    held = replace(given, jobs=replace(given.jobs, held=np.array([True, False])))
    assert choices(held).rows.tolist() == [1]


@pytest.fixture(scope="module")
def shipped() -> DL2:
    model = model_files.shipped("dl2")
    assert model is not None
    model.require("dl2", DL2.version, DL2.shapes)
    return DL2(model=model)


def test_the_model_that_comes_with_slurmplug_gives_gpus_to_jobs_within_their_ranges(shipped: DL2) -> None:
    given = queue(6, servers=4)
    plan = shipped.decide(given, Forecasts.unknown(6), {})
    assert set(gpus(plan)) == {1, 2, 3, 4, 5, 6}
    assert sum(each or 0 for each in gpus(plan).values()) <= 16
    assert all(1 <= (each or 0) <= 4 for each in gpus(plan).values())


def test_a_state_unlike_those_in_training_is_far(shipped: DL2) -> None:
    trained = queue(8, servers=16, gpus=4, gpus_max=16)
    far = queue(8, servers=16, gpus=4, gpus_max=9)
    assert shipped.distance(trained, Forecasts.unknown(8)) <= 1.0 < shipped.distance(far, Forecasts.unknown(8))
    assert shipped.distance(queue(0), Forecasts.unknown(0)) == 0.0


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"types": "ctc"}, "does not state"),
        ({"types": "ctc", "at_once": "many"}, "does not state"),
        ({"types": "ctc", "at_once": "0"}, "not for 1 job types and a J of 0"),
        ({"types": "ctc,lstm", "at_once": "8"}, "not for 2 job types"),
    ],
)
def test_a_model_whose_facts_do_not_fit_its_arrays_is_refused(
    shipped: DL2, facts: dict[str, str], message: str
) -> None:
    arrays = dict((model_files.shipped("dl2") or pytest.fail("no model")).arrays)
    with pytest.raises(ValueError, match=message):
        DL2(model=Model("dl2", DL2.version, arrays, facts))
