"""Idle GPUs in cycles: told first, then stopped by the operation of every stop, within what limits every stop."""

from pathlib import Path
from typing import Any

import pytest

from slurmplug.config.schema import Modes
from slurmplug.ledger import notifications
from slurmplug.ledger.notifications import SENT, Delivery, Told
from slurmplug.reports.notifications import IDLE_REPORTS, due
from tests.ledgers import Site
from tests.schedulers import configure

AFTER = 3_600.0
SCRIPT = b"#!/bin/sh\n#PLUG --stop=iterations --max-iterations=50\ntrain\n"
SETTINGS = {"stop": {"idle_gpus": AFTER}, "notifications": {"mail": "all"}}


class IdleSite(Site):
    """A site that stops jobs with idle GPUs, and its job 1."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **{**SETTINGS, **settings})
        self.cluster.start(self.cluster.submit(SCRIPT, gpus=4, time_limit=86_400.0))
        self.cycle()

    def use(self, share: float, seconds: float) -> None:
        """The job's GPUs are so much in use for so long."""
        for _ in range(int(seconds / 30.0)):
            self.cluster.time += 30.0
            self.cluster.say(1, load={"gpu": share})
        self.cycle(seconds=1.0)

    def tell(self, result: str = SENT) -> list[str]:
        """What is due is told; the texts."""
        found = due(self.ledger, self.scheduler.config, self.cluster.time)
        announced = {each.about: each.stops_after for each in found if each.stops_after is not None}
        notifications.record(self.ledger, [each.about for each in found], self.cluster.time, announced)
        notifications.record_results(self.ledger, [Delivery(each.about, result) for each in found])
        return [each.text for each in found]


def test_a_job_is_told_first_and_then_asked_to_stop(tmp_path: Path) -> None:
    with IdleSite(tmp_path) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        site.use(0.01, 2 * AFTER)
        assert not site.cluster.asked(1), "its user was not told yet"
        [text] = site.tell()
        assert text.endswith("If they stay so, slurmplug stops the job once it has run on for 01:00:00.")
        site.use(0.01, AFTER - 60.0)
        assert not site.cluster.asked(1)
        site.use(0.01, 60.0)
        assert site.cluster.asked(1)
        site.cluster.end(1)
        site.cycle(2)
        assert site.table("-a", "-S", "2023-11-01", "-o", "stop") == [{"Stop": "idle GPUs"}]
        assert "Its GPUs are idle by its own reports, also after 1.00 h since its user was told so." in site.ask(
            "why", "1"
        )


def test_one_that_picks_up_is_not(tmp_path: Path) -> None:
    with IdleSite(tmp_path) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        assert site.tell()
        site.use(0.9, 60.0)
        site.use(0.01, 10 * AFTER)
        assert not site.cluster.asked(1)


def test_a_request_is_taken_back_when_it_picks_up(tmp_path: Path) -> None:
    with IdleSite(tmp_path) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        assert site.tell()
        site.use(0.01, AFTER)
        assert site.cluster.asked(1)
        site.use(0.9, 30.0)
        site.cycle()
        assert not site.cluster.asked(1)


@pytest.mark.parametrize("result", ["no mail: /usr/bin/mail exits 1", "unknown"])
def test_nobody_is_stopped_whose_notification_was_not_sent(tmp_path: Path, result: str) -> None:
    with IdleSite(tmp_path) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        assert site.tell(result)
        site.use(0.01, 2 * AFTER)
        assert not site.cluster.asked(1)


@pytest.mark.parametrize(
    "settings",
    [{"stop": {}}, {"guardrails": {"exclude_users": ["ada"]}}, {"guardrails": {"stops_per_hour": 0}}],
    ids=["not set", "excluded", "budget"],
)
def test_what_limits_other_stops_limits_these(tmp_path: Path, settings: dict[str, Any]) -> None:
    with IdleSite(tmp_path, **settings) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        [text] = site.tell()
        assert ("slurmplug stops the job" in text) == ("stop" not in settings)
        site.use(0.01, 2 * AFTER)
        assert not site.cluster.asked(1)


@pytest.mark.parametrize(("later", "wrong", "right"), [(0.01, 0, 1), (0.9, 1, 0)])
def test_where_it_only_observes_it_shows_what_it_would_have_stopped(
    tmp_path: Path, later: float, wrong: int, right: int
) -> None:
    with IdleSite(tmp_path, mode={"default": "observe"}) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        assert [("slurmplug stops" in text) for text in site.tell()] == [False]
        site.use(0.01, AFTER)
        assert not site.cluster.asked(1)
        site.use(later, AFTER)
        site.cluster.end(1)
        site.cycle()
        [found] = site.json("savings")["prevented"]["rows"]
        assert (found["rule"], found["wrong"], found["right"]) == ("idle GPUs", wrong, right)
        assert found["gpu_hours"]["value"] == pytest.approx(4.0, abs=0.1)


def test_told_before_it_began_again_is_told_of_another_run(tmp_path: Path) -> None:
    with IdleSite(tmp_path) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        assert site.tell()
        site.cluster.requeue(1)
        site.cycle()
        site.cluster.start(1)
        site.use(0.01, 2 * AFTER)
        assert not site.cluster.asked(1)
        assert notifications.told(site.ledger, [1]).keys() == {Told(1, "idle GPUs")}


def test_one_who_was_told_before_the_site_stopped_such_jobs_is_not_stopped(tmp_path: Path) -> None:
    with IdleSite(tmp_path, mode={"default": "observe"}) as site:
        site.use(0.01, IDLE_REPORTS * 30.0)
        assert site.tell()
        configure(site.scheduler, mode=Modes(default="act"))
        site.use(0.01, 2 * AFTER)
        assert not site.cluster.asked(1)
