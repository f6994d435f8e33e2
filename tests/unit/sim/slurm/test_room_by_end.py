"""Where there is room as running jobs end, against what is counted node by node."""

import numpy as np
import pytest

from policies.placement.parts import parts_on
from slurmplug.sim.slurm.node_sets import all_of, each_of, first_of, flags, node_set, numbers
from slurmplug.sim.slurm.queue import HeldResources
from slurmplug.sim.slurm.room_by_end import RoomByEnd

DEMAND = (1.0, 2.0, 1000.0)


@pytest.mark.parametrize("seed", range(20))
def test_room_is_what_is_free_beside_what_has_not_ended(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, entries = 6, int(rng.integers(0, 15))
    node, until = rng.integers(0, m, entries), rng.choice([60.0, 120.0, 180.0, 240.0, 300.0], entries)
    amount = rng.integers(0, 4, (entries, 1)) * np.array([1.0, 2.0, 1000.0])
    now = rng.integers(0, 3, (m, 1)) * np.array([1.0, 2.5, 1000.0])
    room = RoomByEnd(now, HeldResources(node, amount, until), 0.0)
    assert room.times == sorted(until)
    inside = node_set(rng.random(m) < 0.8)
    free = now.copy()
    ended = np.argsort(until, kind="stable")
    found: list[np.ndarray] = []
    for over in range(entries + 1):
        if over:
            free[node[ended[over - 1]]] += amount[ended[over - 1]]
        parts = parts_on(free, np.array(DEMAND))
        found.append(parts * flags(inside, m))
        for wanted in (1, 2, 4):
            assert room.nodes(DEMAND, wanted, over) == node_set(parts >= wanted)
        assert [room.cpus(each, over) for each in range(m)] == free[:, 1].tolist()
    for wanted in (1, 2, 4):
        for count in (1, 3):
            sooner = (over for over, parts in enumerate(found) if (parts >= wanted).sum() >= count)
            assert room.soonest(DEMAND, wanted, count, inside) == next(sooner, None)
    for wanted in (1, 5, 12):
        sooner = (over for over, parts in enumerate(found) if parts.sum() >= wanted)
        assert room.soonest_spread(DEMAND, wanted, inside) == next(sooner, None)


def test_ends_are_those_of_the_entries_on_the_nodes_and_none_is_sooner_than_in_a_second() -> None:
    held = HeldResources(np.array([2, 0, 1, 0]), np.ones((4, 3)), np.array([50.0, 10.0, 30.0, 0.0]))
    room = RoomByEnd(np.zeros((3, 3)), held, 0.0)
    assert room.times == [1.0, 10.0, 30.0, 50.0]
    assert [room.over(time) for time in (0.0, 1.0, 49.0, 50.0)] == [0, 1, 3, 4]
    assert room.first_end(0b110, 0, 4) == 30.0
    assert room.first_end(0b110, 0, 2) == 1.0
    assert room.last_end(each_of(0b101), 4) == 50.0
    assert room.last_end(each_of(0b101), 3) == 10.0


def test_sets_of_nodes() -> None:
    nodes = np.array([False, True, True, False, True, False, False, False, False, True])
    made = node_set(nodes)
    assert made == 0b1000010110
    assert flags(made, 10).tolist() == nodes.tolist()
    assert numbers(made).tolist() == list(each_of(made)) == [1, 2, 4, 9]
    assert first_of(made, 2) == 0b110
    assert numbers(0).tolist() == []
    assert all_of(3) == 0b111
