"""Where a job can run: constraints as sbatch(1) has them, partitions, reservations and typed GPUs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.cluster.port import Reservation
from slurmplug.intake.eligibility import (
    NOT_UP,
    PlacementClass,
    current_reasons,
    fits,
    nodes_of,
    satisfies,
    types_of_classes,
    with_only_type,
)
from tests.builders import NOW, jobs
from tests.fake_cluster import node_rows

FEATURES = {"n1": "a", "n2": "a b", "n3": "c", "n4": ""}


@pytest.mark.parametrize(
    ("constraint", "where"),
    [
        ("", "n1 n2 n3 n4"),
        ("a", "n1 n2"),
        ("a&b", "n2"),
        ("a|c", "n1 n2 n3"),
        ("b|c&a", "n2"),  # (b or c) and a: from left to right, as slurmctld 22.05 places it
        ("c&b|a", "n1 n2"),
        ("(a|c)&b", "n2"),
        ("b&(a|c)", "n2"),
        ("(a&b)|(c)", "n2 n3"),
        ("((a)&((b)))", "n2"),
        ("a&c", ""),
        ("[a|c]", "n1 n2 n3"),
        ("[a*1&c*2]", "n1 n2 n3"),  # one node of each kind
        ("[(a&b)*1&(c)*2]", "n2 n3"),
        ("b&[a|c]", "n2"),
        ("a*2", "n1 n2 n3 n4"),  # at least two of the job's nodes
        ("a&c*2", "n1 n2"),
        ("a*2&b", "n2"),
        ("(a|b)*2&c", "n3"),
        ("missing", ""),
        (" a & b ", "n2"),
    ],
)
def test_a_constraint_is_met_where_sbatch_says(constraint: str, where: str) -> None:
    met = [node for node, features in FEATURES.items() if satisfies(constraint, frozenset(features.split()))]
    assert met == where.split()


@pytest.mark.parametrize("constraint", ["(((", ")))", "&&|", "a&", "*3", "[a", "a]b", "(" * 100_000])
def test_a_constraint_that_is_none_raises_nothing(constraint: str) -> None:
    assert satisfies(constraint, frozenset({"a"})) in (True, False)


@given(st.text(alphabet="abc&|()[]*12 ", max_size=30))
def test_no_text_is_too_much_for_a_constraint(constraint: str) -> None:
    assert satisfies(constraint, frozenset({"a"})) in (True, False)


NAMES = st.lists(st.from_regex(r"[a-z]{1,4}", fullmatch=True), min_size=1, max_size=6)


@given(NAMES, st.sets(st.sampled_from("abcd")))
def test_and_wants_all_of_them_and_or_wants_any(names: list[str], features: set[str]) -> None:
    assert satisfies("&".join(names), frozenset(features)) == set(names).issubset(features)
    assert satisfies("|".join(names), frozenset(features)) == (not features.isdisjoint(names))


def where(wanted: PlacementClass, *reservations: Reservation, **nodes: Any) -> str:
    rows = node_rows(4, **nodes)
    table = fits([wanted], rows, reservations, NOW)
    return " ".join(name for name, fit in zip(rows.name, table[0], strict=True) if fit)


def job(**given: str) -> PlacementClass:
    return PlacementClass(**{"partition": "gpu", "features": "", "reservation": "", "gpu_type": "", **given})


def reserved(name: str, *nodes: str, start: float = NOW - 60.0, end: float = NOW + 60.0) -> Reservation:
    return Reservation(name, frozenset(nodes), frozenset({"ada"}), frozenset(), start, end)


def test_a_job_fits_in_any_of_its_partitions() -> None:
    partitions = [frozenset({"gpu"}), frozenset({"cpu", "debug"}), frozenset(), frozenset({"big"})]
    assert where(job(), partitions=partitions) == "n1"
    assert where(job(partition="gpu,debug,missing"), partitions=partitions) == "n1 n2"
    assert where(job(partition=""), partitions=partitions) == ""


def test_a_job_of_typed_gpus_fits_where_there_are_some() -> None:
    gpus = [{"a100": 4}, {"v100": 2, "a100": 2}, {"": 4}, {}]
    assert where(job(gpu_type="a100"), gpus=gpus) == "n1 n2"
    assert where(job(gpu_type="a100,tesla"), gpus=gpus) == "n1 n2"
    assert where(job(gpu_type="A100"), gpus=gpus) == ""  # as in Slurm
    assert where(job(), gpus=gpus) == "n1 n2 n3 n4"


def test_features_and_partitions_both_count() -> None:
    features = [frozenset(value.split()) for value in FEATURES.values()]
    assert (
        where(job(features="a"), features=features, partitions=[frozenset({"cpu"}), *[frozenset({"gpu"})] * 3]) == "n2"
    )


def test_reserved_nodes_are_for_those_who_ask_while_it_lasts() -> None:
    assert where(job(), reserved("x", "n1", "n2")) == "n3 n4"
    assert where(job(reservation="x"), reserved("x", "n1", "n2"), reserved("y", "n3")) == "n1 n2"
    assert where(job(reservation="x,y"), reserved("x", "n1", "n2"), reserved("y", "n3")) == "n1 n2 n3"
    assert where(job(reservation="gone"), reserved("x", "n1")) == ""


@pytest.mark.parametrize("times", [{"start": NOW + 1.0}, {"end": NOW}])
def test_a_reservation_that_is_not_open_binds_nobody_and_admits_nobody(times: dict[str, float]) -> None:
    assert where(job(), reserved("x", "n1", **times)) == "n1 n2 n3 n4"
    assert where(job(reservation="x"), reserved("x", "n1", **times)) == ""


def test_no_jobs_and_no_nodes_are_empty_tables() -> None:
    assert fits([], node_rows(3), [], NOW).shape == (0, 3)
    assert fits([job()], node_rows(0), [], NOW).shape == (1, 0)


@pytest.mark.parametrize(
    ("state", "up"),
    [
        ({"idle"}, True),
        ({"mixed", "reserved"}, True),
        ({"allocated", "planned"}, True),
        ({"idle", "drain"}, False),
        ({"mixed", "maint"}, False),
        ({"down", "not_responding"}, False),
        ({"idle", "powered_down"}, False),
    ],
)
def test_a_node_is_up_where_jobs_start(state: set[str], up: bool) -> None:
    assert nodes_of(node_rows(1, state=[frozenset(state)])).up.tolist() == [up]


def test_states_are_in_small_letters() -> None:
    assert {state.lower() for state in NOT_UP} == NOT_UP


def test_nodes_are_columns_of_the_resources_whatever_the_types() -> None:
    rows = node_rows(
        2, gpus=[{"a100": 4, "v100": 2}, {}], gpus_used=[{"a100": 1, "v100": 2}, {}], cpus=[32, 8], cpus_used=[7, 0],
        cpu_load=[6.5, np.nan], memory=[1000.0, 500.0], memory_used=[300.0, 0.0], memory_free=[600.0, np.nan],
    )  # fmt: skip
    nodes = nodes_of(rows)
    assert nodes.capacity.tolist() == [[6, 32, 1000], [0, 8, 500]]
    assert nodes.used.tolist() == [[3, 7, 300], [0, 0, 0]]
    np.testing.assert_array_equal(nodes.load, [[np.nan, 6.5, 400], [np.nan, np.nan, np.nan]])


def test_gpus_are_counted_by_type_where_they_have_one() -> None:
    nodes = nodes_of(node_rows(3, gpus=[{"a100": 4, "v100": 2}, {"": 4}, {"v100": 1}], gpus_used=[{"v100": 1}, {}, {}]))
    assert nodes.gpu_types == ("a100", "v100")
    assert nodes.of_type.tolist() == [[4, 2], [0, 0], [0, 1]]
    assert nodes.of_type_used.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert nodes.capacity[:, 0].tolist() == [6, 4, 1]
    classes = [job(gpu_type=kind) for kind in ("", "v100", "a100", "a100,v100", "tesla")]
    assert types_of_classes(classes, nodes).tolist() == [-1, 1, 0, -1, -1]
    assert types_of_classes(classes[:1], nodes).tolist() == []


def test_mig_instances_are_no_whole_gpus() -> None:
    gpus = [{"a100": 2, "a100_3g.20gb": 4}, {"1g.10gb": 7}]
    nodes = nodes_of(node_rows(2, gpus=gpus, gpus_used=[{"a100": 1, "a100_3g.20gb": 2}, {"1g.10gb": 3}]))
    assert nodes.capacity[:, 0].tolist() == [2, 0]
    assert nodes.used[:, 0].tolist() == [1, 0]
    assert nodes.gpu_types == ("a100",)
    assert where(job(gpu_type="1g.10gb"), gpus=[*gpus, {}, {}]) == "n2"


@pytest.mark.parametrize(
    ("types", "only"),
    [
        ([{"a100": 4}, {"a100": 2}], "a100"),
        ([{"a100": 4}, {}], "a100"),
        ([{"a100": 4}, {"v100": 4}], ""),
        ([{"a100": 4}, {"": 4}], ""),
        ([{"a100": 4, "v100": 1}, {}], ""),
        ([{"a100": 4}, {"1g.10gb": 7}], "a100"),
        ([{}, {}], ""),
    ],
)
def test_a_job_that_waits_and_may_run_on_one_type_alone_will_have_that(types: list[dict[str, int]], only: str) -> None:
    nodes = nodes_of(node_rows(2, gpus=types))
    of_jobs = jobs(
        4, gpu_type=["", "k80", "", ""], state=["pending", "pending", "running", "pending"], gpus=[1, 1, 1, 0]
    )
    assert with_only_type(of_jobs, np.ones((1, 2), dtype=bool), nodes).tolist() == [only, "k80", "", ""]


@pytest.mark.parametrize(
    ("reason", "now"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "Priority"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "ReqNodeNotAvail, UnavailableNodes:n[1-3]"),
        ("ReqNodeNotAvail, UnavailableNodes:elsewhere", "ReqNodeNotAvail, UnavailableNodes:elsewhere"),
        ("ReqNodeNotAvail, UnavailableNodes:", "ReqNodeNotAvail, UnavailableNodes:"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-999999999]", "ReqNodeNotAvail, UnavailableNodes:n[1-999999999]"),
        ("ReqNodeNotAvail, Reserved for maintenance", "ReqNodeNotAvail, Reserved for maintenance"),
        ("Dependency", "Dependency"),
    ],
)
def test_nodes_that_are_up_again_are_no_reason_to_wait(reason: str, now: str) -> None:
    """Slurm gives another only when it tries the job again."""
    down = frozenset({"down"})
    nodes = nodes_of(node_rows(3, state=[frozenset({"mixed"}), frozenset({"idle"}), down]))
    assert current_reasons(np.array(["Resources", reason]), nodes).tolist() == ["Resources", now]
