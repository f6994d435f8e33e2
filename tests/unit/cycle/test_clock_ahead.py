"""A clock that was ahead for a while, as that of a controller that started without the time: once it is right again,
what happened meanwhile holds nothing up, though the ledger has it at times that are still to come."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurmplug.intake.intake import ENDING_TIMEOUT
from slurmplug.ledger.budgets import INPUTS_EVERY
from tests.ledgers import Site

MONTH = 30 * 86_400.0
AT_TARGET = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target\ntrain\n"


@contextmanager
def ahead(site: Site) -> Iterator[None]:
    """The clock is a month ahead; afterwards one cycle notices that it went back."""
    site.cluster.time += MONTH
    yield
    site.cluster.time -= MONTH
    verdict = site.cycle().verdict
    assert verdict.frozen is not None
    assert verdict.frozen.rule == "clock jump"


def reaches_its_target(site: Site) -> int:
    job = site.cluster.submit(AT_TARGET)
    site.cluster.start(job)
    site.train(job, {at: 0.80 + at / 50 for at in range(1, 7)})
    site.cycle()
    return job


def test_the_stops_of_that_time_spend_no_budget(tmp_path: Path) -> None:
    with Site(tmp_path, guardrails={"stops_per_hour": 1, "stops_per_user": 1}) as site:
        with ahead(site):
            before = reaches_its_target(site)
            assert site.cluster.asked(before)
            site.cluster.end(before)
            site.cycle()
        assert site.cluster.asked(reaches_its_target(site))


@pytest.mark.parametrize("back", [0.0, 1_800.0])
def test_a_clock_that_is_set_back_by_less_than_an_hour_gives_no_second_budget(tmp_path: Path, back: float) -> None:
    with Site(tmp_path, guardrails={"stops_per_hour": 1, "stops_per_user": 1}) as site:
        assert site.cluster.asked(reaches_its_target(site))
        site.cluster.time -= back
        site.cycle()
        assert not site.cluster.asked(reaches_its_target(site))


def test_the_failures_of_that_time_keep_the_breaker_open_no_longer_than_others(tmp_path: Path) -> None:
    with Site(tmp_path, guardrails={"breaker_failures": 2, "breaker_rest": 600.0}) as site:
        site.cluster.refuse = frozenset({"ask"})
        with ahead(site):
            reaches_its_target(site)
            frozen = site.cycle(3).verdict.frozen
            assert frozen is not None
            assert frozen.rule == "breaker"
        site.cluster.refuse = frozenset()
        assert site.cluster.asked(reaches_its_target(site))


def test_jobs_that_vanished_at_that_time_freeze_cycles_no_longer_than_others(tmp_path: Path) -> None:
    """slurmdbd does not tell how they ended."""
    with Site(tmp_path) as site:
        site.cluster.time += MONTH
        for _ in range(40):
            site.cluster.submit()
        site.cycle()
        for job in list(site.cluster.jobs)[:35]:
            site.cluster.purge(job)
        site.cluster.accounting.clear()
        site.cluster.time -= MONTH
        site.cycle()
        frozen = site.cycle().verdict.frozen
        assert frozen is not None
        assert frozen.rule == "partial snapshot"
        assert site.cycle(6).verdict.frozen is None
        site.cycle(seconds=ENDING_TIMEOUT)
        assert site.ledger.value("SELECT count(*) FROM jobs WHERE state = 'UNKNOWN'") == 35


def test_the_inputs_of_cycles_are_kept_on(tmp_path: Path) -> None:
    with Site(tmp_path, mode={"default": "observe"}) as site:
        site.cluster.submit()
        with ahead(site):
            site.cycle()
        kept = site.ledger.value("SELECT count(*) FROM cycles WHERE inputs IS NOT NULL")
        site.cycle(2, seconds=INPUTS_EVERY)
        assert site.ledger.value("SELECT count(*) FROM cycles WHERE inputs IS NOT NULL") >= kept + 1
