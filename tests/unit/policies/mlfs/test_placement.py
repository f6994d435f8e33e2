"""MLF-H's choice of nodes."""

from typing import Any

import numpy as np
import pytest

from policies.mlfs.placement import PlacementSettings, Servers, network_shares, volumes
from policies.placement.space import Placement
from policies.snapshot import Jobs, Snapshot
from tests.builders import jobs, nodes, on_networks, snapshot

LEAST, TIGHT = PlacementSettings(ideal="least"), PlacementSettings()


def at(of_jobs: Jobs, n: int = 2, on: Any = (), **columns: Any) -> Snapshot:
    """n nodes of four GPUs, with what these allocations (job, node, GPUs) hold in use."""
    runs_on = np.array(on, dtype=np.int64).reshape(-1, 3)
    if "network" in columns:
        of_jobs = on_networks(of_jobs, np.broadcast_to(columns.pop("network"), n), runs_on)
    used = np.zeros((n, 3))
    for row, node, gpus in runs_on.tolist():
        used[node] += of_jobs.demand[row] * (gpus / of_jobs.demand[row, 0])
    return snapshot(of_jobs, nodes(n, **{"used": used, **columns}), runs_on=runs_on)


class TestTheIdealServer:
    def test_has_the_least_in_use_as_the_paper_says(self) -> None:
        seen = at(jobs(2, state=["running", "pending"]), on=[(0, 0, 1)])
        assert Servers(seen, LEAST).find(1) == Placement((1,), (1,))

    def test_has_the_most_allocated_so_that_whole_nodes_stay_free(self) -> None:
        seen = at(jobs(2, state=["running", "pending"]), on=[(0, 1, 1)])
        assert Servers(seen, TIGHT).find(1) == Placement((1,), (1,))

    @pytest.mark.parametrize("settings", [LEAST, TIGHT])
    @pytest.mark.parametrize(
        "columns", [{"load": [[0, 20, 0], [0, 2, 0]]}, {"network": [0.6, 0.1]}, {"network": [0.6, np.nan]}]
    )
    @pytest.mark.parametrize("user", ["ada", "eve"])
    def test_has_the_least_in_use_of_what_is_shared(self, settings: PlacementSettings, columns: Any, user: str) -> None:
        of_jobs = jobs(3, state=["running", "running", "pending"], user=[user, user, "ada"])
        look = at(of_jobs, on=[(0, 0, 1), (1, 1, 1)], **columns)
        assert Servers(look, settings).find(2) == Placement((1,), (1,))

    def test_counts_every_resource_by_its_capacity(self) -> None:
        # half of the CPUs of the first node are taken, a quarter of the memory of the second
        used = [[0, 16, 0], [0, 0, 32_768]]
        assert Servers(at(jobs(), used=used), LEAST).find(0) == Placement((1,), (1,))

    def test_hosts_the_jobs_of_its_ml_job_that_communicate_most(self) -> None:
        # the second node has more in use, and the larger part of the model
        of_jobs = jobs(4, ml_job=[0, 0, 2, 0], params=[1e6, 9e6, np.nan, 1e6], state=["running"] * 3 + ["pending"])
        seen = at(of_jobs, on=[(0, 0, 1), (1, 1, 1), (2, 1, 1)])
        assert Servers(seen, LEAST).find(3) == Placement((1,), (1,))
        apart = PlacementSettings(ideal="least", use_bandwidth=False)
        assert Servers(seen, apart).find(3) == Placement((0,), (1,))

    def test_who_is_left_alone_talks_to_nobody_whatever_adding_up_left_over(self) -> None:
        running = jobs(4, ml_job=0, params=[3_100_000.1, 500_000.1, 800_000.1, 200_000.1], state="running")
        servers = Servers(at(running, on=[(row, 0, 1) for row in range(4)]), LEAST)
        assert servers.communication_on(0, 0) > 0
        for row in (1, 2, 3):
            servers.give(row, servers.space.place(row))
        assert servers.communication_on(0, 0) == 0.0

    def test_counts_a_mate_that_was_placed_just_before(self) -> None:
        seen = at(jobs(2, ml_job=0))
        servers = Servers(seen, LEAST)
        servers.take(0, Placement((1,), (1,)))
        assert servers.find(1) == Placement((1,), (1,))


