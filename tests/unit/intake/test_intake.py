"""Readings become snapshots: which row is which job, what it asks for, what it has reported, and what is new."""

import json
from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey, Snapshot
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Ending
from slurmplug.cluster.scripts import ScriptReader
from slurmplug.intake.columns import jobs_of
from slurmplug.intake.intake import ENDING_TIMEOUT, PARTIAL_SECONDS, Intake
from slurmplug.intake.job_record import Changes
from slurmplug.intake.report_points import POINTS_PER_READING
from slurmplug.ledger.ledger import Ledger
from slurmplug.spool.report_lines import MAX_POINTS
from slurmplug.spool.trials import MAX_TRIALS
from slurmplug.spool.values import SpoolFault
from tests.builders import CLUSTER, NOW
from tests.fake_cluster import NAN, SCRIPT, job_row, reading, report

RUNNING: dict[str, Any] = {"state": "RUNNING", "start": NOW, "node_list": "n1", "reason": "None"}


class Looks:
    """An intake, and the looks it takes, a minute after each other."""

    def __init__(self) -> None:
        self.intake = Intake()
        self.cycle = 0
        self.now = NOW

    def look(self, *rows: dict[str, Any], after: float = 60.0, **brought: Any) -> tuple[Snapshot, Changes]:
        self.now += after
        self.cycle += 1
        brought.setdefault("scripts", {row["job_id"]: SCRIPT for row in rows if row["batch"]})
        return self.intake.absorb(reading(*rows, now=self.now, **brought), self.cycle)


class Client(CliClient):
    """Has the same script for every job."""

    def __init__(self) -> None:
        super().__init__(None, None, 1.0)

    def script(self, job_id: int) -> bytes:
        return SCRIPT


@pytest.fixture
def looks() -> Looks:
    return Looks()


def key(job_id: int, submit: float = NOW) -> JobKey:
    return JobKey(CLUSTER, job_id, int(submit))


# --- which job is it ------------------------------------------------------------------------------------------------


def test_an_empty_queue_is_an_empty_snapshot(looks: Looks) -> None:
    snapshot, changes = looks.look()
    assert len(snapshot.jobs) == 0
    assert snapshot.nodes.names == ("n1", "n2")
    assert (changes.records, changes.points) == ((), ())


def test_a_job_that_did_not_change_is_told_once(looks: Looks) -> None:
    assert len(looks.look(job_row(1))[1].records) == 1
    assert looks.look(job_row(1))[1].records == ()
    assert len(looks.look(job_row(1, reason="Resources"))[1].records) == 1


def test_a_changed_priority_alone_is_in_the_snapshot_and_not_in_the_ledger(looks: Looks) -> None:
    looks.look(job_row(1, priority=10.0))
    snapshot, changes = looks.look(job_row(1, priority=12.0))
    assert snapshot.jobs.priority.tolist() == [12.0]
    assert changes.records == ()


@pytest.mark.parametrize(("ours", "surplus"), [(False, 282.0), (True, 0.0)])
def test_what_a_change_of_the_request_adds_is_a_surplus_unless_slurmplug_made_it(
    looks: Looks, ours: bool, surplus: float
) -> None:
    looks.look(job_row(1, gpus=2, priority=1000.0))
    looks.intake.set_site_factors({key(1): 500.0})
    looks.look(job_row(1, gpus=2, priority=1500.0))
    looks.intake.set_changed_requests([key(1)] if ours else [])
    snapshot, _ = looks.look(job_row(1, gpus=4, priority=1782.0))
    assert snapshot.jobs.surplus.tolist() == [surplus]


def test_rows_are_in_the_order_of_the_reading_whatever_ended_between(looks: Looks) -> None:
    snapshot, _ = looks.look(job_row(3), job_row(1, state="COMPLETED"), job_row(2, **RUNNING))
    assert [key.job_id for key in snapshot.jobs.keys] == [3, 2]
    assert snapshot.jobs.priority.shape == (2,)


def test_a_requeue_keeps_the_key_and_adds_up_what_was_waited_and_attained(looks: Looks) -> None:
    waits = job_row(1, gpus=4)
    assert looks.look(waits)[0].jobs.waited.tolist() == [60.0]
    runs = waits | RUNNING | {"start": NOW + 100.0}
    assert looks.look(runs)[0].jobs.waited.tolist() == [100.0]
    again = job_row(1, gpus=4, restarts=1, submit=NOW + 160.0, eligible=NOW + 280.0)
    snapshot, _ = looks.look(again, after=60.0)
    assert snapshot.jobs.keys == (key(1),)
    assert snapshot.jobs.submitted.tolist() == [NOW]
    assert snapshot.jobs.restarts.tolist() == [1]
    assert (snapshot.jobs.waited.tolist(), snapshot.jobs.attained.tolist()) == ([100.0], [240.0])
    snapshot, _ = looks.look(again | RUNNING | {"start": NOW + 300.0}, after=180.0)
    assert (snapshot.jobs.waited.tolist(), snapshot.jobs.attained.tolist()) == ([120.0], [240.0 + 4 * 60.0])


def test_a_requeued_job_is_of_the_run_before_until_that_has_completed(looks: Looks) -> None:
    """As on Slurm 22.05: the restart counts at once, the submission moves and the start comes back afterwards."""
    looks.look(job_row(1, gpus=2, **RUNNING))
    completing = job_row(1, gpus=2, restarts=1, state="COMPLETING", start=NOW + 120.0, node_list="n1")
    snapshot, _ = looks.look(completing, reports={1: report(iteration=3, loss=0.5)})
    assert (snapshot.jobs.state.tolist(), snapshot.jobs.restarts.tolist()) == (["completing"], [0])
    assert snapshot.jobs.attained.tolist() == [240.0]
    assert snapshot.jobs.iteration.tolist() == [3.0]
    pending = job_row(1, gpus=2, restarts=1, submit=NOW + 130.0, eligible=NOW + 250.0)
    snapshot, _ = looks.look(pending)
    assert (snapshot.jobs.state.tolist(), snapshot.jobs.restarts.tolist()) == (["pending"], [1])
    assert snapshot.jobs.attained.tolist() == [260.0]


