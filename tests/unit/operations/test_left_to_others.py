"""What users and operators change during an operation is left; maintenance and drains; a job at the queue's head."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmplug.cluster.port import Reservation, ResourceRequest
from slurmplug.daemon.reset import reset_recorded
from slurmplug.operations.values import GOES_FIRST
from tests.moving import MakeSite, MovingSite

GROW: dict[str, Any] = {"kind": "resize", "gpus": 4}
MOVE: dict[str, Any] = {"kind": "migrate"}
HOUR = 3_600.0


@pytest.fixture
def site(make_site: MakeSite) -> MovingSite:
    """One node: a requeued job starts nowhere but in its place."""
    return make_site(nodes=1)


def until(site: MovingSite, step: str, **wanted: Any) -> int:
    """The operation is at that step."""
    job = site.training()
    site.cycle(**(wanted or GROW))
    for _ in range(12):
        if site.step() == step:
            return job
        if site.step() == "save":
            site.saves(job)
        site.cycle()
    raise AssertionError(f"never at {step}: {site.operations()}")


def until_over(site: MovingSite) -> str:
    for _ in range(8):
        if site.step() in ("ended", "bound"):
            return site.result()
        site.cycle()
    raise AssertionError(f"not over: {site.operations()}")


CHANGES = [({"time_limit": 60.0}, "TimeLimit"), ({"tasks": 7}, "NumTasks"), ({"min_memory": 7.0}, "MinMemoryNode")]


@pytest.mark.parametrize(("change", "field"), CHANGES, ids=[field for _, field in CHANGES])
@pytest.mark.parametrize("step", ["save", "reserve", "requeue", "settle", "rewrite", "unreserve", "confirm"])
def test_whatever_others_change_before_any_step_is_left_and_ends_the_operation(
    site: MovingSite, step: str, change: dict[str, Any], field: str
) -> None:
    job = until(site, step)
    site.cluster.jobs[job] |= change
    result = until_over(site)
    assert result.startswith("gave up: its user or an operator changed it meanwhile (")
    assert field in result
    present = site.cluster.jobs[job]
    assert {name: present[name] for name in change} == change
    assert (present["gpus"], present.get("nice", 0), present.get("label", 0)) == (2, 0, 0)
    assert not site.cluster.reservations
    assert present["restarts"] == (0 if step in ("save", "reserve") else 1)


def test_of_a_new_shape_only_what_nobody_changed_is_taken_back(site: MovingSite) -> None:
    job = until(site, "confirm")
    site.cluster.jobs[job] |= {"nodes": 2, "gpus": 8, "tasks": 2}  # NumNodes=2, beside slurmplug's four GPUs on each
    assert "NumNodes" in until_over(site)
    assert (site.cluster.jobs[job]["nodes"], site.cluster.jobs[job]["gpus"]) == (2, 4)


def test_a_nice_value_that_a_user_sets_meanwhile_is_left(site: MovingSite) -> None:
    job = until(site, "confirm")
    site.cluster.jobs[job]["nice"] = 50
    site.cycles_until(lambda: site.step() == "watch")
    assert site.cluster.jobs[job]["nice"] == 50


def test_node_lists_that_a_user_sets_while_the_moved_job_runs_are_left(make_site: MakeSite) -> None:
    site = make_site()
    job = site.training()
    site.cycle(**MOVE)
    site.saves(job)
    site.cycles_until(lambda: site.step() == "watch")
    site.trains(job, 6)
    site.cycles_until(lambda: site.step() == "bound")
    site.cluster.requeue(job)
    site.cluster.jobs[job]["excluded"] = "n3"
    site.cycle()
    assert (site.step(), site.cluster.jobs[job]["excluded"]) == ("ended", "n3")


def test_a_pending_job_that_its_user_changes_while_it_is_resized_keeps_that(site: MovingSite) -> None:
    job = site.cluster.submit(b"#PLUG --gpus=1..8 --max-iterations=9\n", gpus=2, cpus=4)
    site.cycle(kind="resize", gpus=1)
    site.cluster.jobs[job]["time_limit"] = 60.0
    assert until_over(site) == "gave up: its user or an operator changed it meanwhile (TimeLimit)"
    assert (site.cluster.jobs[job]["gpus"], site.cluster.jobs[job]["time_limit"]) == (2, 60.0)


def test_a_request_that_cannot_be_read_is_waited_for_and_nothing_is_overwritten(
    site: MovingSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = until(site, "requeue")
    with monkeypatch.context() as away:
        away.setattr(site.cluster, "resource_requests", lambda job_ids: {})
        for _ in range(3):
            site.cycle()
        assert "update" not in site.cluster.verbs(job)
    site.cycles_until(lambda: site.step() == "watch")
    assert site.cluster.jobs[job]["gpus"] == 4


@pytest.mark.parametrize("step", ["rewrite", "unreserve", "confirm"])
def test_a_request_that_was_read_after_its_job_had_started_is_not_compared_with_that_of_a_pending_job(
    site: MovingSite, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The queue shows it pending; read a moment later it has the nodes and tasks of a run that Slurm spread."""
    until(site, step)
    read = site.cluster.resource_requests

    def started_since(job_ids: list[int]) -> dict[int, ResourceRequest]:
        return {job: replace(each, nodes=2, tasks=2, pending=False) for job, each in read(job_ids).items()}

    with monkeypatch.context() as race:
        race.setattr(site.cluster, "resource_requests", started_since)
        site.cycle()
    assert "gave up" not in str(site.operations())
    site.cycles_until(lambda: site.step() == "watch")


