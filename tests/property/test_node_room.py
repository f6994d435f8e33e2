"""Whatever runs where: the nodes have room for a job at the first end after which its parts fit on them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats, Ints
from slurmplug.forecasting.starts.node_room import Parts, room_at
from tests.builders import jobs, nodes, snapshot

CAPACITY = np.array([4.0, 16.0, 100.0])


def cluster(random: np.random.Generator) -> Snapshot:
    """Jobs on one node or on two, and on some nodes a CPU that no job holds."""
    count, n = int(random.integers(1, 5)), int(random.integers(0, 8))
    on: list[tuple[int, int, int]] = []
    gpus = random.integers(0, 3, n)
    demand = np.stack([gpus, random.choice([1.0, 2.0, 8.0], n), random.choice([0.0, 10.0], n)], axis=1)
    for row in range(n):
        places = random.permutation(count)[: int(random.integers(1, 3))]
        on += [(row, int(node), int(gpus[row]) if i == 0 else 0) for i, node in enumerate(places)]
    runs_on = np.array(on, dtype=np.int64).reshape(-1, 3)
    used = held_by_nodes(demand, runs_on, count)
    used[:, 1] += random.integers(0, 2, count)
    of = jobs(n, state=["running"] * n, gpus=gpus, demand=demand)
    up = random.random(count) < 0.9
    return snapshot(of, nodes(count, capacity=CAPACITY, used=used, up=up), runs_on=runs_on)


def held_by_nodes(demand: Floats, runs_on: Ints, count: int) -> Floats:
    """(nodes, resources)"""
    held = np.zeros((count, 3))
    for row, node, gpus in runs_on.tolist():
        held[node] += [gpus, *(demand[row, 1:] / (runs_on[:, 0] == row).sum())]
    return held


def plain_room_at(of: Snapshot, where: Bools, ends: Floats, parts: Parts) -> Floats:
    """(samples,) as `room_at`, one end after the other."""
    found = np.full(ends.shape[1], np.inf)
    for s, of_sample in enumerate(ends.T):
        for now in sorted({0.0, *of_sample.tolist()}):
            left = of.runs_on[[bool(of_sample[row] > now) for row in of.runs_on[:, 0]]]
            held = held_by_nodes(of.jobs.demand, of.runs_on, len(where)) - held_by_nodes_of(of, left)
            placed = 0
            for node in np.flatnonzero(where & of.nodes.up):
                free = CAPACITY - of.nodes.used[node] + held[node]
                if (of.runs_on[:, 1] == node).any() and not (left[:, 1] == node).any():
                    free = CAPACITY
                room = 0
                while room < parts.count and ((room + 1) * parts.needs <= free + 1e-6).all():
                    room += 1
                placed += min(room, 1) if parts.apart else room
            if placed >= parts.count:
                found[s] = now
                break
    return found


def held_by_nodes_of(of: Snapshot, left: Ints) -> Floats:
    """(nodes, resources) what the jobs that are left hold, each with its share of what it has on all its nodes."""
    held = np.zeros((len(of.nodes.names), 3))
    for row, node, gpus in left.tolist():
        held[node] += [gpus, *(of.jobs.demand[row, 1:] / (of.runs_on[:, 0] == row).sum())]
    return held


@given(st.integers(0, 2**32 - 1))
def test_there_is_room_at_the_first_end_after_which_all_parts_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    of = cluster(random)
    ends = random.choice([1.0, 5.0, 5.0, 7.5, 20.0], (len(of.jobs), 3))
    needs = np.array([random.integers(0, 5), random.integers(1, 17), random.choice([0.0, 50.0, 101.0])])
    parts = Parts(int(random.integers(1, 5)), bool(random.random() < 0.5), needs)
    where = random.random(len(of.nodes.names)) < 0.8
    found = room_at(of, where, np.arange(len(of.jobs)), ends, parts)
    np.testing.assert_array_equal(found, plain_room_at(of, where, ends, parts))