class TestWhoIsOverloaded:
    def test_a_full_node_is_not(self) -> None:
        of_jobs = jobs(state="running", gpus=4, demand=[4, 32, 131_072])
        seen = at(of_jobs, 1, on=[(0, 0, 4)], load=[4, 32, 131_072])
        assert Servers(seen, TIGHT).overloaded().tolist() == [False]

    @pytest.mark.parametrize(
        ("columns", "contended"),
        [
            ({"network": 0.91}, [False, False, True]),
            ({"network": 0.89}, [False, False, False]),
            ({"load": [0, 29, 0]}, [False, True, False]),
            ({"load": [0, 28, 0]}, [False, False, False]),
            ({"load": [0, 29, 0], "used": [0, 30, 0]}, [False, False, False]),
            ({"used": [5, 0, 0]}, [True, False, False]),
            ({"load": np.nan, "network": np.nan}, [False, False, False]),
        ],
    )
    def test_each_resource_is_judged_by_itself(self, columns: Any, contended: list[bool]) -> None:
        servers = Servers(at(jobs(state="running"), 1, on=[(0, 0, 1)], **{"used": [0, 0, 0], **columns}), TIGHT)
        assert [*servers.contended(0).tolist(), servers.network_overloaded(0, 0)] == contended
        assert servers.overloaded().tolist() == [any(contended[:2])]
        assert servers.reports_overload().tolist() == [contended[2]]

    def test_h_r_is_a_setting(self) -> None:
        seen = at(jobs(0), 1, load=[0, 25, 0])
        assert Servers(seen, PlacementSettings(overload=0.7)).overloaded().tolist() == [True]
        reporting = at(jobs(state="running", network=0.8), 1, on=[(0, 0, 1)])
        assert Servers(reporting, PlacementSettings(overload=0.7)).reports_overload().tolist() == [True]

    def test_nothing_is_put_on_an_overloaded_node(self) -> None:
        of_jobs = jobs(3, state=["running", "running", "pending"])
        assert Servers(at(of_jobs, on=[(0, 0, 1), (1, 1, 1)], network=[0.95, 0.9]), TIGHT).find(2) == Placement(
            (1,), (1,)
        )

    def test_the_reports_of_others_close_no_node_to_a_job(self) -> None:
        of_jobs = jobs(3, state=["running", "running", "pending"], user=["eve", "eve", "ada"])
        assert Servers(at(of_jobs, on=[(0, 0, 1), (1, 1, 1)], network=[1.0, 1.0]), TIGHT).find(2) is not None
        assert Servers(at(of_jobs, on=[(0, 0, 1), (1, 1, 1)], network=[1.0, 0.9]), TIGHT).find(2) == Placement(
            (1,), (1,)
        )

    def test_nothing_is_put_where_its_traffic_would_overload(self) -> None:
        # it uses a tenth of each network; the second node has no room for another tenth
        of_jobs = jobs(3, gpus=[1, 1, 8], traffic=[10, 80, 10], state="running")
        on = [(0, 0, 1), (1, 1, 1), (2, 2, 4), (2, 3, 4)]
        servers = Servers(at(of_jobs, 4, on=on, network=[0.1, 0.85, 0.1, 0.1], used=np.zeros((4, 3))), TIGHT)
        servers.give(2, servers.space.place(2))
        assert servers.network_share(2, Placement((0, 1), (4, 4))) == pytest.approx(0.1)
        place = servers.find(2)
        assert place is not None
        assert 1 not in place.nodes


class TestGangs:
    def test_go_on_one_node_where_one_suffices(self) -> None:
        seen = at(jobs(2, gpus=[2, 4], state=["running", "pending"]), 3, on=[(0, 0, 2)])
        assert Servers(seen, TIGHT).find(1) in [Placement((1,), (4,)), Placement((2,), (4,))]

    def test_go_over_several_where_none_does(self) -> None:
        place = Servers(at(jobs(gpus=6), 3), TIGHT).find(0)
        assert place is not None
        assert (len(place.nodes), sum(place.shares)) == (2, 6)

    def test_find_none_without_room(self) -> None:
        assert Servers(at(jobs(gpus=9)), TIGHT).find(0) is None
        assert Servers(at(jobs(demand=[1, 33, 0])), TIGHT).find(0) is None
        assert Servers(at(jobs(), up=False), TIGHT).find(0) is None


def test_volumes_are_traffic_where_all_of_an_ml_job_told_it_else_parameters() -> None:
    of_jobs = jobs(5, ml_job=[0, 0, 2, 2, 4], traffic=[5, 7, 9, np.nan, np.nan], params=[1, 1, 3, np.nan, np.nan])
    assert volumes(snapshot(of_jobs)).tolist() == [5, 7, 3, 3, 1]


class TestNetworkShares:
    def test_go_by_the_traffic_told(self) -> None:
        of_jobs = jobs(2, gpus=2, traffic=[30, 10], state="running")
        seen = at(of_jobs, on=[(0, 0, 2), (1, 1, 2)], network=[0.6, 0.2])
        assert network_shares(seen) == pytest.approx([0.6, 0.2])

    def test_of_silent_jobs_over_several_nodes_are_what_is_left_by_their_gpus(self) -> None:
        of_jobs = jobs(3, gpus=[4, 4, 1], state="running")
        seen = at(of_jobs, on=[(0, 0, 3), (0, 1, 1), (1, 0, 1), (1, 1, 3), (2, 1, 1)], network=[0.4, 0.8], used=0.0)
        assert network_shares(seen) == pytest.approx([(0.6 + 0.2) / 2, (0.2 + 0.6) / 2, 0.0])  # both report 0.8

    def test_of_a_job_that_reports_no_network_are_none_whatever_others_report(self) -> None:
        of_jobs = jobs(
            2, gpus=[8, 1], state="running", traffic=[50, np.nan], network=[np.nan, 1.0], user=["ada", "eve"]
        )
        seen = snapshot(of_jobs, nodes(2), runs_on=np.array([[0, 0, 4], [0, 1, 4], [1, 0, 1]]))
        assert network_shares(seen).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("wrong", [{"overload": 0.0}, {"overload": 1.1}, {"ideal": "worst"}])
def test_settings_that_make_no_sense_are_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PlacementSettings(**wrong)