def test_a_job_that_takes_its_place_is_not_ranked_until_it_runs(
    site: MovingSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = site.training()
    decide = site.policy.decide
    monkeypatch.setattr(site.policy, "decide", lambda *seen: replace(decide(*seen), score=np.ones(1)))
    site.cycle(**GROW)
    site.saves(job)
    for _ in range(8):
        site.cycle()
        if site.step() in ("unreserve", "confirm"):
            assert site.cluster.jobs[job]["label"] == int(GOES_FIRST["SiteFactor"])
        if site.step() == "confirm":
            break
    site.cycles_until(lambda: site.step() == "watch")
    assert site.cluster.jobs[job]["label"] == 0


@pytest.mark.parametrize("runs", [False, True])
def test_reset_takes_a_job_back_from_the_head_of_the_queue(site: MovingSite, runs: bool) -> None:
    job = until(site, "confirm")
    if runs:
        site.cluster.start(job)
    result = reset_recorded(site.ledger, site.cluster)
    assert dict(result.failed) == {}
    present = site.cluster.jobs[job]
    assert (present["nice"], present["label"], present["gpus"]) == (0, 0, 4 if runs else 2)


# --- maintenance and drains -------------------------------------------------------------------------------------------


def maintenance(site: MovingSite, *nodes: str, begins: float) -> None:
    start = site.cluster.time + begins
    reserved = Reservation("maint", frozenset(nodes), frozenset({"root"}), frozenset(), start, start + 8 * HOUR)
    site.cluster.reservations.append(reserved)


@pytest.mark.parametrize(("begins", "vetoes"), [(1 * HOUR, ["maintenance"]), (11 * HOUR, [])])
def test_a_job_of_ten_hours_is_not_moved_to_where_maintenance_begins_before(
    make_site: MakeSite, begins: float, vetoes: list[str]
) -> None:
    site = make_site(nodes=2)
    site.training()
    maintenance(site, "n2", begins=begins)
    site.cycle(**MOVE)
    assert site.vetoes() == vetoes


def test_a_job_without_a_limit_is_not_moved_to_where_maintenance_is_planned_at_all(make_site: MakeSite) -> None:
    site = make_site(nodes=2)
    site.training(time_limit=float("nan"))
    maintenance(site, "n2", begins=1000 * HOUR)
    site.cycle(**MOVE)
    assert site.vetoes() == ["maintenance"]


def test_maintenance_that_is_planned_meanwhile_is_found_before_the_requeue(make_site: MakeSite) -> None:
    site = make_site(nodes=2)
    job = site.training()
    site.cycle(**MOVE)
    maintenance(site, "n2", begins=HOUR)
    site.saves(job)
    assert until_over(site) == "no room: other jobs took its nodes meanwhile"
    assert site.cluster.jobs[job]["restarts"] == 0


def test_no_job_moves_to_a_node_that_drains(make_site: MakeSite) -> None:
    site = make_site(nodes=2)
    site.training()
    states = (frozenset({"mixed"}), frozenset({"idle", "drain"}))
    site.cluster.nodes = replace(site.cluster.nodes, state=states)
    site.cycle(**MOVE)
    assert site.vetoes() == ["maintenance"]


def test_a_pending_job_grows_to_no_size_that_only_nodes_out_of_service_could_serve(make_site: MakeSite) -> None:
    site = make_site(nodes=2)
    site.cluster.submit(b"#PLUG --gpus=1..8 --max-iterations=9\n", gpus=2)
    maintenance(site, "n2", begins=0.5 * HOUR)
    site.cycle(kind="resize", gpus=8)
    assert site.vetoes() == ["maintenance"]
