"""prio: pending jobs in their places, and each term of their rank and of Slurm's priority."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policies.plan import Plan
from policies.snapshot import Snapshot
from slurmplug.commands import prio as prio_command
from tests.ledgers import Planned, Site

SPRIO = """#!/bin/sh
cat << END
2|1000|50|0|300|20|10|0|0|cpu=5,gres/gpu=7
5|0|60|0|300|20|10|5|100|cpu=5,gres/gpu=7
END
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        for urgency in (1, 9, 5):
            site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=%d\ntrain\n" % urgency)
        site.cluster.start(site.cluster.submit())
        site.cluster.submit(b"#!/bin/sh\ntrain\n")
        site.cluster.submit(b"#!/bin/sh\ntrain\n", priority=1_500_000.0)
        site.cycle()
        yield site


@pytest.fixture
def sprio(tmp_path: Path) -> tuple[str, str]:
    """Options by which `prio` calls a sprio that answers about jobs 2 and 5."""
    (tmp_path / "sprio").write_text(SPRIO)
    (tmp_path / "sprio").chmod(0o755)
    (tmp_path / "slurmplug.toml").write_text(f'[slurm]\nbin = "{tmp_path}"\n')
    return "--config", str(tmp_path / "slurmplug.toml")


def test_ranked_jobs_exchange_places_and_the_others_keep_those_of_slurms_priority(site: Site) -> None:
    report = site.json("prio")["jobs"]
    assert [(job["jobid"], job["position"]) for job in report] == [
        ("6", None), ("2", 1), ("3", 2), ("1", 3), ("5", None),
    ]  # fmt: skip


def test_the_terms_add_up_to_the_rank(site: Site) -> None:
    ranked = [job for job in site.json("prio")["jobs"] if job["position"]]
    for job in ranked:
        assert sum(job["terms"].values()) == pytest.approx(job["rank"])
    assert ranked[0]["terms"]["learning"] > ranked[1]["terms"]["learning"]


def test_a_column_for_each_term_of_the_policy(site: Site) -> None:
    heading, _, first, *_ = [line.split() for line in site.ask("prio").splitlines()]
    terms = site.json("prio", "-j", "2")["jobs"][0]["terms"]
    assert heading == ["RANK", "JOBID", "USER", "SCORE", *(name.upper() for name in terms), "PRIORITY"]
    assert len(first) == len(heading)


def test_long_lines_have_what_slurm_knows_too(site: Site) -> None:
    heading, _, first, *_ = [line.split() for line in site.ask("prio", "-l").splitlines()]
    values = dict(zip(heading, first, strict=True))
    label = str(site.cluster.jobs[2].get("label", 0))
    assert (values["SITEFACTOR"], values["PRIORITY"], values["QOS"]) == (label, "998000", "normal")


def test_every_term_of_slurms_priority_is_beside_ours(site: Site, sprio: tuple[str, str]) -> None:
    heading, row = site.ask("prio", *sprio, "-j", "2").splitlines()
    values = dict(zip(heading.split(), row.split(), strict=True))
    assert {name: value for name, value in values.items() if name.startswith("S:")} == {
        "S:SITE": "1000", "S:AGE": "50", "S:ASSOC": "0", "S:FAIRSHARE": "300", "S:JOBSIZE": "20", "S:PARTITION": "10",
        "S:QOS": "0", "S:NICE": "0", "S:TRES:CPU": "5", "S:TRES:GRES/GPU": "7",
    }  # fmt: skip


def test_slurms_terms_are_in_json_of_jobs_that_sprio_lists(site: Site, sprio: tuple[str, str]) -> None:
    slurms = {job["jobid"]: job["slurm"] for job in site.json("prio", *sprio)["jobs"]}
    assert slurms["5"] == {
        "SITE": 0.0, "AGE": 60.0, "ASSOC": 0.0, "FAIRSHARE": 300.0, "JOBSIZE": 20.0, "PARTITION": 10.0, "QOS": 5.0,
        "NICE": 100.0, "TRES:cpu": 5.0, "TRES:gres/gpu": 7.0,
    }  # fmt: skip
    assert slurms["3"] == {}


def test_80_columns_do_without_the_terms_that_are_0_of_all(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prio_command, "terminal_width", lambda: 80)
    heading, *lines = site.ask("prio").splitlines()
    shown = "RANK JOBID USER SCORE LEARNING REMAINING DEADLINE WAITING PRIORITY"
    assert heading.split() == shown.split()
    assert max(map(len, (heading, *lines))) <= 80
    monkeypatch.setattr(prio_command, "terminal_width", lambda: 132)
    assert "SERVER" in site.ask("prio")


def test_80_columns_do_without_slurms_terms(
    site: Site, sprio: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prio_command, "terminal_width", lambda: 80)
    lines = site.ask("prio", *sprio).splitlines()
    assert "S:" not in lines[0]
    assert max(map(len, lines)) <= 80


def test_only_pending_jobs_are_shown_of_those_that_are_named(site: Site) -> None:
    assert [job["jobid"] for job in site.json("prio", "-j", "4,3,2")["jobs"]] == ["2", "3"]


def test_the_terms_of_any_policy_become_columns(tmp_path: Path) -> None:
    def plan(snapshot: Snapshot) -> Plan:
        return Plan(np.ones(len(snapshot.jobs)), {"moon\x1bphase": np.full(len(snapshot.jobs), 1e-7)})

    with Site(tmp_path, Planned(plan)) as site:
        site.cluster.submit()
        site.cycle()
        heading, row = site.ask("prio").splitlines()
        assert heading.split()[-2:] == ["MOON\\X1BPHASE", "PRIORITY"]
        assert row.split()[-2] == "1e-07"