def test_the_time_for_which_a_job_was_suspended_is_neither_elapsed_nor_attained(looks: Looks) -> None:
    runs = job_row(1, gpus=4) | RUNNING
    snapshot, _ = looks.look(runs | {"suspended": 20.0})
    assert (snapshot.elapsed.tolist(), snapshot.jobs.attained.tolist()) == ([40.0], [160.0])
    looks.look(runs | {"state": "SUSPENDED", "suspended": 80.0})
    snapshot, _ = looks.look(runs | {"suspended": 80.0})
    assert (snapshot.elapsed.tolist(), snapshot.jobs.attained.tolist()) == ([100.0], [400.0])
    requeued = job_row(1, gpus=4, restarts=1, submit=NOW + 180.0, eligible=NOW + 300.0)
    snapshot, _ = looks.look(requeued)
    assert (snapshot.elapsed.tolist(), snapshot.jobs.attained.tolist()) == ([0.0], [400.0])


def test_a_suspension_that_squeue_rounds_is_told_once(looks: Looks) -> None:
    """The seconds of a running job are too few by as many as squeue took."""
    runs = job_row(1) | RUNNING
    looks.look(runs | {"suspended": 30.0})
    snapshot, changes = looks.look(runs | {"suspended": 28.0})
    assert (snapshot.jobs.suspended.tolist(), changes.records) == ([30.0], ())
    _, changes = looks.look(runs | {"suspended": 31.0})
    assert [record.facts.suspended for record in changes.records] == [31.0]


