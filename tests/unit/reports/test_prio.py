"""prio: each term of the rank."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policies.plan import Plan
from policies.snapshot import Snapshot
from slurmplug.commands import prio as prio_command
from tests.ledgers import Planned, Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        for urgency in (1, 9, 5):
            site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=%d\ntrain\n" % urgency)
        site.cluster.start(site.cluster.submit())
        site.cluster.submit(b"#!/bin/sh\ntrain\n")
        site.cycle()
        yield site


def test_pending_jobs_in_order_with_terms_that_add_up_to_the_rank(site: Site) -> None:
    report = site.json("prio")["jobs"]
    assert [(job["jobid"], job["position"]) for job in report] == [("2", 1), ("3", 2), ("1", 3)]
    for job in report:
        assert sum(job["terms"].values()) == pytest.approx(job["rank"])
    assert report[0]["terms"]["learning"] > report[1]["terms"]["learning"]


def test_a_column_for_each_term_of_the_policy(site: Site) -> None:
    heading, first, *_ = [line.split() for line in site.ask("prio").splitlines()]
    terms = site.json("prio")["jobs"][0]["terms"]
    assert heading == ["RANK", "JOBID", "USER", "SCORE", *(name.upper() for name in terms)]
    assert len(first) == len(heading)


def test_long_lines_have_slurms_side_too(site: Site) -> None:
    heading, first, *_ = [line.split() for line in site.ask("prio", "-l").splitlines()]
    values = dict(zip(heading, first, strict=True))
    label = str(site.cluster.jobs[2].get("label", 0))
    assert (values["SITEFACTOR"], values["PRIORITY"], values["QOS"]) == (label, "998000", "normal")


def test_80_columns_do_without_the_terms_that_are_0_of_all(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prio_command, "terminal_width", lambda: 80)
    heading, *lines = site.ask("prio").splitlines()
    assert heading.split() == ["RANK", "JOBID", "USER", "SCORE", "LEARNING", "REMAINING", "DEADLINE", "WAITING"]
    assert max(map(len, (heading, *lines))) <= 80
    monkeypatch.setattr(prio_command, "terminal_width", lambda: 132)
    assert "SERVER" in site.ask("prio")


def test_only_pending_jobs_are_shown_of_those_that_are_named(site: Site) -> None:
    assert [job["jobid"] for job in site.json("prio", "-j", "4,3,2")["jobs"]] == ["2", "3"]


def test_what_has_no_rank_is_not_shown(site: Site) -> None:
    assert site.json("prio", "-j", "5")["jobs"] == []
    assert site.ask("prio", "-n", "-j", "5") == ""


def test_the_terms_of_any_policy_become_columns(tmp_path: Path) -> None:
    def plan(snapshot: Snapshot) -> Plan:
        return Plan(np.ones(len(snapshot.jobs)), {"moon\x1bphase": np.full(len(snapshot.jobs), 1e-7)})

    with Site(tmp_path, Planned(plan)) as site:
        site.cluster.submit()
        site.cycle()
        heading, row = site.ask("prio").splitlines()
        assert heading.split()[-1] == "MOON\\X1BPHASE"
        assert row.split()[-1] == "1e-07"
