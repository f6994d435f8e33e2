"""Whether a job id still means the job that it meant before."""

from typing import Any

import pytest

from policies.snapshot import JobKey
from slurmplug.intake.identity import Identity, digest_of, identify, of_present_run
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import JobRecord
from tests.builders import CLUSTER, NOW
from tests.fake_cluster import SCRIPT, job_row

MINE, OTHER = digest_of(SCRIPT), digest_of(b"#!/bin/sh\nanother\n")
LATER = NOW + 500.0


def facts(**given: Any) -> JobFacts:
    row = job_row(1, **given)
    return JobFacts(**{name: row[name] for name in JobFacts._fields})


def record(*, digest: str = MINE, in_doubt: bool = False, first: float = NOW, **given: Any) -> JobRecord:
    return JobRecord(JobKey(CLUSTER, 1, int(first)), facts(**given), digest=digest, in_doubt=in_doubt)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"state": "RUNNING", "name": "renamed", "qos": "high"}, "same"),
        ({"state": "COMPLETED"}, {"state": "COMPLETED"}, "same"),
        ({"state": "RUNNING"}, {"state": "COMPLETING", "restarts": 1}, "same"),
        ({}, {"uid": 1002}, "another"),
        ({}, {"batch": False}, "another"),
        ({}, {"array_id": 1}, "another"),
        ({}, {"het_id": 1}, "another"),
        # ids began again: never requeued, so its submit time would not have moved
        ({"state": "RUNNING"}, {"submit": LATER}, "another"),
        ({"state": "COMPLETED"}, {"submit": LATER}, "another"),
        ({"state": "COMPLETING"}, {"submit": LATER}, "another"),
        ({"restarts": 2}, {"submit": LATER, "restarts": 0}, "another"),
        ({"restarts": 2}, {"submit": LATER, "restarts": 1}, "another"),
        ({"restarts": 2, "state": "RUNNING"}, {"submit": LATER, "restarts": 2}, "another"),
        ({}, {"submit": NOW - 500.0}, "another"),
        # a requeue explains it
        ({"state": "RUNNING"}, {"submit": LATER, "restarts": 1}, "script"),
        ({"state": "FAILED"}, {"submit": LATER, "restarts": 1}, "script"),
        ({"state": "RUNNING"}, {"submit": LATER, "restarts": 3, "name": "renamed"}, "script"),
        ({"state": "RUNNING"}, {"submit": NOW - 500.0, "restarts": 1}, "script"),  # the clock was set back
        ({"state": "COMPLETING", "restarts": 1}, {"submit": LATER, "restarts": 1}, "script"),
        # slurmctld began again with the state of before the requeue
        ({"first": NOW, "submit": LATER, "restarts": 1}, {"state": "RUNNING", "submit": NOW}, "same"),
        ({"first": NOW, "submit": LATER, "restarts": 2}, {"submit": NOW + 200.0, "restarts": 1}, "script"),
    ],
)
def test_a_job_is_recognized_by_what_it_keeps(old: dict[str, Any], new: dict[str, Any], expected: str) -> None:
    found = {digest: identify(record(**old), facts(**new), digest) for digest in (MINE, OTHER, None)}
    by_script: dict[str | None, Identity] = {MINE: "same", OTHER: "another", None: "in doubt"}
    assert found == (by_script if expected == "script" else dict.fromkeys(by_script, expected))


REQUEUED: dict[str, Any] = {"submit": LATER, "restarts": 1}


@pytest.mark.parametrize(("name", "expected"), [("train", "same"), ("other", "another")])
def test_its_name_decides_where_no_script_can(name: str, expected: Identity) -> None:
    interactive = record(digest="", batch=False)
    assert identify(interactive, facts(**REQUEUED, batch=False, name=name), None) == expected
    assert identify(record(digest=""), facts(**REQUEUED, name=name), MINE) == expected
    assert identify(record(), facts(**REQUEUED, name=name, state="COMPLETED"), None) == expected


def test_a_doubt_lasts_until_the_script_was_read() -> None:
    doubted = record(in_doubt=True, **REQUEUED)
    assert identify(doubted, facts(**REQUEUED), None) == "in doubt"
    assert identify(doubted, facts(**REQUEUED), MINE) == "same"
    assert identify(doubted, facts(**REQUEUED), OTHER) == "another"
    assert identify(doubted, facts(**REQUEUED), digest_of(b"")) == "another"


def test_a_run_that_completes_is_not_the_one_before_the_last_requeue() -> None:
    before = facts(state="RUNNING", start=NOW + 5.0)
    ending = facts(state="COMPLETING", restarts=1, start=NOW + 90.0)
    assert of_present_run(before, ending)[-3:] == ending[-3:]
    assert (of_present_run(before, ending).restarts, of_present_run(before, ending).start) == (0, NOW + 5.0)
    suspended = before._replace(suspended=30.0)
    assert of_present_run(suspended, ending).suspended == 30.0
    later = facts(state="COMPLETING", restarts=2, submit=LATER, start=LATER + 90.0)
    assert of_present_run(before, later) == later
