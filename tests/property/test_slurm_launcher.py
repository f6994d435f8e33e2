"""Whatever waits and runs: nothing is given twice, and nobody delays the first who waits."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.sim.slurm.launcher import (
    HeldResources,
    LauncherSettings,
    NodeResources,
    Pending,
    Start,
    earliest_start,
    jobs_to_start,
    priorities,
)

NOW = 1000.0
PER_GPU = np.array([1.0, 2.0])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Pending, HeldResources, NodeResources]:
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

    names = st.sampled_from(["", "mine"])
    pending = Pending(
        gpus=column(st.integers(1, 10)),
        demand=np.tile(PER_GPU, (n, 1)),
        time_limit=column(st.integers(1, 6000)).astype(float),
        eligible=np.zeros(n),
        begin=column(st.sampled_from([0.0, 2000.0])),
        qos=np.array(["normal"] * n),
        partition=np.array(["gpu"] * n),
        reservation=np.array(draw(st.lists(names, min_size=n, max_size=n))),
        nice=np.zeros(n),
        site_factor=column(st.integers(0, 50)).astype(float),
    )
    total = np.tile(4 * PER_GPU, (m, 1))
    nodes = NodeResources(
        free[:, None] * PER_GPU, total, np.array(draw(st.lists(names, min_size=m, max_size=m))), np.ones(m, dtype=bool)
    )
    return pending, HeldResources(on.astype(int), taken[:, None] * PER_GPU, ends), nodes


def ranking(pending: Pending, room: NodeResources) -> np.ndarray:
    """The priorities where nobody has used anything."""
    return priorities(pending, room, np.ones(len(pending)), NOW, LauncherSettings())


def after(
    pending: Pending, held: HeldResources, room: NodeResources, made: Sequence[Start]
) -> tuple[HeldResources, NodeResources]:
    """What is held and free once these have started."""
    free, node, amount, until = room.free.copy(), held.node, held.amount, np.maximum(held.until, NOW)
    for start in made:
        for place, share in zip(start.nodes, start.shares, strict=True):
            free[place] -= share * PER_GPU
            node, amount = np.append(node, place), np.vstack([amount, share * PER_GPU])
            until = np.append(until, NOW + pending.time_limit[start.row])
    return HeldResources(node, amount, until), NodeResources(free, room.total, room.reservation, room.up)


@given(clusters())
def test_nothing_is_given_twice_and_every_gang_is_whole(cluster: tuple[Pending, HeldResources, NodeResources]) -> None:
    pending, held, room = cluster
    made = jobs_to_start(pending, held, room, ranking(pending, room), now=NOW)
    _, left = after(pending, held, room, list(made))
    assert (left.free >= 0).all()
    assert len({start.row for start in made}) == len(made)
    for start in made:
        assert sum(start.shares) == pending.gpus[start.row]
        assert min(start.shares) > 0
        assert len(set(start.nodes)) == len(start.nodes)
        assert pending.begin[start.row] <= NOW
        assert all(room.reservation[node] == pending.reservation[start.row] for node in start.nodes)


@given(clusters(), st.booleans())
def test_nobody_delays_the_first_who_waits(
    cluster: tuple[Pending, HeldResources, NodeResources], backfill: bool
) -> None:
    pending, held, room = cluster
    made = jobs_to_start(
        pending, held, room, ranking(pending, room), now=NOW, settings=LauncherSettings(backfill=backfill)
    )
    ranked = np.argsort(-ranking(pending, room), kind="stable").tolist()
    begun = {start.row for start in made}
    for name in ("", "mine"):
        mine = [row for row in ranked if pending.reservation[row] == name and pending.begin[row] <= NOW]
        waits = [row for row in mine if row not in begun and earliest_start(pending, row, held, room, NOW) < np.inf]
        if not waits:
            continue
        first = waits[0]
        before = [start for start in made if start.row in mine[: mine.index(first)]]
        promised = earliest_start(pending, first, *after(pending, held, room, before), NOW)
        assert earliest_start(pending, first, *after(pending, held, room, list(made)), NOW) <= promised
        if not backfill:
            assert not begun & set(mine[mine.index(first) :])


@given(clusters())
def test_who_waits_first_does_not_fit(cluster: tuple[Pending, HeldResources, NodeResources]) -> None:
    pending, held, room = cluster
    made = jobs_to_start(pending, held, room, ranking(pending, room), now=NOW)
    ranked = np.argsort(-ranking(pending, room), kind="stable").tolist()
    begun = {start.row for start in made}
    for name in ("", "mine"):
        mine = [row for row in ranked if pending.reservation[row] == name and pending.begin[row] <= NOW]
        waits = [row for row in mine if row not in begun]
        if waits:
            before = [start for start in made if start.row in mine[: mine.index(waits[0])]]
            _, left = after(pending, held, room, before)
            there = left.free[room.reservation == name]
            wanted = pending.gpus[waits[0]]
            waits_for_one_node = wanted <= room.total[room.reservation == name, 0].max(initial=0)
            assert (there[:, 0].max(initial=0) if waits_for_one_node else there[:, 0].sum()) < wanted
