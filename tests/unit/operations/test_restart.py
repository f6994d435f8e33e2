"""A running job is resized, moved or preempted: each step, and what follows when it does not go as it should."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmplug.cluster.limits import Limits, QosLimits
from slurmplug.cluster.port import Command, Outcome, Reservation
from slurmplug.operations.restart import PROGRESS_LOST
from slurmplug.operations.values import GOES_FIRST
from tests.builders import NOW
from tests.fake_cluster import Crash
from tests.moving import SIGNALLED, MakeSite, MovingSite

GROW: dict[str, Any] = {"kind": "resize", "gpus": 4}
MOVE: dict[str, Any] = {"kind": "migrate"}
PREEMPT: dict[str, Any] = {"kind": "preempt"}


@pytest.fixture
def site(make_site: MakeSite) -> MovingSite:
    return make_site()


def until_requeued(site: MovingSite, **wanted: Any) -> int:
    """Asked, saved, secured, requeued: the job waits again."""
    job = site.training()
    site.cycle(**(wanted or GROW))
    site.saves(job)
    site.cycles_until(lambda: site.cluster.jobs[job]["restarts"] == 1)
    return job


def goes_on(site: MovingSite, job: int, iteration: int = 6) -> None:
    """Slurm starts it, and it reports that iteration first."""
    site.cycles_until(lambda: site.cluster.jobs[job]["state"] == "RUNNING")
    site.trains(job, iteration)
    site.cycles_until(lambda: site.step() in ("ended", "bound"))


def nothing_is_left(site: MovingSite) -> bool:
    job = site.cluster.jobs[1]
    return not site.cluster.reservations and not site.cluster.requests and not job["reservation"]


def test_a_resize_asks_saves_secures_requeues_rewrites_and_confirms(site: MovingSite) -> None:
    job = until_requeued(site)
    goes_on(site, job)
    assert site.result() == "done"
    assert site.cluster.jobs[job]["gpus"] == 4
    assert nothing_is_left(site)
    verbs = [verb for verb in site.cluster.verbs() if verb != "withdraw"]
    assert verbs == ["ask", "reserve", "requeue", "update", "update", "unreserve"]
    rewrite = site.cluster.done[[d.verb for d in site.cluster.done].index("update")].fields
    assert {"Gres": "gpu:4", "StartTime": "now", **GOES_FIRST}.items() <= rewrite.items()
    assert (site.cluster.jobs[job]["label"], site.cluster.jobs[job]["nice"]) == (0, 0)


def test_no_job_of_a_user_may_run_in_the_reservation_and_it_is_gone_before_the_job_starts_there(
    make_site: MakeSite,
) -> None:
    site = make_site(nodes=1)
    until(site, "requeue")
    [reservation] = site.cluster.reservations
    assert reservation.users == {"root"}
    site.cycles_until(lambda: site.cluster.jobs[1]["state"] == "RUNNING")
    assert site.cluster.reservations == []
    assert not [done for done in site.cluster.done if "ReservationName" in done.fields]


def test_a_job_goes_first_only_until_it_runs_and_keeps_its_users_nice_value(make_site: MakeSite) -> None:
    site = make_site(nodes=1)
    job = site.training()
    site.cluster.jobs[job]["nice"] = 5
    site.cycle(**GROW)
    site.saves(job)
    while site.step() != "confirm":
        site.cycle()
    assert site.cluster.jobs[job]["nice"] == int(GOES_FIRST["Nice"])
    goes_on(site, job)
    assert (site.cluster.jobs[job]["label"], site.cluster.jobs[job]["nice"]) == (0, 5)


def test_cpus_and_memory_grow_with_the_gpus(site: MovingSite) -> None:
    job = until_requeued(site)
    goes_on(site, job)
    assert (site.cluster.jobs[job]["cpus"], site.cluster.jobs[job]["memory"]) == (4, 2048.0)


def test_a_job_is_not_requeued_before_it_has_saved(site: MovingSite) -> None:
    job = site.training()
    site.cycle(**GROW)
    for _ in range(5):
        site.cycle()
    assert site.cluster.verbs() == ["ask"]
    site.saves(job)
    site.cycle()
    assert site.cluster.verbs() == ["ask", "reserve"]


def test_a_checkpoint_saved_before_the_request_does_not_count(site: MovingSite) -> None:
    job = site.training()
    site.saves(job)
    site.cycle()
    site.cycle(**GROW)
    site.cycle()
    assert site.step() == "save"
    site.cluster.time += 1
    site.saves(job)  # the same iteration again, saved anew
    site.cycle()
    assert site.step() == "reserve"


def test_a_checkpoint_of_an_iteration_that_was_not_reported_is_not_believed(site: MovingSite) -> None:
    job = site.training()
    site.cycle(**GROW)
    site.saves(job, 5000)
    site.cycle()
    assert site.step() == "save"
    site.cycle(101.0)
    site.cycle()
    assert site.result() == "gave up: it reported no checkpoint within its grace period"
    assert site.cluster.verbs() == ["ask", "withdraw"]


def test_a_job_whose_nodes_others_took_before_it_had_saved_may_be_resized_again(site: MovingSite) -> None:
    """Nothing was lost but the time of a checkpoint: it waits for the cooldown, not for an hour."""
    job = site.training()
    site.cycle(**GROW)
    others = {site.cluster.submit(gpus=gpus): node for node, gpus in (("n1", 2), ("n2", 4), ("n3", 4))}
    for other, node in others.items():
        site.cluster.start(other, node)
    site.saves(job)
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "no room: other jobs took its nodes meanwhile"
    assert site.cluster.jobs[job]["restarts"] == 0
    assert nothing_is_left(site)
    for other in others:
        site.cluster.end(other)
    site.cycle(**GROW)
    assert (site.vetoes(), site.step()) == ([], "save")


def test_a_declared_signal_asks_instead_of_the_file(site: MovingSite) -> None:
    job = site.training(SIGNALLED)
    site.cycle(**GROW)
    assert site.cluster.verbs() == ["signal"]
    assert dict(site.cluster.done[0].fields) == {"signal": "USR1", "to": "batch"}
    site.saves(job)
    site.cycle()
    assert site.step() == "reserve"


def test_a_job_that_saves_nothing_goes_on_untouched(site: MovingSite) -> None:
    site.training()
    site.cycle(**GROW)
    site.cycle(101.0)
    site.cycle()
    assert site.result() == "gave up: it reported no checkpoint within its grace period"
    assert nothing_is_left(site)
    assert site.cluster.jobs[1]["restarts"] == 0
    site.cycle(**GROW)
    assert "gave up moving" in site.vetoes()


def test_a_job_that_begins_again_is_told_of_and_never_requeued_any_more(site: MovingSite) -> None:
    job = until_requeued(site)
    goes_on(site, job, iteration=1)
    assert site.result() == PROGRESS_LOST
    site.cycle(kind="resize", gpus=2)
    assert "checkpoint not kept" in site.vetoes()


@pytest.mark.parametrize("step", ["save", "reserve", "requeue", "settle", "rewrite", "confirm", "watch"])
def test_a_job_that_ends_at_any_step_leaves_nothing_behind(site: MovingSite, step: str) -> None:
    job = until(site, step)
    site.cluster.end(job, "CANCELLED")
    site.cycles_until(lambda: site.step() == "ended")
    assert not site.cluster.reservations
    assert not site.cluster.requests
    assert "ended" in site.result()


def test_a_run_that_ended_first_in_the_queue_is_not_first_when_its_user_requeues_it(site: MovingSite) -> None:
    job = until(site, "confirm")
    site.cluster.end(job)
    site.cycles_until(lambda: site.step() == "ended")
    assert site.cluster.jobs[job]["nice"] == int(GOES_FIRST["Nice"])  # of an ended job Slurm changes nothing
    site.cluster.requeue(job)
    site.cycle()
    assert site.cluster.jobs[job]["nice"] == 0
    site.cycles_until(lambda: site.step() == "ended")
    assert (len(site.operations()), site.result()) == (2, "done")


def until(site: MovingSite, step: str, **wanted: Any) -> int:
    """The operation is at that step."""
    job = site.training()
    site.cycle(**(wanted or GROW))
    for _ in range(20):
        if site.step() == step:
            return job
        if site.step() == "save":
            site.saves(job)
        if site.step() == "confirm":
            site.cluster.schedule()
        site.cycle()
    raise AssertionError(f"never at {step}: {site.operations()}")


STEPS = ["save", "reserve", "requeue", "settle", "rewrite", "confirm", "free", "unreserve", "watch"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lost", [True, False])
def test_a_daemon_that_dies_at_any_step_goes_on_from_there(site: MovingSite, step: str, lost: bool) -> None:
    job = until(site, step)
    site.cluster.lose = lost
    site.cluster.crash_after = 0
    with suppress(Crash):  # some steps say nothing
        site.cycle()
    site.cluster.crash_after, site.cluster.lose = None, False
    site.restart()
    if step == "save":
        site.cluster.time += 1
        site.saves(job)
    site.cycles_until(lambda: site.cluster.jobs[job]["state"] == "RUNNING" and site.cluster.jobs[job]["restarts"] == 1)
    site.trains(job, 6)
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "done"
    assert site.cluster.jobs[job]["gpus"] == 4
    assert site.cluster.verbs().count("requeue") == 1
    assert nothing_is_left(site)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("did", [True, False], ids=["after it was done", "before"])
def test_a_scontrol_that_hangs_at_any_step_leaves_it_open_until_the_next_look(
    site: MovingSite, monkeypatch: pytest.MonkeyPatch, step: str, did: bool
) -> None:
    job = until(site, step)

    def hangs(commands: Sequence[Command]) -> list[Outcome]:
        """The spool is no client, and answers."""
        return [answer(command) for command in commands]

    def answer(command: Command) -> Outcome:
        if command.verb in ("ask", "withdraw"):
            return apply([command])[0]
        if did:
            apply([command])
        return Outcome(command.id, "unknown", "Slurm did not answer in time")

    apply = site.cluster.apply
    with monkeypatch.context() as away:
        away.setattr(site.cluster, "apply", hangs)
        site.cycle()
        if step == "save":
            site.saves(job)
        site.cycle()
    site.cycles_until(lambda: site.cluster.jobs[job]["state"] == "RUNNING" and site.cluster.jobs[job]["restarts"] == 1)
    site.trains(job, 6)
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "done"
    assert (site.cluster.jobs[job]["gpus"], site.cluster.jobs[job]["restarts"]) == (4, 1)
    assert (site.cluster.verbs().count("requeue"), site.cluster.verbs().count("reserve")) == (1, 1)
    assert nothing_is_left(site)


def test_a_refused_requeue_gives_the_place_up_and_is_no_requeue(site: MovingSite) -> None:
    job = site.training()
    site.cycle(**GROW)
    site.cluster.refuse = frozenset({"requeue"})
    site.saves(job)
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "gave up: Slurm refused to requeue it"
    assert nothing_is_left(site)
    assert site.ledger.past(site.cluster.time).requeues == ()


def test_a_refused_reservation_is_given_up_with_the_job_running(site: MovingSite) -> None:
    job = site.training()
    site.cycle(**GROW)
    site.cluster.refuse = frozenset({"reserve"})
    site.saves(job)
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "gave up: Slurm refused the reservation"
    assert site.cluster.jobs[job]["restarts"] == 0


def test_a_refused_shape_is_taken_back_since_a_part_of_it_may_be_in_place(site: MovingSite) -> None:
    until(site, "settle")
    site.cluster.jobs[1]["gpus"] = 2
    site.cluster.refuse = frozenset({"update"})
    site.cycles_until(lambda: site.step() == "undo")
    site.cluster.refuse = frozenset()
    site.cluster.jobs[1]["gpus"] = 4  # what the refused update did all the same
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "gave up: Slurm refused the change of its resources"
    assert site.cluster.jobs[1]["gpus"] == 2
    assert nothing_is_left(site)


def test_a_job_that_does_not_start_in_its_place_gets_its_shape_back_and_waits_freely(site: MovingSite) -> None:
    job = until(site, "confirm")
    site.cycle(301.0)
    for _ in range(5):
        site.cycle()
    assert site.result() == "gave up: it did not start on its reserved nodes in time"
    assert site.cluster.jobs[job]["gpus"] == 2
    assert nothing_is_left(site)


def test_a_place_that_goes_down_is_given_up_soon(site: MovingSite) -> None:
    job = until(site, "confirm")
    [place] = json.loads(site.operations()[-1]["noted"])["nodes"]
    down = [frozenset({"down"}) if name == place else frozenset({"idle"}) for name in site.cluster.nodes.name]
    site.cluster.nodes = replace(site.cluster.nodes, state=tuple(down))
    site.cycle()
    assert site.step() == "confirm"  # slurmctld may only have restarted
    for _ in range(6):
        site.cycle()
    assert site.result() == f"gave up: its reserved nodes went down ({place})"
    assert site.cluster.jobs[job]["gpus"] == 2
    assert nothing_is_left(site)


def test_a_job_that_ran_in_its_place_and_was_lost_with_its_node_waits_for_as_long_as_slurm_says(
    site: MovingSite,
) -> None:
    """Its run may not have ended there, and a launch beside it fails."""
    job = until(site, "confirm")
    site.cluster.jobs[job] |= {"restarts": site.cluster.jobs[job]["restarts"] + 1, "reason": "BeginTime"}
    for _ in range(5):
        site.cycle()
    assert site.result() == "done, and it was requeued since"
    assert site.cluster.jobs[job]["gpus"] == 4
    starts = [command for command in site.cluster.done if "StartTime" in command.fields]
    assert len(starts) == 1  # when it got its new shape
    assert nothing_is_left(site)


@pytest.mark.parametrize(("step", "starts"), [("settle", 0), ("rewrite", 1), ("unreserve", 1), ("confirm", 1)])
@pytest.mark.parametrize("kind", [GROW, MOVE])
def test_a_job_that_is_requeued_once_more_at_any_step_waits_for_as_long_as_slurm_says(
    site: MovingSite, step: str, starts: int, kind: dict[str, Any]
) -> None:
    """Slurm refuses a launch in the second of a requeue, and the job ends FAILED: nothing lets it start now."""
    job = until(site, step, **kind)
    site.cluster.jobs[job] |= {"restarts": site.cluster.jobs[job]["restarts"] + 1, "reason": "BeginTime"}
    before = len([command for command in site.cluster.done if "StartTime" in command.fields])
    for _ in range(6):
        site.cycle()
    assert before == starts
    assert len([command for command in site.cluster.done if "StartTime" in command.fields]) == starts
    assert site.step() == "ended"
    assert (site.cluster.jobs[job].get("excluded", ""), site.cluster.jobs[job]["nice"]) == ("", 0)
    assert nothing_is_left(site)


def test_what_its_user_changed_meanwhile_is_not_written_over(site: MovingSite) -> None:
    job = until(site, "settle")
    site.cluster.jobs[job]["gpus"] = 1
    for _ in range(5):
        site.cycle()
    assert site.result() == "gave up: its user or an operator changed it meanwhile (Gres)"
    assert site.cluster.jobs[job]["gpus"] == 1
    assert nothing_is_left(site)


def test_nodes_that_slurm_takes_off_a_requeued_job_are_no_change_by_its_user(site: MovingSite) -> None:
    """25.11 lowers them to those that the GPUs need a moment after the job is pending."""
    job = site.training(gpus=2, nodes=2, cpus=2)
    own = {"gres": "", "gres_per_job": "gres/gpu:2", "max_nodes": 0, "cpus_per_task": 1, "min_memory": 512.0}
    site.cluster.jobs[job]["request"] = own
    site.cycle(**GROW)
    site.saves(job)
    site.cycles_until(lambda: site.step() == "settle")
    site.cluster.jobs[job]["nodes"] = 1
    site.cycle()
    last = site.operations()[-1]
    assert (last["step"], last["result"]) == ("rewrite", "")
    assert json.loads(last["goal"])["TresPerJob"] == "gres/gpu:4"


def test_the_update_is_made_of_what_the_pending_job_requests_not_of_what_it_had_while_it_ran(site: MovingSite) -> None:
    """Whole cores, for example, which are more than its CPUs."""
    job = site.training(cpus=4)
    site.cluster.jobs[job]["cpus_per_task"] = 2
    site.cycle(**GROW)
    site.saves(job)
    site.cycles_until(lambda: site.cluster.jobs[job]["restarts"] == 1)
    site.cluster.jobs[job]["cpus"] = 2
    site.cycles_until(lambda: site.step() == "rewrite")
    [rewritten] = [command.fields for command in site.cluster.done if "StartTime" in command.fields]
    last = site.operations()[-1]
    undo, size = json.loads(last["undo"]), json.loads(last["noted"])["size"]
    assert (rewritten["NumCPUs"], undo["NumCPUs"]) == ("4", "2")
    assert (size["given_fields"]["NumCPUs"], size["asked_fields"]["NumCPUs"]) == ("4", "2")


def test_a_request_that_turns_out_to_be_unchangeable_once_it_is_pending_is_left_as_it_is(site: MovingSite) -> None:
    job = until(site, "settle")
    site.cluster.jobs[job]["request"] = {"tasks_per_gpu": 2}
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "gave up: Slurm does not let its request be changed"
    assert site.cluster.jobs[job]["gpus"] == 2
    assert nothing_is_left(site)


def test_a_job_that_ran_on_several_nodes_is_not_bound_to_the_one_that_slurm_shows_of_it(site: MovingSite) -> None:
    """Since 23.11 it shows 1-1 of a job with any number of nodes."""
    job = site.training(gpus=4, nodes=2)
    site.cluster.jobs[job]["request"] = {"gres": "", "gres_per_job": "gres/gpu:4"}
    site.cluster.jobs[job]["node_list"] = "n1,n2"
    site.cycle(kind="resize", gpus=8)
    site.saves(job)
    site.cycles_until(lambda: site.cluster.jobs[job]["restarts"] == 1)
    site.cluster.jobs[job]["request"] |= {"nodes": 1, "max_nodes": 1}
    site.cluster.refuse = frozenset({"update"})
    site.cycles_until(lambda: site.step() not in ("requeue", "settle"))
    goal = json.loads(site.operations()[-1]["goal"])
    assert (site.step(), goal["TresPerJob"], "NumNodes" in goal) == ("rewrite", "gres/gpu:8", False)


def test_a_job_that_its_user_holds_meanwhile_stays_held(site: MovingSite) -> None:
    job = until(site, "settle")
    site.cluster.jobs[job] |= {"priority": 0.0, "reason": "JobHeldUser"}
    for _ in range(5):
        site.cycle()
    assert site.result() == "withdrawn"
    assert site.cluster.jobs[job]["reason"] == "JobHeldUser"
    assert nothing_is_left(site)


def test_a_job_that_started_by_itself_meanwhile_is_left_as_it_is(site: MovingSite) -> None:
    job = until(site, "settle")
    site.cluster.start(job)
    for _ in range(5):
        site.cycle()
    assert site.result() == "gave up: it started again before it was changed"
    assert site.cluster.jobs[job]["gpus"] == 2
    assert nothing_is_left(site)


def test_after_completing_two_seconds_pass_before_the_update(site: MovingSite) -> None:
    until(site, "settle")
    site.cycle(1.9)
    assert site.step() == "settle"
    site.cycle(0.2)
    assert site.step() == "rewrite"


def test_while_it_completes_it_is_waited_for(site: MovingSite) -> None:
    job = until(site, "requeue")
    row = dict(site.cluster.jobs[job])
    submit = site.ledger.query("SELECT submit FROM jobs WHERE job_id = ?", job)[0]["submit"]
    site.cluster.jobs[job] |= {"state": "COMPLETING", "start": NOW, "submit": submit}
    for _ in range(3):
        site.cycle()
        assert site.step() == "requeue"
    site.cluster.jobs[job] = row
    site.cycle()
    assert site.step() == "settle"
    assert site.cluster.verbs().count("requeue") == 1


def test_a_pause_before_the_requeue_lets_the_job_run(site: MovingSite) -> None:
    job = until(site, "reserve")
    site.ledger.set_control("paused", "x")
    for _ in range(4):
        site.cycle()
    assert site.result() == "withdrawn"
    assert site.cluster.jobs[job]["restarts"] == 0
    assert nothing_is_left(site)


def test_a_preempted_job_waits_in_the_queue_as_it_is(site: MovingSite) -> None:
    job = site.training()
    site.cycle(**PREEMPT)
    site.saves(job)
    site.cycles_until(lambda: site.step() == "ended")
    assert site.result() == "done"
    assert [verb for verb in site.cluster.verbs() if verb != "withdraw"] == ["ask", "requeue"]
    assert site.cluster.jobs[job]["state"] == "PENDING"


def test_a_job_moves_off_its_node_and_is_let_go_where_it_waits_again(site: MovingSite) -> None:
    job = until_requeued(site, **MOVE)
    goes_on(site, job)
    assert site.result() == "done"
    assert site.cluster.jobs[job]["node_list"] != "n1"
    assert site.cluster.jobs[job]["excluded"] == "n1"
    assert site.step() == "bound"
    site.cluster.requeue(job)
    site.cycle()
    site.cycle()
    assert site.cluster.jobs[job]["excluded"] == ""
    assert site.step() == "ended"


def test_nodes_that_its_user_excluded_stay_excluded(site: MovingSite) -> None:
    job = site.training()
    site.cluster.jobs[job]["excluded"] = "n2"
    site.cycle(**MOVE)
    site.saves(job)
    site.cycles_until(lambda: site.cluster.jobs[job]["restarts"] == 1)
    goes_on(site, job)
    assert site.cluster.jobs[job]["excluded"] == "n2,n1"
    site.cluster.requeue(job)
    site.cycle()
    site.cycle()
    assert site.cluster.jobs[job]["excluded"] == "n2"


def test_a_moved_job_that_is_requeued_before_it_reported_is_not_kept_from_its_old_nodes(site: MovingSite) -> None:
    job = until_requeued(site, **MOVE)
    site.cycles_until(lambda: site.step() == "watch")
    site.cluster.requeue(job)
    site.cycle()
    site.cycle()
    assert site.cluster.jobs[job]["excluded"] == ""
    assert site.step() == "ended"


def test_a_moved_job_can_be_moved_again_and_is_kept_only_from_where_it_is_then(site: MovingSite) -> None:
    job = until_requeued(site, **MOVE)
    goes_on(site, job)
    first = site.cluster.jobs[job]["node_list"]
    site.cycle(**MOVE)
    assert site.step() == "save"
    site.cluster.time += 1
    site.saves(job, 6)
    site.cycles_until(lambda: site.cluster.jobs[job]["restarts"] == 2)
    site.cycles_until(lambda: site.step() == "watch")
    site.trains(job, 7)
    site.cycle()
    assert site.cluster.jobs[job]["excluded"] == first
    assert [row["step"] for row in site.operations()] == ["ended", "bound"]
    site.cluster.requeue(job)
    site.cycle()
    site.cycle()
    assert site.cluster.jobs[job]["excluded"] == ""


def test_a_moved_job_that_is_pending_and_resized_has_its_node_lists_restored_all_the_same(site: MovingSite) -> None:
    job = until_requeued(site, **MOVE)
    goes_on(site, job)
    assert site.step() == "bound"
    site.cluster.requeue(job)
    site.cycle(kind="resize", gpus=1)
    for _ in range(3):
        site.cycle()
    assert (site.cluster.jobs[job]["gpus"], site.cluster.jobs[job]["excluded"]) == (1, "")
    assert [row["step"] for row in site.operations()] == ["ended", "ended"]


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("kind", [PREEMPT, GROW])
def test_a_moved_job_has_its_node_lists_restored_also_by_the_operation_after_it_and_if_that_is_given_up(
    site: MovingSite, kind: dict[str, Any], saves: bool
) -> None:
    job = until_requeued(site, **MOVE)
    goes_on(site, job)
    site.cycle(**kind)
    if saves:
        site.cluster.time += 1
        site.saves(job, 6)
        site.cycles_until(lambda: site.cluster.jobs[job]["restarts"] == 2)
    else:
        site.cycles_until(lambda: site.step() not in ("save", "withdraw"))
        assert site.result() == "gave up: it reported no checkpoint within its grace period"
        site.cluster.requeue(job)
    for _ in range(4):
        site.cycle()
    assert site.cluster.jobs[job]["excluded"] == ""


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"het_id": 1}, "heterogeneous"),
        ({"reservation": "theirs"}, "in a reservation"),
        ({"request": {"requeue": False}}, "no requeue"),
        ({"request": {"gres_per_socket": "gres:gpu:2"}}, "shape"),
        ({"request": {"gres": "gres:gpu:a100:2,gres:shard:1"}}, "shape"),
    ],
)
def test_what_cannot_be_done_is_found_before_anything_is_asked(site: MovingSite, given: Any, why: str) -> None:
    job = site.training()
    site.cluster.jobs[job] |= given
    site.cycle(**GROW)
    assert site.vetoes() == [why]
    assert site.cluster.verbs() == []


def test_a_shape_that_no_node_could_serve_is_found_before(site: MovingSite) -> None:
    site.training()
    site.cycle(kind="resize", gpus=7)
    assert site.vetoes() == ["no nodes"]


def test_a_place_that_others_have_now_is_not_asked_for(site: MovingSite) -> None:
    site.training()
    site.cluster.nodes = replace(site.cluster.nodes, gpus_used=({"": 4}, {"": 3}, {"": 3}))
    site.cycle(**GROW)
    assert site.vetoes() == ["no place"]


def test_a_limit_that_would_hold_it_is_found_before(site: MovingSite) -> None:
    site.cluster.limited = Limits(qos={"normal": QosLimits(user={"gres/gpu": 3})})
    site.training()
    site.cycle(**GROW)
    assert site.vetoes() == ["limit"]
    assert site.cluster.verbs() == []


def test_a_stop_does_not_wait_until_it_is_known_where_a_job_went_on(site: MovingSite) -> None:
    until(site, "watch")
    site.cycle(kind="stop")
    assert [(row["kind"], row["step"]) for row in site.operations()] == [("resize", "ended"), ("stop", "ask")]


def test_a_frozen_cycle_leaves_an_operation_where_it_is(site: MovingSite) -> None:
    until(site, "reserve")
    done = len(site.cluster.done)
    record = site.cycle(after=-60.0)
    assert record.verdict.frozen is not None
    assert len(site.cluster.done) == done
    assert site.step() == "reserve"


def test_what_a_job_asked_cannot_be_read_so_nothing_begins(site: MovingSite, monkeypatch: Any) -> None:
    site.training()
    monkeypatch.setattr(site.cluster, "resource_requests", lambda job_ids: {})
    site.cycle(**GROW)
    assert site.vetoes() == ["not known"]


def test_a_new_daemon_requeues_nobody_whom_it_sees_for_the_first_time(make_site: MakeSite) -> None:
    site = make_site(guardrails={"first_seen": 60.0})
    site.training()
    site.cycle(**PREEMPT)
    site.cycle(after=50.0, **PREEMPT)
    assert (site.vetoes(), site.operations()) == (["first seen"], [])
    site.cycle(after=11.0, **PREEMPT)
    assert site.step() == "save"


def test_a_requeue_that_was_said_counts_once(site: MovingSite) -> None:
    job = until_requeued(site)
    goes_on(site, job)
    past = site.ledger.past(site.cluster.time)
    assert [(each.job.job_id, each.user) for each in past.requeues] == [(job, "ada")]
    assert np.isfinite(past.requeues[0].at)


def test_two_jobs_that_move_at_once_choose_places_of_their_own(site: MovingSite) -> None:
    jobs = [site.training(), site.training()]
    site.cluster.start(jobs[1], "n2")
    site.policy.wanted = dict.fromkeys(jobs, MOVE)
    site.cycle()
    site.policy.wanted = {}
    for job in jobs:
        site.saves(job)
    site.cycle()
    assert [row["step"] for row in site.operations()] == ["reserve", "reserve"]
    first, second = (each.nodes for each in site.cluster.reservations)
    assert first.isdisjoint(second)


def test_a_reservation_that_overlaps_is_made_elsewhere(site: MovingSite) -> None:
    job = site.training()
    site.cycle(**MOVE)
    site.saves(job)
    taken = Reservation(
        "theirs", frozenset({"n2"}), frozenset(), frozenset(), site.cluster.time, site.cluster.time + 1e6
    )
    read = site.cluster.read

    def late(known: Any, alive: Any) -> Any:
        seen = read(known, alive)
        site.cluster.reservations = [taken, *site.cluster.reservations]
        site.cluster.read = read  # type: ignore[method-assign]
        return seen

    site.cluster.read = late  # type: ignore[method-assign]
    site.cycle()
    assert site.step() == "reserve"
    site.cycle()
    assert [each.name for each in site.cluster.reservations] == ["theirs", "slurmplug-1"]
    assert site.cluster.reservations[1].nodes == {"n3"}


def test_a_run_that_told_no_point_is_seen_alike_by_a_daemon_that_stays_and_one_that_restarts(site: MovingSite) -> None:
    job = until_requeued(site)
    site.cycles_until(lambda: site.step() == "watch")
    site.saves(job, 5)  # the new run says that, and no iteration
    stays = site.cycle().snapshot.jobs
    site.restart()
    restarted = site.cycle().snapshot.jobs
    for column in ("resumed", "checkpoint", "checkpointed", "iteration", "reported"):
        np.testing.assert_array_equal(getattr(stays, column), getattr(restarted, column))
    assert np.isnan(restarted.resumed[0])
    assert site.step() == "watch"
