"""What the log says a cycle did."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policies.plan import Plan
from tests.ledgers import Planned, Site
from tests.schedulers import configure


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="slurmplug.cycle.events"):
        yield caplog


def test_a_stop_is_logged_when_it_begins_and_when_it_ends(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    with Site(tmp_path) as site:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target\ntrain\n")
        site.cluster.start(job)
        site.train(job, {i: 0.80 + i / 50 for i in range(1, 7)})
        site.cycle()
        stops = [record for record in said.records if record.getMessage().startswith("stop of job")]
        (user,) = {row["User"] for row in site.table("--allusers")}
        assert [record.getMessage() for record in stops] == [f"stop of job {job} of {user}, by the rule target: begins"]
        assert stops[0].event_fields == {  # type: ignore[attr-defined]
            "event": "stop", "job": job, "user": user, "rule": "target", "state": "begins",
        }  # fmt: skip
        said.clear()
        site.cycle()
        assert not [each for each in said.messages if each.startswith("stop")]
        site.cluster.end(job)
        site.cycle(2)
        (ended,) = [each for each in said.messages if each.startswith("stop")]
        assert ended == f"stop of job {job} of {user}, by the rule target: stopped"


def test_a_batch_of_writes_is_one_line_with_its_largest_step(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    with Site(tmp_path, Planned(lambda snapshot: Plan(score=-np.arange(float(len(snapshot.jobs)))[::-1]))) as site:
        for _ in range(3):
            site.cluster.submit()
        record = site.cycle()
        writes = [each for each in said.records if "priorities written" in each.getMessage()]
        assert len(writes) == 1
        fields = writes[0].event_fields  # type: ignore[attr-defined]
        assert fields["writes"] == fields["done"] == len(record.commands) > 0
        assert abs(fields["largest_step"]) == max(abs(float(each.fields["SiteFactor"])) for each in record.commands)
        assert fields["rule"] == "planned"


def test_modes_are_logged_when_they_change(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    with Site(tmp_path) as site:
        site.cycle(2)
        modes = site.scheduler.config.mode.replaced(stop="observe")
        configure(site.scheduler, mode=modes)
        site.cycle(2)
        lines = [each for each in said.messages if each.startswith("modes: ")]
        assert ["stop observe" in line for line in lines] == [False, True]


def test_pause_and_resume_are_changes_of_the_modes(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    with Site(tmp_path) as site:
        site.cycle()
        for command in ("pause", "resume"):
            site.ask(command)
            said.clear()
            site.cycle(2)
            (line,) = [each for each in said.messages if each.startswith("modes: ")]
            assert line.endswith("; no commands are sent: paused") == (command == "pause")
