"""Whatever waits and runs: nothing is given twice, and nobody delays the first who waits."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.sim.slurm.launcher import jobs_to_start, priorities
from slurmplug.sim.slurm.partitions import JobPartitions
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending, Start
from slurmplug.sim.slurm.settings import LauncherSettings
from tests.earliest_start import earliest_start

NOW = 1000.0
PER_GPU = np.array([1.0, 2.0])
PARTITION_NAMES = ("first", "second", "all")


class Cluster(NamedTuple):
    pending: Pending
    held: HeldResources
    room: NodeResources
    partitions: JobPartitions


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    m = draw(st.integers(1, 4))
    entries = draw(st.lists(st.tuples(st.integers(0, m - 1), st.integers(1, 4), st.integers(900, 5000)), max_size=6))
    free = np.full(m, 4)
    kept = []
    for node, gpus, until in entries:
        if gpus <= free[node]:
            free[node] -= gpus
            kept.append((node, gpus, until))
    on, taken, ends = np.array(kept, dtype=float).reshape(-1, 3).T
    n = draw(st.integers(1, 8))

    def column(each: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(each, min_size=n, max_size=n)))

    names, requested = st.sampled_from(["", "mine"]), column(st.integers(1, 10))
    pending = Pending(
        gpus=requested,
        nodes=np.minimum(column(st.integers(0, 3)), requested),
        demand=np.tile(PER_GPU, (n, 1)),
        time_limit=column(st.integers(1, 6000)).astype(float),
        eligible=np.zeros(n),
        begin=column(st.sampled_from([0.0, 2000.0])),
        qos=np.array(["normal"] * n),
        partition=np.array(draw(st.lists(st.sampled_from(PARTITION_NAMES), min_size=n, max_size=n))),
        reservation=np.array(draw(st.lists(names, min_size=n, max_size=n))),
        nice=np.zeros(n),
        site_factor=column(st.integers(0, 50)).astype(float),
    )
    total = np.tile(4 * PER_GPU, (m, 1))
    nodes = NodeResources(
        free[:, None] * PER_GPU, total, np.array(draw(st.lists(names, min_size=m, max_size=m))), np.ones(m, dtype=bool)
    )
    each_node = st.lists(st.booleans(), min_size=m, max_size=m)
    sets = np.array([draw(each_node), draw(each_node), [True] * m])
    where = np.array([PARTITION_NAMES.index(name) for name in pending.partition.tolist()])
    tier = np.array(draw(st.lists(st.integers(1, 2), min_size=3, max_size=3)))[where]
    partitions = JobPartitions(where, sets, tier, np.zeros(n, dtype=bool))
    return Cluster(pending, HeldResources(on.astype(int), taken[:, None] * PER_GPU, ends), nodes, partitions)


def ranking(pending: Pending, room: NodeResources) -> np.ndarray:
    """The priorities where nobody has used anything."""
    return priorities(pending, room, np.ones(len(pending)), NOW, LauncherSettings())


def in_order(cluster: Cluster, name: str) -> list[int]:
    """The jobs of a reservation that may start, as they are considered."""
    pending = cluster.pending
    ranked = np.lexsort((-ranking(pending, cluster.room), -cluster.partitions.tier)).tolist()
    return [row for row in ranked if pending.reservation[row] == name and pending.begin[row] <= NOW]


def started(cluster: Cluster, *, backfill: bool = True) -> tuple[Start, ...]:
    pending, held, room, partitions = cluster
    settings = LauncherSettings(backfill=backfill)
    of_priority = ranking(pending, room)
    return jobs_to_start(pending, held, room, of_priority, now=NOW, settings=settings, partitions=partitions)


def after(cluster: Cluster, made: Sequence[Start]) -> Cluster:
    """What is held and free once these have started."""
    pending, held, room, _ = cluster
    free, node, amount, until = room.free.copy(), held.node, held.amount, np.maximum(held.until, NOW)
    for start in made:
        for place, share in zip(start.nodes, start.shares, strict=True):
            free[place] -= share * PER_GPU
            node, amount = np.append(node, place), np.vstack([amount, share * PER_GPU])
            until = np.append(until, NOW + pending.time_limit[start.row])
    left = NodeResources(free, room.total, room.reservation, room.up)
    return cluster._replace(held=HeldResources(node, amount, until), room=left)


def promised(cluster: Cluster, row: int) -> float:
    pending, held, room, partitions = cluster
    return earliest_start(pending, row, held, room, NOW, partitions=partitions)


@given(clusters())
def test_nothing_is_given_twice_and_every_gang_is_whole_on_nodes_of_its_partition(cluster: Cluster) -> None:
    pending, _, room, partitions = cluster
    made = started(cluster)
    assert (after(cluster, made).room.free >= 0).all()
    assert len({start.row for start in made}) == len(made)
    for start in made:
        assert sum(start.shares) == pending.gpus[start.row]
        assert min(start.shares) > 0
        if pending.nodes[start.row] > 1:
            assert len(start.nodes) == pending.nodes[start.row]
            assert max(start.shares) - min(start.shares) <= 1
        assert len(set(start.nodes)) == len(start.nodes)
        assert pending.begin[start.row] <= NOW
        assert all(room.reservation[node] == pending.reservation[start.row] for node in start.nodes)
        assert partitions.nodes[partitions.where[start.row], list(start.nodes)].all()


@given(clusters(), st.booleans())
def test_nobody_delays_the_first_who_waits(cluster: Cluster, backfill: bool) -> None:
    made = started(cluster, backfill=backfill)
    begun = {start.row for start in made}
    for name in ("", "mine"):
        mine = in_order(cluster, name)
        waits = [row for row in mine if row not in begun and promised(cluster, row) < np.inf]
        if not waits:
            continue
        first = waits[0]
        before = [start for start in made if start.row in mine[: mine.index(first)]]
        assert promised(after(cluster, made), first) <= promised(after(cluster, before), first)
        if not backfill:
            behind = set(mine[mine.index(first) :])
            blocked = cluster.partitions.nodes[cluster.partitions.where[first]]
            assert not any(blocked[list(start.nodes)].any() for start in made if start.row in behind)


@given(clusters())
def test_who_waits_first_does_not_fit(cluster: Cluster) -> None:
    pending, _, room, partitions = cluster
    made = started(cluster)
    begun = {start.row for start in made}
    for name in ("", "mine"):
        mine = in_order(cluster, name)
        waits = [row for row in mine if row not in begun]
        if waits:
            before = [start for start in made if start.row in mine[: mine.index(waits[0])]]
            inside = (room.reservation == name) & partitions.nodes[partitions.where[waits[0]]]
            there = after(cluster, before).room.free[inside]
            wanted = pending.gpus[waits[0]]
            if (nodes := pending.nodes[waits[0]]) > 1:
                assert (there[:, 0] >= -(-wanted // nodes)).sum() < nodes
                continue
            waits_for_one_node = wanted <= room.total[inside, 0].max(initial=0)
            assert (there[:, 0].max(initial=0) if waits_for_one_node else there[:, 0].sum()) < wanted
