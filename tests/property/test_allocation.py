"""Where GPUs alone decide who fits, counting them finds the places that the space of all resources finds."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.placement.allocation import allocate, held_gpus
from policies.placement.gpu_space import GPUSpace
from policies.placement.space import Space
from policies.snapshot import Snapshot
from tests.builders import NOW, jobs, nodes, snapshot


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Snapshot, np.ndarray, np.ndarray]:
    """Up to six nodes of up to eight GPUs, of one of two types each, jobs that run on one or two of them or wait; an
    order, and GPUs for each."""
    count = draw(st.integers(1, 6))
    capacity = np.array(draw(st.lists(st.integers(1, 8), min_size=count, max_size=count)))
    up = np.array(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=count, max_size=count)))
    free = capacity.copy()
    n = draw(st.integers(1, 10))
    held, on = np.zeros(n, dtype=np.int64), []
    for row in range(n):
        for node in draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True)):
            share = draw(st.integers(0, int(free[node])))
            if share:
                free[node] -= share
                held[row] += share
                on.append([row, node, share])
    wanted = np.array(draw(st.lists(st.integers(0, 12), min_size=n, max_size=n)))
    runs = held > 0
    gpus = np.where(runs, held, np.maximum(wanted, 1))
    cpus = draw(st.sampled_from([0.0, 0.5, 4.0]))
    of_jobs = jobs(
        n,
        state=np.where(runs, "running", "pending"),
        started=np.where(runs, NOW - 100, np.nan),
        restartable=draw(st.lists(st.sampled_from([True, True, False]), min_size=n, max_size=n)),
        gpus=gpus,
        gpus_min=draw(st.integers(1, 3)),
        gpus_max=12,
        demand=np.stack([gpus, cpus * gpus, np.zeros(n)], axis=1),
    )
    used = np.stack([capacity - free, cpus * (capacity - free), np.zeros(count)], axis=1)
    typed = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    of_nodes = nodes(
        count,
        up=up,
        capacity=np.stack([capacity, 4.0 * capacity, np.zeros(count)], axis=1),
        used=used,
        gpu_types=("a100", "v100"),
        of_type=np.stack([capacity * typed, capacity * ~typed], axis=1),
    )
    on_nodes = np.array(on, dtype=np.int64).reshape(-1, 3)
    order = np.array(draw(st.permutations(range(n))))
    return snapshot(of_jobs, of_nodes, runs_on=on_nodes), order, wanted


@given(clusters(), st.sampled_from(["tight", "wide"]), st.booleans(), st.booleans(), st.booleans())
def test_counting_finds_the_same_places(
    cluster: tuple[Snapshot, np.ndarray, np.ndarray], packing: str, strict: bool, exact: bool, spare: bool
) -> None:
    site, order, wanted = cluster
    options: dict[str, Any] = {"packing": packing, "strict": strict, "exact": exact, "spare": spare}
    counted = allocate(site, order, wanted, **options)
    plain = allocate(site, order, wanted, **options, prefer=lambda _: site.nodes.up)
    assert counted.actions == plain.actions
    assert np.allclose(counted.after().free, plain.after().free)


@given(clusters(), st.booleans())
def test_a_job_that_starts_has_gpus_of_one_type_unless_no_type_has_as_many(
    cluster: tuple[Snapshot, np.ndarray, np.ndarray], exact: bool
) -> None:
    site, order, wanted = cluster
    at, of_type = {name: node for node, name in enumerate(site.nodes.names)}, site.nodes.of_type
    in_service = of_type[site.nodes.up].sum(axis=0).max(initial=0)
    for action in allocate(site, order, wanted, exact=exact).actions:
        unlike = (of_type[[at[name] for name in action.nodes]] > 0).any(axis=0).sum() > 1
        least = wanted[action.job.job_id - 1] if exact else site.jobs.gpus_min[action.job.job_id - 1]
        assert not unlike or in_service < least


@given(clusters())
def test_no_node_has_more_than_it_can_hold(cluster: tuple[Snapshot, np.ndarray, np.ndarray]) -> None:
    site, order, wanted = cluster
    after = allocate(site, order, wanted).after().free
    assert np.all((after >= -1e-9) & (after <= site.nodes.capacity + 1e-9))


def test_gpus_are_counted_where_cpus_are_no_scarcer() -> None:
    enough = snapshot(jobs(2, gpus=2, demand=[[2, 16, 0], [2, 8, 0]]), nodes(2))
    scarce = snapshot(jobs(2, gpus=2, demand=[[2, 17, 0], [2, 8, 0]]), nodes(2))
    rows = np.arange(2)
    assert GPUSpace.of(enough, Space(enough), rows) is not None
    assert GPUSpace.of(scarce, Space(scarce), rows) is None
    assert GPUSpace.of(scarce, Space(scarce), rows[1:]) is not None


def test_gpus_are_not_counted_where_a_job_may_not_use_all_nodes() -> None:
    site = snapshot(jobs(2, placement=[0, 1]), nodes(2), fits=np.array([[True, True], [True, False]]))
    assert GPUSpace.of(site, Space(site), np.arange(2)) is None
    assert GPUSpace.of(site, Space(site), np.array([0])) is not None


def test_what_runs_and_is_resized_all_at_once_gets_every_gpu_that_it_ought_to_have() -> None:
    n, held = 64, np.tile([1, 3], 32)
    of_jobs = jobs(n, state="running", started=NOW - 9, restartable=True, gpus=held, gpus_min=1, gpus_max=8)
    on = np.stack([np.arange(n), np.arange(n) // 2, held], axis=1)
    site = snapshot(of_jobs, nodes(32), runs_on=on)
    wanted = 4 - held
    given_ = {action.job.job_id - 1: action.gpus for action in allocate(site, np.arange(n), wanted).actions}
    assert given_ == dict(enumerate(wanted.tolist()))
    assert held_gpus(site).sum() == sum(gpus or 0 for gpus in given_.values())