def test_how_long_a_job_was_suspended_that_slurm_forgot_is_as_the_accounting_says(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    _, changes = looks.look(endings=[Ending(1, "COMPLETED", NOW + 5.0, NOW + 65.0, 0, suspended=12.0)])
    assert [record.facts.suspended for record in changes.records] == [12.0]


def test_a_completed_job_that_an_operator_requeues_attained_nothing_in_between(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    looks.look(job_row(1, **RUNNING | {"state": "COMPLETED", "end": NOW + 100.0}))
    snapshot, changes = looks.look(job_row(1, restarts=1, submit=NOW + 170.0))
    assert snapshot.jobs.attained.tolist() == [100.0]
    assert [record.facts.live for record in changes.records] == [True]


@pytest.mark.parametrize(
    "another",
    [{"uid": 1002, "restarts": 1}, {"restarts": 0}, {"restarts": 0, "state": "COMPLETED"}],
    ids=["of another user", "of the same user", "over already"],
)
def test_a_job_id_that_is_used_again_is_another_job(looks: Looks, another: dict[str, Any]) -> None:
    looks.look(job_row(1, restarts=1, **RUNNING), reports={1: report(iteration=5, loss=0.5)})
    new = job_row(1, submit=NOW + 1e6, **another)
    snapshot, changes = looks.look(new, after=1e6)
    assert {record.key: (record.facts.state, record.listed) for record in changes.records} == {
        key(1): ("UNKNOWN", False),
        key(1, NOW + 1e6): (new["state"], True),
    }
    assert snapshot.jobs.iteration.tolist() == [0.0] * len(snapshot.jobs)


def test_a_job_id_whose_new_job_was_never_requeued_is_another_job(looks: Looks) -> None:
    """As when slurmctld lost its state: same user, same restart count, and the old job was alive when last seen."""
    looks.look(job_row(1, **RUNNING), reports={1: report(iteration=5, accuracy=0.95)})
    snapshot, changes = looks.look(job_row(1, submit=NOW + 90.0), scripts={1: b"#!/bin/sh\ntrain\n"})
    assert {record.key: record.facts.state for record in changes.records} == {
        key(1): "UNKNOWN",
        key(1, NOW + 90.0): "PENDING",
    }
    assert (snapshot.jobs.managed.tolist(), snapshot.jobs.iteration.tolist()) == ([False], [0.0])


def test_nothing_is_done_to_a_job_whose_identity_is_in_doubt_until_its_script_was_read(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    requeued = job_row(1, submit=NOW + 90.0, restarts=1)
    snapshot, changes = looks.look(requeued, scripts={})
    assert (snapshot.jobs.keys, snapshot.jobs.managed.tolist()) == ((key(1),), [False])
    assert [record.in_doubt for record in changes.records] == [True]
    assert (1, int(NOW + 90.0)) not in looks.intake.known
    snapshot, changes = looks.look(requeued)
    assert (snapshot.jobs.keys, snapshot.jobs.managed.tolist()) == ((key(1),), [True])
    assert [record.in_doubt for record in changes.records] == [False]
    assert (1, int(NOW + 90.0)) in looks.intake.known


def test_the_script_of_an_array_is_read_once_more_for_an_element_that_is_requeued_in_the_same_second(
    looks: Looks,
) -> None:
    first, last = ({"array_id": 10, "array_task": task} for task in (1, 2))
    again = {"submit": NOW + 90.0, "restarts": 1}
    looks.look(job_row(11, **first, **RUNNING), job_row(10, **last, **RUNNING))
    looks.look(job_row(11, **first, **{**RUNNING, "state": "COMPLETING"}), job_row(10, **last, **again))
    both = job_row(11, **first, **again), job_row(10, **last, **again)
    snapshot, _ = looks.look(*both, scripts={})
    assert snapshot.jobs.managed.tolist() == [False, True]
    reader = ScriptReader(Client(), NOW)
    scripts = reader.read(reading(*both).jobs, looks.intake.known, NOW + 200.0).scripts
    assert looks.look(*both, scripts=scripts)[0].jobs.managed.tolist() == [True, True]


def test_a_doubted_job_with_another_script_is_another_job(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    requeued = job_row(1, submit=NOW + 90.0, restarts=1)
    looks.look(requeued, scripts={})
    snapshot, changes = looks.look(requeued, scripts={1: b"#!/bin/sh\n#PLUG --urgency=3\n"})
    assert snapshot.jobs.keys == (key(1, NOW + 90.0),)
    assert (snapshot.jobs.urgency.tolist(), snapshot.jobs.managed.tolist()) == ([3.0], [True])
    assert {record.key: record.listed for record in changes.records} == {key(1): False, key(1, NOW + 90.0): True}


def test_a_doubt_outlives_the_daemon(looks: Looks, ledger_in_memory: Ledger) -> None:
    for row in (job_row(1, **RUNNING), job_row(1, submit=NOW + 90.0, restarts=1)):
        _, changes = looks.look(row, scripts={1: SCRIPT} if row["restarts"] == 0 else {})
        with ledger_in_memory._transaction():
            ledger_in_memory._write_changes(changes)
    looks.intake = Intake(ledger_in_memory.live_records())
    snapshot, _ = looks.look(job_row(1, submit=NOW + 90.0, restarts=1), scripts={})
    assert snapshot.jobs.managed.tolist() == [False]
    snapshot, _ = looks.look(job_row(1, submit=NOW + 90.0, restarts=1), scripts={1: b"#!/bin/sh\n"})
    assert snapshot.jobs.keys == (key(1, NOW + 90.0),)


def test_after_a_restart_what_an_earlier_job_of_the_id_reported_is_not_taken_again(
    looks: Looks, ledger_in_memory: Ledger
) -> None:
    """The daemon reads the file from its beginning, and the last line that it knows of the earlier job is among it."""
    old = reports(range(1, 4), accuracy=0.95)
    _, changes = looks.look(job_row(1, **RUNNING), reports={1: old})
    with ledger_in_memory._transaction():
        ledger_in_memory._write_changes(changes)
    looks.intake = Intake(ledger_in_memory.live_records())
    new = job_row(1, submit=NOW + 90.0, **RUNNING | {"start": NOW + 95.0})
    snapshot, changes = looks.look(new, reports={1: old + report(time=NOW + 99.0, iteration=1, accuracy=0.1)})
    assert snapshot.jobs.accuracies.values.tolist() == [0.1]
    assert [point.key for point in changes.points] == [key(1, NOW + 90.0)]


def test_an_element_takes_nothing_over_from_an_earlier_array_of_the_same_id(looks: Looks) -> None:
    looks.look(job_row(7, array_id=7, elements=3))
    looks.intake.set_site_factors({key(7): 500.0})
    element = job_row(8, array_id=7, array_task=1, submit=NOW + 90.0, **RUNNING)
    snapshot, _ = looks.look(element, scripts={8: b"#!/bin/sh\ntrain\n"})
    assert (snapshot.jobs.managed.tolist(), snapshot.jobs.site_factor.tolist()) == ([False], [0.0])


def test_the_accounting_of_an_earlier_job_of_the_id_does_not_end_this_one(looks: Looks) -> None:
    looks.look(job_row(1, submit=NOW + 90.0, **RUNNING))
    looks.look(endings=[Ending(1, "COMPLETED", NOW + 5.0, NOW + 65.0, 0)])
    assert set(looks.intake.alive) == {1}


def test_an_ended_job_whose_script_was_never_read_is_not_managed_and_told_once(looks: Looks) -> None:
    over = job_row(1, **RUNNING | {"state": "COMPLETED", "end": NOW + 5.0})
    assert len(looks.look(over, scripts={})[1].records) == 1
    assert looks.look(over, scripts={})[1].records == ()


def test_an_ended_job_leaves_and_is_told_once_more_when_slurm_forgets_it(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    ended = job_row(1, **RUNNING | {"state": "FAILED", "end": NOW + 90.0, "exit_code": 1})
    snapshot, changes = looks.look(ended)
    assert len(snapshot.jobs) == 0
    assert [(record.facts.state, record.listed) for record in changes.records] == [("FAILED", True)]
    assert looks.look(ended)[1].records == ()
    assert [(r.facts.state, r.listed) for r in looks.look()[1].records] == [("FAILED", False)]
    assert looks.look()[1].records == ()
    assert set(looks.intake.alive) == set()


def test_a_job_that_slurm_forgot_ends_as_the_accounting_says(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    assert set(looks.intake.alive) == {1}
    _, changes = looks.look(endings=[Ending(1, "TIMEOUT", NOW + 5.0, NOW + 65.0, 0)])
    [record] = changes.records
    assert (record.facts.state, record.facts.start, record.facts.end) == ("TIMEOUT", NOW + 5.0, NOW + 65.0)
    assert not record.listed
    assert set(looks.intake.alive) == set()


@pytest.mark.parametrize("endings", [[], [Ending(1, "RUNNING", NOW, NAN, 0)]], ids=["says nothing", "says it runs"])
def test_a_job_that_nobody_knows_is_waited_for_and_then_unknown(looks: Looks, endings: list[Ending]) -> None:
    looks.look(job_row(1, **RUNNING))
    last = looks.now
    for _ in range(3):
        snapshot, _ = looks.look(endings=endings, after=ENDING_TIMEOUT / 3)
        assert len(snapshot.jobs) == 0
        assert set(looks.intake.alive) == {1}
    _, changes = looks.look(endings=endings, after=1.0)
    assert [(r.facts.state, r.facts.end, r.listed) for r in changes.records] == [("UNKNOWN", last, False)]
    assert set(looks.intake.alive) == set()


def test_a_job_that_squeue_has_not_listed_for_long_is_gone_also_while_slurmdbd_does_not_answer(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    missing = [looks.look(after=PARTIAL_SECONDS / 2)[0].missing for _ in range(3)]
    assert missing == [1, 0, 0]
    assert set(looks.intake.alive) == {1}, "how it ended is still asked for"


def test_a_job_that_was_away_for_one_look_is_the_same_job(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING), reports={1: report(iteration=5)})
    looks.look()
    snapshot, _ = looks.look(job_row(1, **RUNNING))
    assert snapshot.jobs.iteration.tolist() == [5.0]


# --- what it asks for -----------------------------------------------------------------------------------------------


def test_a_script_is_asked_for_until_it_was_read(looks: Looks) -> None:
    snapshot, _ = looks.look(job_row(1), scripts={})
    assert not snapshot.jobs.managed.any()
    assert (1, int(NOW)) not in looks.intake.known
    snapshot, changes = looks.look(job_row(1))
    assert snapshot.jobs.managed.all()
    assert len(changes.records) == 1
    assert (1, int(NOW)) in looks.intake.known


def test_a_comment_counts_from_the_first_look_and_not_when_it_changes(looks: Looks) -> None:
    snapshot, _ = looks.look(job_row(1, comment="plug: urgency=9"), scripts={1: b""})
    assert snapshot.jobs.urgency.tolist() == [9.0]
    snapshot, _ = looks.look(job_row(1, comment="plug: urgency=2"))
    assert snapshot.jobs.urgency.tolist() == [9.0]


def test_a_utility_told_by_hours_is_one_by_seconds_to_policies(looks: Looks) -> None:
    scripts = {1: b"#PLUG --utility=50,36,0.5\n", 2: b""}
    jobs = looks.look(job_row(1), job_row(2), scripts=scripts)[0].jobs
    assert jobs.utility[0] == pytest.approx([50.0, 0.01, 1800.0])
    assert np.isnan(jobs.utility[1]).all()


@pytest.mark.parametrize(
    ("script", "row", "managed"),
    [
        (SCRIPT, {}, True),
        (b"#!/bin/sh\n#PLUG --urgncy=3\ntrain\n", {}, False),
        (b"#!/bin/sh\n#PLUG --urgncy=3 --type=mlp\ntrain\n", {}, True),
        (b"#!/bin/sh\ntrain\n", {}, False),
        (b"", {}, False),
        (b"#!/bin/sh\n#PLUG --urgency=9 --manage=off\n", {}, False),
        (b"", {"batch": False, "comment": "plug: urgency=9"}, False),
    ],
    ids=[
        "directives",
        "a mistaken one",
        "one that is mistaken and one that is not",
        "none",
        "no script",
        "manage=off",
        "interactive",
    ],
)
def test_what_puts_a_job_into_slurmplugs_hands(looks: Looks, script: bytes, row: dict[str, Any], managed: bool) -> None:
    snapshot, _ = looks.look(job_row(1, **row), scripts={1: script} if row.get("batch", True) else {})
    assert snapshot.jobs.managed.tolist() == [managed]
    assert snapshot.jobs.interactive.tolist() == [not row.get("batch", True)]


def test_elements_of_an_array_have_its_directives_and_its_label(looks: Looks) -> None:
    array = job_row(7, array_id=7, elements=3)
    snapshot, _ = looks.look(array)
    assert snapshot.jobs.elements.tolist() == [3]
    looks.intake.set_site_factors({key(7): 500.0})
    element = job_row(8, array_id=7, array_task=1, **RUNNING)
    snapshot, _ = looks.look(element, array | {"elements": 2}, scripts={})
    assert snapshot.jobs.keys == (key(8), key(7))
    assert snapshot.jobs.target.tolist() == [0.9, 0.9]
    assert snapshot.jobs.site_factor.tolist() == [500.0, 500.0]


def test_an_element_that_stands_before_its_array_waits_for_no_second_look(looks: Looks) -> None:
    rows = job_row(8, array_id=7, array_task=1), job_row(7, array_id=7)
    snapshot, _ = looks.look(*rows, scripts={7: SCRIPT})
    assert snapshot.jobs.managed.all()


def test_elements_whose_array_is_over_have_scripts_of_their_own(looks: Looks) -> None:
    snapshot, _ = looks.look(job_row(8, array_id=7, array_task=1), scripts={8: SCRIPT})
    assert snapshot.jobs.target.tolist() == [0.9]


def test_components_of_a_heterogeneous_job_are_one_ml_job_with_the_leaders_directives(looks: Looks) -> None:
    snapshot, _ = looks.look(job_row(4), job_row(9, het_id=9), job_row(10, het_id=9), scripts={9: SCRIPT})
    assert snapshot.jobs.ml_job.tolist() == [0, 1, 1]
    assert snapshot.jobs.target.tolist()[1:] == [0.9, 0.9]


def test_jobs_of_one_user_with_one_name_are_an_ml_job(looks: Looks) -> None:
    script = b"#PLUG --ml-job=net\n"
    rows = [job_row(1), job_row(2, uid=1002), job_row(3), job_row(4, het_id=4)]
    snapshot, _ = looks.look(*rows, scripts=dict.fromkeys([1, 2, 3], script))
    assert snapshot.jobs.ml_job.tolist() == [0, 1, 0, 3]


def test_dependencies_become_edges_to_the_jobs_that_are_there(looks: Looks) -> None:
    snapshot, _ = looks.look(
        job_row(1),
        job_row(2, array_id=2, elements=4),
        job_row(3, dependency="afterok:1(unfulfilled):2_*(unfulfilled),afterany:99(unfulfilled)?afternotok:2+10"),
        job_row(4, dependency="singleton(unfulfilled)"),
        job_row(5, dependency="aftercorr:²:1x:,:::"),
        job_row(6, reason="DependencyNeverSatisfied"),
    )
    assert snapshot.jobs.parents.tolist() == [[2, 0], [2, 1], [2, 1], [5, -1]]


def test_hostile_names_and_comments_stay_one_value_of_one_job(looks: Looks) -> None:
    nasty = "x\n2|99|root\x1f\t'; DROP TABLE jobs; -- \u202e" + "y" * 100_000
    snapshot, _ = looks.look(
        job_row(1, name=nasty, comment="plug: urgency=9 " + nasty), job_row(2, dependency="afterok:" + "1:" * 50_000)
    )
    assert len(snapshot.jobs) == 2
    assert snapshot.jobs.name.tolist() == [nasty[:128], "train"]
    assert snapshot.jobs.name.nbytes < 2_000


def test_held_jobs_are_known_by_their_reason_or_by_priority_zero(looks: Looks) -> None:
    rows = [
        job_row(1, reason="JobHeldUser", priority=0.0),
        job_row(2, reason="JobHeldAdmin", priority=0.0),
        job_row(3, reason="JobHoldMaxRequeue", priority=0.0),
        job_row(4, reason="Priority"),
        job_row(5, priority=0.0, **RUNNING),
    ]
    assert looks.look(*rows)[0].jobs.held.tolist() == [True, True, True, False, False]


def test_where_slurm_is_ahead_of_the_clock_nothing_is_negative(looks: Looks) -> None:
    jobs = looks.look(job_row(1, **RUNNING | {"start": NOW + 1e4, "eligible": NOW + 2e4}))[0].jobs
    assert (jobs.waited.tolist(), jobs.attained.tolist()) == ([0.0], [0.0])


def test_allocations_spread_the_gpus_of_a_job_over_its_nodes(looks: Looks) -> None:
    snapshot, _ = looks.look(
        job_row(1, **RUNNING | {"node_list": "n[1-2]", "gpus": 3}),
        job_row(2),
        job_row(3, **RUNNING | {"node_list": "gone[1-2],n2"}),
        job_row(4, **RUNNING | {"state": "SUSPENDED"}),
    )
    assert snapshot.runs_on.tolist() == [[0, 0, 1], [0, 1, 2], [2, 1, 1], [3, 0, 1]]
    assert snapshot.jobs.state.tolist() == ["running", "pending", "running", "suspended"]


# --- what it has reported -------------------------------------------------------------------------------------------


def reports(iterations: range, **quantities: float) -> bytes:
    return b"".join(report(time=NOW + i, iteration=i, **quantities) for i in iterations)


def test_reports_become_curves_the_lower_ones_upside_down(looks: Looks) -> None:
    rows = [job_row(1, **RUNNING), job_row(2, **RUNNING), job_row(3, **RUNNING)]
    scripts = {1: SCRIPT, 2: b"#PLUG --target=perplexity<=12\n", 3: b""}
    said = report(iteration=1, loss=3.0, perplexity=20, accuracy=0.1) + report(iteration=2, perplexity=15, accuracy=0.2)
    jobs = looks.look(*rows, scripts=scripts, reports={1: said, 2: said})[0].jobs
    assert jobs.accuracies.row(0)[1].tolist() == [0.1, 0.2]
    assert jobs.accuracies.row(1)[1].tolist() == [-20.0, -15.0]
    assert jobs.target.tolist()[:2] == [0.9, -12.0]
    assert jobs.losses.row(0)[0].tolist() == [1.0]
    assert jobs.accuracies.lengths().tolist() == [2, 2, 0]
    assert jobs.iteration.tolist() == [2.0, 2.0, 0.0]
    assert np.isnan(jobs.reported[2])


def test_reports_of_jobs_that_are_not_there_and_faults_of_the_spool_stop_nothing(looks: Looks) -> None:
    fault = SpoolFault(1, "owner", "uid 5", 1)
    _, changes = looks.look(job_row(1), reports={99: b"{}", 1: b"\xff\nnull\n"}, faults=[fault])
    assert changes.points == ()
    assert changes.faults == (fault, SpoolFault(1, "unreadable line", "", 2))


def test_a_run_that_went_on_from_a_checkpoint_replaces_what_it_repeats(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING), reports={1: reports(range(1, 9), loss=1.0) + report(checkpoint=5)})
    again = job_row(1, restarts=1, submit=NOW + 70.0, **RUNNING | {"start": NOW + 80.0})
    snapshot, _ = looks.look(again)
    assert (snapshot.jobs.iteration.tolist(), snapshot.jobs.checkpoint.tolist()) == ([8.0], [5.0])
    snapshot, _ = looks.look(again, reports={1: reports(range(6, 8), loss=2.0)})
    assert snapshot.jobs.losses.row(0)[0].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert snapshot.jobs.losses.row(0)[1].tolist() == [1, 1, 1, 1, 1, 2, 2]
    assert (snapshot.jobs.iteration.tolist(), snapshot.jobs.checkpoint.tolist()) == ([7.0], [5.0])


def test_a_job_that_reports_every_step_is_thinned_and_keeps_what_it_tells_seldom(looks: Looks) -> None:
    said = (
        reports(range(1, 778), loss=1.0)
        + report(iteration=778, loss=1.0, accuracy=0.5)
        + reports(range(779, 3_000), loss=1.0)
    )
    snapshot, changes = looks.look(job_row(1, **RUNNING), reports={1: said})
    iterations, _ = snapshot.jobs.losses.row(0)
    assert POINTS_PER_READING <= len(iterations) <= POINTS_PER_READING + 1
    assert (iterations[0], iterations[-1]) == (1.0, 2999.0)
    assert snapshot.jobs.accuracies.row(0)[0].tolist() == [778.0]
    assert sorted(point.iteration for point in changes.points) == iterations.tolist()


def test_a_point_that_is_told_more_of_is_told_again(looks: Looks) -> None:
    lines = report(time=NOW, iteration=1, loss=0.5)
    looks.look(job_row(1, **RUNNING), reports={1: lines})
    assert looks.look(job_row(1, **RUNNING), reports={1: lines})[1].points == ()
    _, changes = looks.look(job_row(1, **RUNNING), reports={1: report(time=NOW, iteration=1, accuracy=0.1)})
    assert [point.quantities for point in changes.points] == [{"loss": 0.5, "accuracy": 0.1}]


def test_points_that_a_long_run_drops_are_named(looks: Looks) -> None:
    kept: set[float] = set()
    for start in range(1, MAX_POINTS + 2 * POINTS_PER_READING, POINTS_PER_READING):
        said = reports(range(start, start + POINTS_PER_READING), loss=1.0)
        snapshot, changes = looks.look(job_row(1, **RUNNING), reports={1: said})
        kept |= {point.iteration for point in changes.points if point.quantities is not None}
        kept -= {point.iteration for point in changes.points if point.quantities is None}
        assert sorted(kept) == snapshot.jobs.losses.row(0)[0].tolist()
    assert len(kept) < MAX_POINTS


def test_a_new_checkpoint_is_told_although_no_point_is(looks: Looks) -> None:
    looks.look(job_row(1, **RUNNING))
    snapshot, changes = looks.look(job_row(1, **RUNNING), reports={1: report(checkpoint=3)})
    assert snapshot.jobs.checkpoint.tolist() == [3.0]
    assert (len(changes.records), changes.points) == (1, ())


def test_the_time_of_an_iteration_is_that_of_this_run(looks: Looks) -> None:
    said = [report(time=NOW - 1000.0 + i * (10.0 if i > 100 else 1.0), iteration=i) for i in range(120)]
    row = job_row(1, **RUNNING | {"start": NOW + 5.0})
    snapshot, _ = looks.look(row, reports={1: b"".join(said)}, after=1e4)
    assert snapshot.jobs.iteration_time.tolist() == [10.0]
    assert np.isnan(looks.look(row | {"start": NOW + 5e3})[0].jobs.iteration_time[0])


# --- what was not written, and what a restart knows -----------------------------------------------------------------


def test_changes_that_were_never_written_come_with_the_next_ones(looks: Looks) -> None:
    _, first = looks.look(
        job_row(1), job_row(2), reports={1: reports(range(1, 4), loss=1.0)}, faults=[SpoolFault(0, "spool", "", 1)]
    )
    _, second = looks.look(job_row(1, **RUNNING), job_row(2), reports={1: reports(range(3, 5), loss=2.0)})
    both = second.after(first)
    assert {record.key.job_id: record.facts.state for record in both.records} == {1: "RUNNING", 2: "PENDING"}
    assert [(p.iteration, p.quantities) for p in both.points] == [
        (i, {"loss": 1.0 + (i > 2)}) for i in (1.0, 2.0, 3.0, 4.0)
    ]
    assert (both.faults, both.now) == (
        (SpoolFault(0, "spool", "", 1), SpoolFault(1, "repeated iteration", "", 1)),
        second.now,
    )
    assert second.after(None) is second


def written(ledger: Ledger, changes: Changes) -> list[dict[str, Any]]:
    with ledger._transaction():
        ledger._write_changes(changes)
    return ledger.query("SELECT * FROM jobs ORDER BY id")


def test_a_daemon_that_restarts_goes_on_with_jobs_that_ended_but_are_still_listed(
    looks: Looks, ledger_in_memory: Ledger
) -> None:
    looks.look(job_row(1))
    rows = job_row(1, restarts=1, submit=NOW + 100.0, **RUNNING | {"start": NOW + 230.0})
    _, first = looks.look(rows, after=200.0)
    written(ledger_in_memory, first)
    ended = rows | {"state": "COMPLETED", "end": NOW + 300.0}
    before = written(ledger_in_memory, looks.look(ended)[1])
    assert json.loads(before[0]["directives"])["target"]["value"] == 0.9
    looks.intake = Intake(ledger_in_memory.live_records())
    _, changes = looks.look(ended)
    assert changes.records == ()
    written(ledger_in_memory, looks.look()[1])
    assert looks.look()[1].records == ()
    assert ledger_in_memory.live_records() == []
    [row] = ledger_in_memory.query("SELECT first_submit, listed, ended FROM jobs")
    assert row == {"first_submit": int(NOW), "listed": 0, "ended": 1}


def test_a_daemon_that_restarts_folds_nothing_twice_although_it_reads_from_the_beginning(
    looks: Looks, ledger_in_memory: Ledger
) -> None:
    row = job_row(1, **RUNNING)
    old, older = reports(range(1_000, 3_000), loss=1.0), reports(range(1, 1_000), loss=1.0)
    written(ledger_in_memory, looks.look(row, reports={1: older + old}, after=5_000.0)[1])
    looks.intake = Intake(ledger_in_memory.live_records())
    _, changes = looks.look(row, reports={1: older})
    assert (changes.faults, changes.points) == ((), ())
    _, changes = looks.look(row, reports={1: old + b"\xff\n" + reports(range(3_000, 3_100), loss=2.0)})
    assert changes.faults == (SpoolFault(1, "unreadable line", "", 1),)
    assert min(point.iteration for point in changes.points) >= 2_999.0
    late = reports(range(5, 7), loss=2.0)
    assert looks.look(row, reports={1: late})[1].faults == (SpoolFault(1, "earlier iteration", "", 2),)


def test_reports_that_tell_no_time_are_read_after_a_restart(looks: Looks, ledger_in_memory: Ledger) -> None:
    row = job_row(1, **RUNNING)
    written(ledger_in_memory, looks.look(row, reports={1: report(iteration=1, loss=1.0)})[1])
    looks.intake = Intake(ledger_in_memory.live_records())
    snapshot, _ = looks.look(row, reports={1: report(iteration=1, loss=1.0) + report(iteration=2, loss=0.5)})
    assert snapshot.jobs.iteration.tolist() == [2.0]


def test_columns_that_are_kept_are_those_that_would_be_made_anew(looks: Looks) -> None:
    """Jobs come, go, change place in the queue, report, are requeued, and come back."""
    random = np.random.default_rng(3)
    rows = {n: job_row(n, user=f"u{n % 3}", name=f"job-{n}" * (n % 4 + 1), uid=1000 + n % 3) for n in range(1, 40)}
    scripts = {n: b"#PLUG --ml-job=net --gpus=1..4\n" if n % 4 else SCRIPT for n in rows}
    for look in range(1, 12):
        for n in random.choice(list(rows), 5, replace=False).tolist():
            rows[n] |= [RUNNING, {"reason": "Resources"}, {"dependency": f"afterok:{n - 1}"}, {"gpus": look}][look % 4]
        there = random.permutation([n for n in rows if random.random() < 0.8]).tolist()
        said = {n: reports(range(look, look + 1), loss=1.0 / look, accuracy=0.1) for n in there if n % 5 == 0}
        snapshot, _ = looks.look(*(rows[n] for n in there), scripts=scripts, reports=said)
        records = [looks.intake._records[key.job_id] for key in snapshot.jobs.keys]
        anew, classes = jobs_of(
            records, snapshot.jobs.priority, snapshot.jobs.expected, snapshot.jobs.nice, snapshot.now
        )
        assert len(classes) == len(snapshot.fits)
        for name in snapshot.jobs.__dataclass_fields__:
            kept, made = getattr(snapshot.jobs, name), getattr(anew, name)
            if isinstance(kept, np.ndarray):
                np.testing.assert_array_equal(kept, made, err_msg=name)
            elif name != "keys":
                np.testing.assert_array_equal(kept.values, made.values)
                np.testing.assert_array_equal(kept.starts, made.starts)


def test_what_a_job_before_it_with_its_id_reported_is_not_its_own(looks: Looks) -> None:
    before = b"".join(report(time=NOW - 86_400 + i, iteration=i, accuracy=0.95) for i in range(1, 8))
    own = report(time=NOW + 30, iteration=1, accuracy=0.2) + report(iteration=2, accuracy=0.3)
    snapshot, changes = looks.look(job_row(1, **RUNNING), reports={1: before + own})
    assert snapshot.jobs.accuracies.values.tolist() == [0.2, 0.3]
    assert [(fault.rule, fault.count) for fault in changes.faults] == [("another job", 7)]


# --- several trainings in one job ------------------------------------------------------------------------------------


def training(iterations: range, since: float, **told: Any) -> bytes:
    return b"".join(report(time=NOW + since + n, iteration=i, **told) for n, i in enumerate(iterations))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_count_that_goes_back_to_its_first_iteration_begins_a_new_curve(
    at_once: bool, first: int, looks: Looks
) -> None:
    row = job_row(1, **RUNNING)
    folds = [
        training(range(first, first + 9), 0, loss=1.0, accuracy=0.95) + report(time=NOW + 9, checkpoint=first + 8),
        training(range(first, first + 3), 20, loss=2.0),
    ]
    for chunk in [b"".join(folds)] if at_once else folds:
        snapshot, changes = looks.look(row, reports={1: chunk})
    assert snapshot.jobs.iteration.tolist() == [3.0]
    assert snapshot.jobs.losses.row(0)[1].tolist() == [2.0, 2.0, 2.0]
    assert snapshot.jobs.accuracies.lengths().tolist() == [0]
    assert snapshot.jobs.trials.tolist() == ["all"]
    assert np.isnan(snapshot.jobs.checkpoint[0])  # that was of the first one
    assert {(point.trial, point.iteration) for point in changes.points} >= {(1, first + at) for at in range(3)}
    assert changes.faults == ()


def test_a_count_that_goes_back_to_a_later_iteration_is_of_the_same_training(looks: Looks) -> None:
    chunk = training(range(9), 0, loss=1.0) + training(range(5, 7), 20, loss=2.0)
    jobs = looks.look(job_row(1, **RUNNING), reports={1: chunk})[0].jobs
    assert (jobs.iteration.tolist(), jobs.trials.tolist()) == ([9.0], [""])


def test_a_quantity_of_the_first_iteration_that_comes_late_begins_nothing(looks: Looks) -> None:
    chunk = training(range(2), 0, loss=1.0) + report(time=NOW + 9, iteration=0, accuracy=0.5)
    jobs = looks.look(job_row(1, **RUNNING), reports={1: chunk})[0].jobs
    assert (jobs.iteration.tolist(), jobs.trials.tolist()) == ([2.0], [""])
    assert jobs.accuracies.row(0)[0].tolist() == [1.0]


def test_the_last_report_of_each_trial_is_kept_though_the_trials_came_in_one_reading(looks: Looks) -> None:
    chunk = b"".join(training(range(40), 50 * fold, loss=1.0 + fold) for fold in range(3))
    _, changes = looks.look(job_row(1, **RUNNING), reports={1: chunk}, after=1e3)
    last = {trial: max(p.iteration for p in changes.points if p.trial == trial) for trial in range(3)}
    assert last == {0: 39.0, 1: 39.0, 2: 39.0}
    assert len(changes.points) <= POINTS_PER_READING + 3


def test_trials_that_are_named_may_take_turns_and_the_present_one_is_shown(looks: Looks) -> None:
    row = job_row(1, **RUNNING)
    first, second = training(range(4), 0, loss=1.0, trial="a"), training(range(2), 10, loss=2.0, trial="b")
    assert looks.look(row, reports={1: first})[0].jobs.trials.tolist() == ["all"]
    assert looks.look(row, reports={1: second})[0].jobs.losses.row(0)[1].tolist() == [2.0, 2.0]
    jobs = looks.look(row, reports={1: training(range(4, 5), 20, loss=1.5, trial="a")})[0].jobs
    assert jobs.losses.row(0)[1].tolist() == [1.0, 1.0, 1.0, 1.0, 1.5]


@pytest.mark.parametrize(
    ("directive", "shown"), [("", "all"), ("--trials=all", "all"), ("--trials=first --target=loss<=0.1", "first")]
)
def test_the_script_says_what_ends_the_job(directive: str, shown: str, looks: Looks) -> None:
    rows = job_row(1, **RUNNING), job_row(2, **RUNNING)
    scripts = {1: f"#PLUG --urgency=3 {directive}\n".encode()} | {2: b"#PLUG --urgency=3\n"}
    chunk = training(range(3), 0, loss=1.0, trial=1)
    assert looks.look(*rows, scripts=scripts, reports={1: chunk})[0].jobs.trials.tolist() == [shown, ""]


@pytest.mark.parametrize("name", [None, "fold 1"])
def test_a_run_that_resumes_is_in_the_same_trial(name: str | None, looks: Looks) -> None:
    first, second = ({"trial": "fold 0"}, {"trial": name}) if name else ({}, {})
    chunk = training(range(9), 0, loss=1.0, **first) + training(range(6), 20, loss=2.0, **second)
    looks.look(job_row(1, **RUNNING), reports={1: chunk})
    again = job_row(1, restarts=1, submit=NOW + 70.0, **RUNNING | {"start": NOW + 80.0})
    jobs = looks.look(again, reports={1: training(range(4, 8), 90, loss=3.0, **second)})[0].jobs
    assert jobs.losses.row(0)[1].tolist() == [2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0]
    assert jobs.resumed.tolist() == [4.0]
    jobs = looks.look(again, reports={1: training(range(2), 100, loss=4.0, **({"trial": "fold 2"} if name else {}))})[
        0
    ].jobs
    assert jobs.losses.row(0)[1].tolist() == [4.0, 4.0]


def test_a_run_from_scratch_begins_with_the_first_trial_and_shows_nothing_of_the_run_before(looks: Looks) -> None:
    folds = [training(range(9), 20 * fold, loss=1.0 + fold) for fold in range(3)]
    looks.look(job_row(1, **RUNNING), reports={1: b"".join(folds)})
    again = job_row(1, restarts=1, submit=NOW + 70.0, **RUNNING | {"start": NOW + 80.0})
    for fold in range(3):
        chunk = training(range(2), 90 + 10 * fold, loss=5.0 + fold)
        jobs = looks.look(again, reports={1: chunk})[0].jobs
        assert jobs.losses.row(0)[1].tolist() == [5.0 + fold] * 2
    [record] = looks.intake._records.values()
    assert (record.points.trial, len(record.points.trials)) == (2, 3)


def test_a_daemon_that_restarts_knows_the_trials(looks: Looks, ledger_in_memory: Ledger) -> None:
    row = job_row(1, **RUNNING)
    folds = [training(range(6), 20 * fold, loss=1.0 + fold) for fold in range(3)]
    written(ledger_in_memory, looks.look(row, reports={1: b"".join(folds[:2]) + folds[2][:60]})[1])
    before = looks.intake._records[1].points
    looks.intake = Intake(ledger_in_memory.live_records())
    snapshot, changes = looks.look(row, reports={1: b"".join(folds)})  # from their beginning
    after = looks.intake._records[1].points
    assert (after.trials, after.trial, after.first) == (before.trials, 2, 0.0)
    assert snapshot.jobs.losses.row(0)[1].tolist() == [3.0] * 6
    assert {point.trial for point in changes.points} == {2}
    assert ledger_in_memory.query("SELECT trial, count(*) AS n FROM progress GROUP BY trial")[:2] == [
        {"trial": 0, "n": 6},
        {"trial": 1, "n": 6},
    ]


def test_a_job_of_very_many_trials_keeps_its_present_one_and_costs_no_more_than_another(looks: Looks) -> None:
    row = job_row(1, **RUNNING)
    for look in range(25):
        chunk = b"".join(
            report(time=NOW + look * 100 + n, iteration=i, loss=float(look), trial=f"{look} {n}")
            for n in range(60)
            for i in range(9)
        )
        snapshot, changes = looks.look(row, reports={1: chunk}, after=1e4)
    points = looks.intake._records[1].points
    assert len(points.trials) == MAX_TRIALS
    assert len(points) <= MAX_POINTS
    assert "too many trials" in {fault.rule for fault in changes.faults}
    assert len(set(snapshot.jobs.losses.row(0)[1].tolist())) == 1
