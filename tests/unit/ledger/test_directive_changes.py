"""Directives changed after the submission: who may, what the next cycle makes of it, and that it is never lost."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmplug.config import policy_registry
from slurmplug.errors import LedgerError, UsageError
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger import backup, directive_changes
from slurmplug.ledger.directive_changes import MAX_CHANGES, Author, ChangedJobs, ChangeRequest, make_change
from slurmplug.ledger.ledger import DAY, Ledger
from slurmplug.ledger.selection import JobId
from tests.builders import NOW
from tests.fake_cluster import Crash
from tests.ledgers import Site
from tests.moving import MovingSite
from tests.schedulers import begun

ADA = Author(1001, "ada", operator=False, sees_all=False)
BOB = Author(1002, "bob", operator=False, sees_all=False)
ROOT = Author(0, "root", operator=True, sees_all=True)
PLAIN = b"#!/bin/sh\ntrain\n"
URGENT = b"#!/bin/sh\n#PLUG --urgency=3\ntrain\n"
_ids = itertools.count()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


def request(job: int | str, *written: str, **given: Any) -> ChangeRequest:
    return ChangeRequest(JobId.parse(str(job)), written, given.pop("id", f"{next(_ids):032x}"), **given)


def change(site: Site, job: int | str, *written: str, author: Author = ADA, **given: Any) -> ChangedJobs:
    """As the endpoint makes it, over a connection of its own."""
    with closing(Ledger(site.path)) as ledger:
        return make_change(ledger, request(job, *written, **given), author, site.cluster.time)


def refused(site: Site, job: int | str, *written: str, **given: Any) -> str:
    before = site.ledger.query("SELECT * FROM directive_changes")
    with pytest.raises(UsageError) as error:
        change(site, job, *written, **given)
    assert site.ledger.query("SELECT * FROM directive_changes") == before
    return str(error.value)


def records(site: Site) -> dict[int, JobRecord]:
    return {record.key.job_id: record for record in site.ledger.live_records()}


def urgencies(site: Site) -> list[float | None]:
    return [record.directives.urgency for record in records(site).values() if record.directives]


def ranked(site: Site) -> int:
    """A job with a SiteFactor, as it is more urgent than one that was submitted before it."""
    site.cluster.submit(URGENT)
    second = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=9\ntrain\n")
    site.cycle()
    assert site.cluster.jobs[second]["label"] > 0
    return second


def restarted(site: Site) -> None:
    config = site.scheduler.config
    site.scheduler = begun(site.cluster, policy_registry.policy(config), site.ledger, config)


# --- what the next cycle makes of it ----------------------------------------------------------------------------------


def test_a_change_is_in_force_from_the_next_cycle_on_and_moves_the_job_ahead(site: Site) -> None:
    first, second = site.cluster.submit(URGENT), site.cluster.submit(URGENT, name="other")
    site.cycle(2)
    order = [job["jobid"] for job in sorted(site.json("prio")["jobs"], key=lambda job: job["position"])]
    behind = int(order[1])
    assert {behind, int(order[0])} == {first, second}
    changed = change(site, behind, "--urgency=9", "--deadline=1h")
    assert (changed.jobs, changed.stopping) == ((str(behind),), ())
    assert records(site)[behind].directives == records(site)[first].directives
    changed_at = site.cluster.time
    snapshot = site.cycle().snapshot
    row = [key.job_id for key in snapshot.jobs.keys].index(behind)
    assert snapshot.jobs.deadline[row] == changed_at + 3_600
    order = [job["jobid"] for job in sorted(site.json("prio")["jobs"], key=lambda job: job["position"])]
    assert int(order[0]) == behind
    assert site.ledger.query("SELECT * FROM directive_changes") == []
    [job] = site.json("acct", "-a", "-j", str(behind))["jobs"]
    assert (job["urgency"], job["deadline"]) == (9, changed_at + 3_600)


def test_an_urgency_that_is_changed_counts_as_much_as_one_that_was_submitted(tmp_path: Path) -> None:
    with Site(tmp_path, guardrails={"urgency": 8}) as site:
        submitted = b"#!/bin/sh\n#PLUG --urgency=10\ntrain\n"
        for script, user in ((URGENT, "ada"), (URGENT, "ada"), (submitted, "bob"), (URGENT, "bob")):
            site.cluster.submit(script, uid=1001 if user == "ada" else 1002, user=user)
        site.cycle()
        change(site, 1, "--urgency=10")
        urgency = site.cycle().snapshot.jobs.urgency.tolist()
        assert urgency[0] == urgency[2] > urgency[1] == urgency[3]


def test_why_tells_who_changed_what_when_and_what_was_before(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    change(site, job, "--urgency=7", "--stop=optstop")
    assert "by ada: --stop=optstop, --urgency=7, from the next cycle on." in site.ask("why", str(job))
    site.cycle()
    change(site, job, "--urgency=", author=ROOT)
    site.cycle()
    output = site.ask("why", str(job))
    assert "  --stop=optstop, --urgency=3.\n" in output
    assert "by ada: --stop=optstop (none before), --urgency=7 (3 before).\n" in output
    assert "by root: --urgency=3 (7 before).\n" in output


def test_a_job_taken_out_is_given_back_at_once_and_ranked_again_when_its_owner_says_so(site: Site) -> None:
    job = ranked(site)
    change(site, job, "--manage=off")
    site.cycle()
    assert site.cluster.jobs[job]["label"] == 0
    done = len(site.cluster.done)
    site.cycle(2)
    assert [each for each in site.cluster.done[done:] if each.job_id == job] == []
    assert "Left to Slurm." in site.ask("why", str(job))
    change(site, job, "--manage=on")
    site.cycle()
    ahead, behind = (site.cluster.jobs[each]["priority"] + site.cluster.jobs[each]["label"] for each in (job, job - 1))
    assert ahead > behind


def test_a_job_taken_out_does_not_get_back_a_place_that_another_has(site: Site) -> None:
    """Else the job ahead of it and this one would both have the place of this one."""
    ahead = ranked(site)
    behind = ahead - 1
    before = [site.cluster.jobs[job]["label"] for job in (ahead, behind)]
    change(site, behind, "--manage=off")
    site.cycle(2)
    assert [site.cluster.jobs[job]["label"] for job in (ahead, behind)] == before


def test_a_site_factor_is_given_back_until_slurm_confirms_it(site: Site) -> None:
    job = ranked(site)
    change(site, job, "--manage=off")
    site.cluster.refuse = frozenset({"update"})
    site.cycle()
    assert site.cluster.jobs[job]["label"] != 0
    site.cluster.refuse = frozenset()
    site.cycle()
    assert site.cluster.jobs[job]["label"] == 0


def test_a_running_job_taken_out_gets_its_site_factor_back_when_it_waits_again(site: Site) -> None:
    job = ranked(site)
    site.cluster.start(job)
    change(site, job, "--manage=off")
    site.cycle()
    site.cluster.requeue(job)
    site.cycle()
    assert site.cluster.jobs[job]["label"] == 0


def test_nothing_is_given_back_while_an_operator_paused_the_daemon(site: Site) -> None:
    job = ranked(site)
    site.ledger.set_control("paused", "maintenance")
    change(site, job, "--manage=off")
    site.cycle()
    assert site.cluster.jobs[job]["label"] != 0
    site.ledger.set_control("paused", None)
    site.cycle()
    assert site.cluster.jobs[job]["label"] == 0


def test_a_held_jobs_site_factor_is_given_back_when_it_is_released(site: Site) -> None:
    job = ranked(site)
    site.cluster.jobs[job] |= {"priority": 0.0, "reason": "JobHeldUser"}
    change(site, job, "--manage=off")
    site.cycle()
    assert site.cluster.jobs[job]["label"] != 0
    site.cluster.jobs[job] |= {"priority": 1000.0, "reason": "Priority"}
    site.cycle()
    assert site.cluster.jobs[job]["label"] == 0


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[MovingSite]:
    """A job trains, and the policy wants it to be resized."""
    made = MovingSite(tmp_path / "moving.db")
    with closing(made.ledger):
        made.policy.wanted[made.training()] = {"kind": "resize", "gpus": 4}
        made.cycle()
        made.cycle()
        assert made.cluster.asked(1, "checkpoint")
        yield made


def take_out(moving: MovingSite) -> None:
    make_change(moving.ledger, request(1, "--manage=off"), ADA, moving.cluster.time)
    for _ in range(10):
        moving.cycle()
    assert moving.ledger.open_operations() == []


def test_a_job_taken_out_before_it_saved_is_not_moved(moving: MovingSite) -> None:
    take_out(moving)
    assert not moving.cluster.asked(1, "checkpoint")
    moving.saves(1)
    moving.cycle()
    assert "requeue" not in moving.cluster.verbs(1)


def test_a_job_taken_out_after_its_requeue_keeps_its_shape_and_leaves_its_reservation(moving: MovingSite) -> None:
    moving.saves(1)
    moving.cycles_until(lambda: "requeue" in moving.cluster.verbs(1))
    take_out(moving)
    assert (moving.cluster.jobs[1]["gpus"], moving.cluster.jobs[1]["reservation"]) == (2, "")
    assert moving.cluster.reservations == []


def test_jobs_that_were_never_managed_are_not_written_although_their_site_factor_is_not_known(site: Site) -> None:
    plain = [site.cluster.submit(PLAIN), site.cluster.submit(b"#!/bin/sh\n#PLUG --manage=off\ntrain\n")]
    site.cycle()
    with closing(Ledger(site.path)) as other:
        other.mark_unknown()
    site.cycle(2)
    restarted(site)
    site.cycle(2)
    assert [each for each in site.cluster.done if each.job_id in plain] == []


def test_a_plain_job_is_managed_by_its_first_directive(site: Site) -> None:
    job = site.cluster.submit(PLAIN)
    site.cycle()
    assert site.cycle().snapshot.jobs.managed.tolist() == [False]
    change(site, job, "--deadline=2h")
    assert site.cycle().snapshot.jobs.managed.tolist() == [True]


def test_a_target_of_another_quantity_is_judged_by_that_quantitys_reports(site: Site) -> None:
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations=20\ntrain\n")
    site.cluster.start(job)
    site.train(job, {i: 0.5 + i / 100 for i in range(1, 9)}, loss=0.4)
    site.cycle(2)
    assert site.json("acct", "-a", "-j", str(job))["jobs"][0]["foreseen"] > 0.5
    change(site, job, "--target=loss<=0.3")
    site.cycle()
    shown = site.json("acct", "-a", "-j", str(job))["jobs"][0]
    assert (shown["quantity"], shown["value"], shown["target"]) == ("loss", 0.4, "loss<=0.3")
    assert shown["foreseen"] is None or shown["foreseen"] < 0.5


def test_a_value_foreseen_of_one_quantity_is_not_told_of_another_that_the_stop_names(site: Site) -> None:
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --stop=optstop --max-iterations=20\ntrain\n")
    site.cluster.start(job)
    site.train(job, {i: 0.5 + i / 100 for i in range(1, 14)}, val_loss=7.0)
    site.cycle(2)
    assert site.json("acct", "-a", "-j", str(job))["jobs"][0]["foreseen"] > 0.5
    change(site, job, "--stop=optstop:val_loss")
    site.cycle()
    shown = site.json("acct", "-a", "-j", str(job))["jobs"][0]
    assert (shown["quantity"], shown["value"]) == ("val_loss", 7.0)
    assert shown["foreseen"] is None or shown["foreseen"] > 5


# --- it is never lost -------------------------------------------------------------------------------------------------


def test_a_restart_before_and_after_the_next_cycle_keeps_it(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    change(site, job, "--urgency=8")
    restarted(site)
    site.cycle()
    restarted(site)
    site.cycle()
    assert urgencies(site) == [8]
    assert [each.user for each in records(site)[job].changes] == ["ada"]


def test_a_crash_within_the_cycle_that_puts_it_in_force_applies_it_once(site: Site) -> None:
    job = ranked(site)
    change(site, job, "--manage=off")
    site.cluster.crash_after = 0
    with pytest.raises(Crash):
        site.cycle()
    restarted(site)
    site.cycle(2)
    assert site.cluster.jobs[job]["label"] == 0
    assert len(records(site)[job].changes) == 1


def test_a_cycle_that_could_not_be_written_applies_it_with_the_next_one_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    change(site, job, "--urgency=8")

    def full(*_: object) -> None:
        raise LedgerError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_write_rankings", full)
        with pytest.raises(LedgerError):
            site.cycle()
    assert site.ledger.query("SELECT count(*) AS n FROM directive_changes") == [{"n": 1}]
    site.cycle()
    assert [each.given.urgency for each in records(site)[job].changes] == [8]


def test_a_reading_that_fails_keeps_it_for_the_next(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    change(site, job, "--urgency=8")
    site.cluster.reachable = False
    assert site.scheduler.run() is None
    site.cluster.reachable = True
    site.cycle()
    assert urgencies(site) == [8]


def test_a_copy_has_the_changes_in_force_and_those_to_come(site: Site, tmp_path: Path) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    change(site, job, "--urgency=8")
    site.cycle()
    change(site, job, "--deadline=3h")
    copy, place = tmp_path / "copy.db", tmp_path / "other"
    place.mkdir()
    site.ledger.backup(copy)
    backup.restore(copy, place / "ledger.db", place)
    with closing(Ledger(place / "ledger.db")) as installed:
        scheduler = begun(site.cluster, site.scheduler.policy, installed, site.scheduler.config)
        record = scheduler.run()
        assert record is not None
        assert [each.directives.urgency for each in installed.live_records()] == [8]  # type: ignore[union-attr]
        assert record.snapshot.jobs.deadline.tolist() == [site.cluster.time + 3 * 3_600]


def test_changes_go_with_their_job_when_its_time_is_over(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    change(site, job, "--urgency=8")
    site.cluster.end(job)
    site.cluster.purge(job)
    site.cycle(2)
    assert "by ada: --urgency=8" in site.ask("why", str(job))
    site.ledger.delete_old(site.cluster.time + 2 * DAY, 1, 1)
    assert site.ledger.query("SELECT * FROM jobs") == site.ledger.query("SELECT * FROM directive_changes") == []


# --- arrays and heterogeneous jobs ------------------------------------------------------------------------------------


def test_an_array_changes_as_a_whole_and_elements_that_start_later_inherit_it(site: Site) -> None:
    array = site.cluster.submit(URGENT, array_id=1, array_task=-1, elements=5)
    running = site.cluster.submit(URGENT, array_id=1, array_task=0)
    site.cluster.start(running)
    site.cycle()
    assert set(change(site, array, "--urgency=8").jobs) == {"1_[x5]", "1_0"}
    site.cycle()
    later = site.cluster.submit(URGENT, array_id=1, array_task=1, submit=NOW)
    site.cluster.start(later)
    site.cycle()
    change(site, "1_1", "--urgency=", "--stop=optstop")
    site.cycle()
    restarted(site)
    site.cycle()
    found = {job: record.directives for job, record in records(site).items()}
    assert [found[job].urgency for job in (array, running, later)] == [8, 8, 3]  # type: ignore[union-attr]
    assert [found[job].stop for job in (array, running, later)] == [None, None, "optstop"]  # type: ignore[union-attr]
    assert "by ada: --urgency=8 (3 before).\n" in site.ask("why", "1_1")


def test_an_element_that_waits_with_others_is_not_changed_alone(site: Site) -> None:
    site.cluster.submit(URGENT, array_id=1, array_task=-1, elements=5)
    site.cycle()
    assert refused(site, "1_3", "--urgency=8") == "1_3 has not started: pending elements of an array are one job, 1"
    assert "slurmplug knows no job 1_3: " in refused(site, "1_3", "--urgency=8", author=BOB)


@pytest.mark.parametrize("named", ["1", "1+1", "2"])
def test_all_components_of_a_heterogeneous_job_change_together(site: Site, named: str) -> None:
    for _ in range(2):
        site.cluster.submit(URGENT, het_id=1)
    site.cycle()
    assert change(site, named, "--urgency=8").jobs == ("1+0", "1+1")
    site.cycle()
    assert urgencies(site) == [8, 8]


# --- who may, and what is refused -------------------------------------------------------------------------------------


def test_another_users_job_is_refused_and_where_slurm_hides_it_it_never_existed(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    never = refused(site, 99, "--urgency=8", author=BOB)
    assert refused(site, job, "--urgency=8", author=BOB) == never.replace("99", str(job))
    seeing = BOB._replace(sees_all=True)
    assert refused(site, job, "--urgency=8", author=seeing) == (
        f"job {job} is ada's: only ada and operators may change its directives"
    )
    site.cluster.end(job)
    site.cycle()
    assert refused(site, job, "--urgency=8", author=BOB) == never.replace("99", str(job))
    assert "has ended (COMPLETED): its directives count no more" in refused(site, job, "--urgency=8")


def test_an_operator_changes_everybodys(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    assert change(site, job, "--urgency=8", author=ROOT).jobs == (str(job),)


def test_a_job_that_is_being_stopped_can_only_be_taken_out(site: Site) -> None:
    job = site.cluster.submit()
    site.cluster.start(job)
    site.train(job, {i: 0.80 + i / 50 for i in range(1, 7)})
    site.cycle()
    assert site.cluster.asked(job)
    assert refused(site, job, "--target=accuracy>=0.99") == (
        f"job {job} is being stopped: its directives count no more"
    )
    change(site, job, "--manage=off")
    site.cycle(2)
    assert not site.cluster.asked(job)


def test_of_an_array_the_elements_that_are_being_stopped_are_left_as_they_are(site: Site) -> None:
    elements = [site.cluster.submit(array_id=1, array_task=task) for task in (0, 1)]
    for element in elements:
        site.cluster.start(element)
    site.train(elements[0], {i: 0.80 + i / 50 for i in range(1, 7)})
    site.cycle()
    changed = change(site, 1, "--target=accuracy>=0.99")
    assert (changed.jobs, changed.stopping) == (("1_1",), ("1_0",))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"batch": False, "comment": "plug: --urgency=3"}, "is interactive (salloc, srun): slurmplug never changes it"),
        ({"priority": 0.0, "reason": "JobHeldUser"}, "waits for admission"),
    ],
)
def test_jobs_of_other_kinds_are_refused_with_the_reason(site: Site, job: dict[str, Any], message: str) -> None:
    number = site.cluster.submit(b"#!/bin/sh\n#PLUG --utility=50,0.5,12\ntrain\n", **job)
    site.cycle()
    assert message in refused(site, number, "--manage=off")


def test_a_job_left_out_of_admission_is_not_taken_into_it(site: Site) -> None:
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --utility=50,0.5,12 --manage=off\ntrain\n")
    site.cycle()
    assert "has a --utility: a job is admitted at its submission" in refused(site, job, "--manage=on")


def test_a_job_that_an_operator_excluded_is_refused(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    site.ledger.give_back([job])
    assert f"an operator excluded job {job} (slurmplug reset --job)" in refused(site, job, "--urgency=8")


def test_a_job_whose_script_was_not_read_yet_is_refused_for_now(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = site.cluster.submit(URGENT)
    read = site.cluster.read
    with monkeypatch.context() as patch:
        patch.setattr(site.cluster, "read", lambda known, alive: replace(read(known, alive), scripts={}))
        site.cycle()
    assert "has not been read yet: try again after the next cycle" in refused(site, job, "--urgency=8")
    site.cycle()
    change(site, job, "--urgency=8")


def test_no_more_than_so_many_changes_of_one_job(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    for number in range(MAX_CHANGES):
        change(site, job, f"--urgency={number % 10}")
    assert f"was changed {MAX_CHANGES} times, which is the most" in refused(site, job, "--urgency=8")
    site.cycle()
    assert f"was changed {MAX_CHANGES} times" in refused(site, job, "--urgency=8")


def test_a_request_counts_once_also_after_it_is_in_force(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    change(site, job, "--urgency=8", id="a" * 32)
    assert "received before" in refused(site, job, "--urgency=8", id="a" * 32)
    site.cycle()
    assert "received before" in refused(site, job, "--urgency=8", id="a" * 32)


@pytest.mark.parametrize(("where", "values"), [(directive_changes._WHOLE, 3), (directive_changes._ELEMENT, 2)])
def test_a_request_is_checked_without_reading_every_job_of_the_ledger(site: Site, where: str, values: int) -> None:
    plan = site.ledger.query(f"EXPLAIN QUERY PLAN SELECT * FROM jobs WHERE {where}", *[1] * values)
    assert [row["detail"] for row in plan if row["detail"].startswith("SCAN")] == []


def test_a_request_for_another_cluster_is_refused(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    assert refused(site, job, "--urgency=8", cluster="other") == "this daemon serves the cluster testing, not other"
    change(site, job, "--urgency=8", cluster="testing")


def test_a_request_that_names_nothing_is_refused(site: Site) -> None:
    job = site.cluster.submit(URGENT)
    site.cycle()
    assert "name a directive to change" in refused(site, job)


def test_of_a_job_id_that_was_used_again_the_present_job_changes(site: Site) -> None:
    site.cluster.submit(URGENT)
    site.cycle()
    site.cluster.jobs[1] |= {"submit": NOW + 1e6, "uid": 1002, "user": "bob"}
    site.cycle(2, seconds=1e6)
    assert "slurmplug knows no job 1" in refused(site, 1, "--urgency=8")
    change(site, 1, "--urgency=8", author=BOB)
    site.cycle()
    assert records(site)[1].directives.urgency == 8  # type: ignore[union-attr]
