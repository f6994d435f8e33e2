"""What the ledger takes: of a job and a user whatever they report, and of a site in a year."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmplug.ledger import budgets, codec
from slurmplug.ledger.budgets import DAY, KIB
from slurmplug.ledger.decided import as_kept
from slurmplug.ledger.inputs import inputs
from slurmplug.ledger.ledger import Ledger
from slurmplug.spool.report_lines import MAX_RUN_BYTES
from tests.ledgers import Site

NAMES = [f"quantity_of_which_the_name_is_as_long_as_a_name_may_be_{number:02}" for number in range(32)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


def stored(site: Site, job_id: int) -> int:
    sql = "SELECT coalesce(sum(length(quantities) + 64), 0) FROM progress JOIN jobs ON id = job WHERE job_id = ?"
    return int(site.ledger.value(sql, job_id))


def counted(site: Site, job_id: int) -> int:
    sql = "SELECT bytes FROM progress_size JOIN jobs ON id = job WHERE job_id = ?"
    return int(site.ledger.value(sql, job_id))


def flood(site: Site, job_id: int, cycles: int, **others: float) -> None:
    """Reports of as many quantities with as long names as are accepted, as many as a cycle keeps."""
    for number in range(cycles):
        for at in range(60):
            site.cluster.time += 0.1
            site.cluster.say(
                job_id, iteration=60 * number + at, **dict.fromkeys(NAMES, 0.123456789012345678 + at), **others
            )
        site.cycle()


def test_what_a_job_reports_takes_half_a_mebibyte_a_run_and_one_in_all(site: Site) -> None:
    job = site.cluster.submit()
    for _ in range(4):
        site.cluster.start(job)
        flood(site, job, 8)
        assert 100 * KIB < stored(site, job) <= min(budgets.JOB, 4 * MAX_RUN_BYTES)
        assert stored(site, job) == counted(site, job)
        site.cluster.requeue(job)
        site.cycle()
    run = site.ledger.query("SELECT max(sum(length(quantities) + 64)) OVER () AS most FROM progress GROUP BY restarts")
    assert run[0]["most"] <= MAX_RUN_BYTES
    assert site.ledger.query("SELECT DISTINCT restarts FROM progress")[-1] == {"restarts": 3}


def test_a_job_of_a_thousand_trials_takes_no_more(site: Site) -> None:
    job = site.cluster.submit()
    site.cluster.start(job)
    for trial in range(900):
        site.cluster.say(job, iteration=1, trial=trial, **dict.fromkeys(NAMES, 0.123456789012345678))
        if trial % 45 == 44:
            site.cycle()
    assert stored(site, job) <= MAX_RUN_BYTES
    assert site.ledger.value("SELECT max(trial) FROM progress") == 899


def test_of_a_user_beyond_the_budget_the_jobs_that_ended_first_keep_their_last_points(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [site.cluster.submit(user=user) for user in ("ada", "ada", "ada", "bob")]
    for job in jobs:
        site.cluster.start(job)
        site.train(job, {at: 0.01 * at for at in range(1, 41)})
        site.cycle()
    before = [stored(site, job) for job in jobs]
    for job in (jobs[0], jobs[1], jobs[3]):
        site.cluster.end(job)
        site.cycle()
        site.cluster.purge(job)
        site.cycle()
    monkeypatch.setattr(budgets, "USER", int(2.5 * before[0]))
    site.ledger.thin(site.cluster.time)
    assert [stored(site, job) < size for job, size in zip(jobs, before, strict=True)] == [True, False, False, False]
    last = site.ledger.query("SELECT iteration FROM progress JOIN jobs ON id = job WHERE job_id = ?", jobs[0])
    assert last == [{"iteration": 40.0}]
    monkeypatch.setattr(budgets, "POINTS", 0)
    site.ledger.thin(site.cluster.time)
    assert [stored(site, job) < size for job, size in zip(jobs, before, strict=True)] == [True, True, False, True]


def ended(site: Site, user: str, count: int, comment: str = "") -> list[int]:
    """Jobs of a user that Slurm no longer lists, the first of which ended first."""
    jobs = [site.cluster.submit(user=user, comment=comment) for _ in range(count)]
    site.cycle()
    for job in jobs:
        site.cluster.end(job, "CANCELLED")
        site.cycle()
    for job in jobs:
        site.cluster.purge(job)
    site.cycle()
    return jobs


def kept_of(site: Site, user: str) -> list[int]:
    return [row["job_id"] for row in site.ledger.query("SELECT job_id FROM jobs WHERE user = ? ORDER BY id", user)]


def test_of_a_user_with_very_many_jobs_those_that_ended_first_go_and_nobody_elses(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = ended(site, "ada", 2), ended(site, "eve", 6, comment="x" * 4_000)
    alive = site.cluster.submit(user="eve", comment="x" * 4_000)
    site.cycle()
    site.ledger.thin(site.cluster.time)
    assert (kept_of(site, "ada"), kept_of(site, "eve")) == (few, [*many, alive])
    sizes = site.ledger.query("SELECT weight FROM jobs WHERE user = 'eve' AND ended = 1")
    assert all(4_000 < row["weight"] < 8_000 for row in sizes)
    monkeypatch.setattr(budgets, "USER", sum(row["weight"] for row in sizes[2:]))
    site.ledger.thin(site.cluster.time)
    assert (kept_of(site, "ada"), kept_of(site, "eve")) == (few, [*many[2:], alive])
    monkeypatch.setattr(budgets, "JOBS", sum(row["weight"] for row in sizes[4:]) + 3_000)
    site.ledger.thin(site.cluster.time)
    assert (kept_of(site, "ada"), kept_of(site, "eve")) == (few, [*many[4:], alive])
    assert site.ledger.query("PRAGMA foreign_key_check") == []
    site.cycle()


def test_what_all_have_too_much_is_taken_from_those_who_have_most() -> None:
    assert budgets.fair_share([5.0, 1.0, 9.0], 15.0) == float("inf")
    assert budgets.fair_share([5.0, 1.0, 9.0], 12.0) == 6.0
    assert budgets.fair_share([5.0, 1.0, 9.0], 7.0) == 3.0
    assert budgets.fair_share([], 7.0) == float("inf")


def test_of_very_many_commands_the_oldest_go_also_those_of_live_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for urgency in range(5):
        site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={urgency}\n".encode())
    commanding(site, 4)
    count = "SELECT count(*) FROM commands"
    monkeypatch.setattr(budgets, "COMMANDS", site.ledger.value(f"{count} WHERE cycle > 2"))
    site.ledger.thin(site.cluster.time)
    assert site.ledger.value("SELECT min(cycle) FROM commands") == 3
    assert site.cycle().commands == (), "what is in place is known"


def commanding(site: Site, cycles: int) -> list[bytes]:
    """So many cycles with commands; their inputs as one that was stored whole."""
    found = []
    for _ in range(cycles):
        site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=9\n", priority=1.0)
        record = site.cycle()
        assert record.commands
        decided = [record.made_from, as_kept(record.decided)]
        kept = codec.dumps([record.snapshot, record.forecasts, record.memory, *decided])
        found.append(codec.dumps(codec.loads(kept)))
    return found


def kept(site: Site) -> list[tuple[int, int | None]]:
    found = site.ledger.query("SELECT id, inputs_base FROM cycles WHERE inputs IS NOT NULL ORDER BY id")
    return [(row["id"], row["inputs_base"]) for row in found]


def test_inputs_come_back_bit_by_bit_also_after_a_new_start(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmplug.ledger.inputs.EACH_WHOLE", 3)
    for urgency in range(5):
        site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={urgency}\n".encode())
    expected = commanding(site, 5)
    assert kept(site) == [(1, None), (2, 1), (3, 1), (4, None), (5, 4)]
    assert [codec.dumps(inputs(site.ledger, number)) for number in range(1, 6)] == expected
    again = Ledger(site.path)
    assert codec.dumps(inputs(again, 3)) == expected[2]
    again.close()


def test_inputs_are_thinned_by_age_and_by_bytes_and_none_lacks_its_base(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurmplug.ledger.inputs.EACH_WHOLE", 3)
    for urgency in range(5):
        site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={urgency}\n".encode())
    commanding(site, 9)
    now = site.cluster.time
    site.ledger.thin(now)
    assert len(kept(site)) == 9
    sizes = [row["n"] for row in site.ledger.query("SELECT length(inputs) AS n FROM cycles ORDER BY id")]
    monkeypatch.setattr(budgets, "INPUTS", sum(sizes) - 1)
    site.ledger.thin(now)
    assert kept(site) == [(4, None), (5, 4), (6, 4), (7, None), (8, 7), (9, 7)]
    site.ledger.thin(now + DAY + 1)
    assert kept(site) == [(4, None), (7, None)]
    assert inputs(site.ledger, 4) is not None
    assert inputs(site.ledger, 5) is None


def test_inputs_whose_base_another_process_has_wiped_are_stored_whole_again(site: Site) -> None:
    for urgency in range(5):
        site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={urgency}\n".encode(), user="ada")
    commanding(site, 2)
    site.cluster.end(1, "CANCELLED")
    site.cycle()
    site.cluster.purge(1)
    site.cycle()
    with closing(Ledger(site.path)) as other:
        assert other.forget("ada").jobs
    expected = commanding(site, 2)
    whole, difference = kept(site)
    assert (whole[1], difference[1]) == (None, whole[0])
    assert [codec.dumps(inputs(site.ledger, number)) for number, _ in kept(site)] == expected


def test_no_inputs_are_left_without_their_base_as_that_becomes_too_old(site: Site) -> None:
    for urgency in range(5):
        site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={urgency}\n".encode())
    a_moment = 30 / DAY
    for keep_days, keep_inputs_days in ((400, a_moment), (a_moment, 14)):
        commanding(site, 2)
        assert [base is None for _, base in kept(site)] == [True, False]
        site.ledger.delete_old(site.cluster.time, keep_days, keep_inputs_days)
        assert kept(site) == []


def test_cycles_without_commands_and_commands_of_ended_jobs_go_after_a_month(site: Site) -> None:
    for urgency in range(5):
        site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={urgency}\n".encode())
    commanding(site, 1)
    site.cycle(3)
    for job in list(site.cluster.jobs)[:5]:
        site.cluster.end(job, "CANCELLED")
    site.cycle()
    live = site.ledger.value("SELECT count(*) FROM commands JOIN jobs ON jobs.id = job WHERE ended = 0")
    site.ledger.thin(site.cluster.time + 31 * DAY)
    assert site.ledger.value("SELECT count(*) FROM commands") == live
    assert site.ledger.value("SELECT count(*) FROM cycles") <= 2
    assert site.ledger.next_cycle() == 6


SHARE = 20
"""The site of the test has a twentieth of the GPUs, users and jobs of the one with 1,000 GPUs."""
RUNNING, A_DAY = 500 // SHARE, 1_000 // SHARE
"""Jobs that run and wait at a time, and that end in a day, each with 200 reports of two quantities."""


def test_a_year_of_a_site_with_a_thousand_gpus_takes_less_than_is_stated(site: Site) -> None:
    for number in range(2 * RUNNING):
        job = site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={number % 10}\n".encode(), user=f"user{number % 3}")
        if number < RUNNING:
            site.cluster.start(job)
            site.train(job, {at: 0.01 * at for at in range(1, 6)})
    commanding(site, 60)
    whole, difference = site.ledger.query(
        "SELECT avg(length(inputs)) AS n FROM cycles WHERE inputs IS NOT NULL"
        " GROUP BY inputs_base IS NULL ORDER BY n DESC"
    )
    row = site.ledger.value("SELECT avg(length(modes) + length(seconds) + 60) FROM cycles")
    command = site.ledger.value("SELECT avg(length(fields) + length(message) + length(id) + 80) FROM commands")
    job = site.ledger.value(
        "SELECT avg(length(directives) + length(submitted_directives) + length(comment) + length(name) + 500) FROM jobs"
    )
    point = len(json.dumps({"loss": 0.1234567890123456, "accuracy": 0.9876543210987654})) + 64
    cycles = DAY / 10
    inputs_taken = (cycles * difference["n"] + 14 * cycles / budgets.EACH_WHOLE * whole["n"]) * SHARE
    year = {
        "inputs": min(inputs_taken, budgets.INPUTS),
        "cycles": 31 * cycles * row + (365 - 31) * 1_000 * row,
        "commands": 31 * A_DAY * SHARE * 20 * command,
        "jobs": 400 * A_DAY * SHARE * job,
        "points": min(400 * A_DAY * SHARE * 200 * point, budgets.POINTS),
    }
    print({name: round(size / 2**20) for name, size in year.items()}, "MiB")
    assert inputs_taken < 3 * 2**30
    assert sum(year.values()) < 7 * 2**30
