"""Where nodes have GPUs of unlike types, a job that requests none trains as fast as on the slowest that it holds."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from policies.mlfs.placement import PlacementSettings, Servers
from policies.mlfs.sizes import Resizing, Sizes
from policies.placement.gpu_types import nodes_by_type
from policies.placement.space import Placement, Space
from policies.plan import Action
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from slurmplug.config import policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.operations.shape import ActionImpossible, find_place
from slurmplug.operations.values import Observation
from tests.builders import NOW, jobs, nodes, snapshot

NAMES = policy_names.names()
NODES = 4
TYPES = np.array([[4, 0], [0, 4]] * (NODES // 2))
"""n1 and n3 have v100, n2 and n4 have k80"""


def cluster(gpus: int, *, least: int = 0, most: int = 0, used: Mapping[int, int] | None = None) -> Snapshot:
    """A job that waits, on four nodes of four GPUs. used: of each node, by row, the GPUs in use."""
    taken = np.zeros(NODES)
    for node, share in (used or {}).items():
        taken[node] = share
    of_jobs = jobs(
        1,
        gpus=gpus,
        gpus_min=least or gpus,
        gpus_max=most or gpus,
        restartable=True,
        submitted=NOW - 3600.0,
        max_iterations=60.0,
        utility=[50.0, 0.001, 3600.0],
        target=0.7,
        deadline=NOW + 7200.0,
    )
    on_nodes = nodes(
        NODES,
        used=np.stack([taken, taken, np.zeros(NODES)], axis=1),
        gpu_types=("v100", "k80"),
        of_type=TYPES,
        of_type_used=TYPES / 4 * taken[:, None],
    )
    return snapshot(of_jobs, on_nodes)


def known(n: int = 1) -> Forecasts:
    """Run times and curves of the jobs, so that no policy lets them wait for want of a forecast."""
    seconds = Forecast.lognormal(np.full(n, 1800.0), 0.5, "test")
    rows, gpus = np.arange(n), np.tile([1.0, 4.0, 16.0], (n, 1))
    speed = Fan.of(n, rows, gpus, [Forecast.certain(np.full(n, rate), "test") for rate in (0.01, 0.04, 0.16)])
    curve = [Forecast.normal(np.full(n, mean), 0.05, "test") for mean in (0.1, 0.6, 0.8)]
    fan = Fan.of(n, rows, np.tile([1.0, 30.0, 60.0], (n, 1)), curve)
    loss = [Forecast.normal(np.full(n, mean), 0.05, "test") for mean in (1.0, 0.5, 0.2)]
    losses = Fan.of(n, rows, np.tile([1.0, 30.0, 60.0], (n, 1)), loss)
    return Forecasts(seconds, seconds, Forecast.normal(np.full(n, 0.8), 0.05, "test"), fan, losses, speed)


def decided(name: str, given: Snapshot) -> tuple[Action, ...]:
    policy = policy_registry.policy(Config.from_table({"policy": name}))
    return policy.decide(given, known(), {}).actions


def placed(name: str, given: Snapshot) -> Mapping[str, int]:
    """The GPUs on each node where the policy starts the job; empty where it waits."""
    actions = [each for each in decided(name, given) if each.kind == "place"]
    return dict(zip(actions[0].nodes, actions[0].shares, strict=True)) if actions else {}


RANKS_ONLY = {"slurm"}
STARTS_AN_IDLE_CLUSTERS_JOB = [name for name in NAMES if name not in RANKS_ONLY]


@pytest.mark.parametrize("name", STARTS_AN_IDLE_CLUSTERS_JOB)
def test_a_job_of_several_nodes_gets_gpus_of_one_type(name: str) -> None:
    assert set(placed(name, cluster(8))) in ({"n1", "n3"}, {"n2", "n4"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("used", "there"), [({0: 1}, {"n2", "n4"}), ({1: 2}, {"n1", "n3"}), ({0: 1, 1: 1}, set())])
def test_it_waits_where_no_type_has_as_many_free(name: str, used: dict[int, int], there: set[str]) -> None:
    assert set(placed(name, cluster(8, used=used))) in (there, set())


@pytest.mark.parametrize("name", STARTS_AN_IDLE_CLUSTERS_JOB)
def test_a_job_that_needs_more_than_there_are_of_any_type_gets_several(name: str) -> None:
    assert sum(placed(name, cluster(12)).values()) == 12


@pytest.mark.parametrize("name", STARTS_AN_IDLE_CLUSTERS_JOB)
def test_an_elastic_job_gets_no_more_than_there_are_of_one_type(name: str) -> None:
    place = placed(name, cluster(8, least=2, most=16))
    assert place
    assert set(place) <= {"n1", "n3"} or set(place) <= {"n2", "n4"}


@pytest.mark.parametrize("name", NAMES)
def test_where_all_gpus_are_of_one_type_its_name_changes_nothing(name: str) -> None:
    given = cluster(8, used={0: 1})
    plain = replace(given.nodes, gpu_types=(), of_type=np.zeros((0, 0)), of_type_used=np.zeros((0, 0)))
    named = replace(
        given.nodes, gpu_types=("v100",), of_type=np.full((NODES, 1), 4.0), of_type_used=np.zeros((NODES, 1))
    )
    first, second = (decided(name, replace(given, nodes=each)) for each in (plain, named))
    assert first == second
    assert name in RANKS_ONLY or sum(sum(each.shares) for each in first if each.kind == "place") == 8


def test_of_two_types_that_of_fewer_nodes_is_taken_and_then_that_with_less_room() -> None:
    types = [[4, 0]] * 3 + [[0, 4]] * 2
    used = np.array([[4, 4, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]])
    given = snapshot(jobs(1, gpus=8), nodes(5, used=used, gpu_types=("k80", "v100"), of_type=types))
    assert Space(given).fit(0, 8) == Placement((3, 4), (4, 4))
    assert Space(given).fit(0, 6) == Placement((1, 2), (3, 3))
    assert Space(given).fit(0, 6, "wide") == Placement((3, 4), (4, 2))


def test_gpus_without_a_type_are_a_type_of_their_own_and_so_are_two_on_a_node() -> None:
    on_nodes = nodes(5, gpu_types=("a100", "v100"), of_type=[[4, 0], [2, 2], [0, 0], [2, 2], [4, 0]])
    assert [np.flatnonzero(each).tolist() for each in nodes_by_type(on_nodes)] == [[2], [0, 4], [1, 3]]
    assert nodes_by_type(nodes(2, gpu_types=("a100",), of_type=4.0)) == ()
    no_gpus = nodes(2, gpu_types=("a100",), capacity=[[4, 8, 0], [0, 8, 0]], of_type=[[4], [0]])
    assert nodes_by_type(no_gpus) == ()


def test_a_job_that_requests_a_type_may_have_it_on_nodes_with_others_beside_it() -> None:
    on_nodes = nodes(2, gpu_types=("a100", "v100"), of_type=[[4, 0], [2, 2]])
    given = snapshot(jobs(1, gpus=6, demand=[[6, 0, 0]]), on_nodes, type_of_class=np.array([0]))
    assert Space(given).fit(0, 6) == Placement((0, 1), (4, 2))


def test_a_running_job_is_resized_onto_one_type() -> None:
    running = jobs(1, gpus=4, state="running", started=NOW - 100.0, demand=[[4, 0, 0]])
    on_nodes = nodes(NODES, gpu_types=("v100", "k80"), of_type=TYPES)
    seen = Observation(snapshot(running, on_nodes, runs_on=np.array([[0, 2, 4]])))
    assert find_place(seen, 0, 8).nodes == ("n1", "n3")
    assert find_place(seen, 0, 16).nodes == ("n1", "n2", "n3", "n4")
    with pytest.raises(ActionImpossible, match="no place"):
        find_place(seen, 0, 8, excluded=("n1", "n2"))


def test_a_resized_job_without_room_for_more_keeps_its_place_before_jobs_of_lower_priority() -> None:
    """It holds four v100 and is to have eight; the next holds a k80 and is to have four, of which three are free."""
    of_jobs = jobs(
        2,
        state="running",
        started=NOW - 900.0,
        restartable=True,
        gpus=[4, 1],
        gpus_min=1,
        gpus_max=16,
        demand=[[4, 0, 0], [1, 0, 0]],
    )
    used = np.array([[4, 0, 0], [2, 0, 0], [4, 0, 0], [4, 0, 0]])
    on_nodes = nodes(4, used=used, gpu_types=("v100", "k80"), of_type=TYPES, of_type_used=TYPES / 4 * used[:, :1])
    given = snapshot(of_jobs, on_nodes, runs_on=np.array([[0, 0, 4], [1, 1, 1]]))
    sizes = Sizes(np.ones(2, dtype=bool), np.array([8, 4]), np.zeros(2, dtype=bool))
    resizing = Resizing(given, Servers(given, PlacementSettings()), sizes)
    resizing.begin()
    assert resizing.place(0) == ()
    assert [(each.kind, each.gpus, each.nodes) for each in resizing.place(1)] == [("resize", 3, ("n2",))]
    assert resizing.end() == []
