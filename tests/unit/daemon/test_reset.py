"""reset: what slurmplug set in Slurm is undone, with and without a daemon."""

import fcntl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster.port import Reservation
from slurmplug.commands.reset import reset_with_ledger, reset_without_ledger
from slurmplug.config.schema import Config
from slurmplug.daemon.reset import job_number, reset_recorded, reset_unrecorded
from slurmplug.errors import ReadFailed, UsageError
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId
from tests.ledgers import ACTING, Site, run


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Three ranked jobs, two of them with a label; 4 runs and is asked to stop."""
    with Site(tmp_path) as site:
        for urgency, priority, partition in ((1, 100.0, "own"), (9, 500.0, "gpu"), (5, 900.0, "gpu")):
            script = b"#!/bin/sh\n#PLUG --urgency=%d\ntrain\n" % urgency
            site.cluster.submit(script, priority=priority, partition=partition)
        site.cluster.start(site.cluster.submit())
        site.train(4, dict.fromkeys(range(1, 8), 0.95))
        site.cycle()
        assert site_factors(site) == {1: 0, 2: 400, 3: -400, 4: 0}
        assert site.cluster.asked(4)
        yield site


def site_factors(site: Site) -> dict[int, int]:
    """In Slurm."""
    return {job_id: job.get("label", 0) for job_id, job in site.cluster.jobs.items()}


def config_of(site: Site, interval: float = 0.5) -> Config:
    return Config.from_table({**ACTING, "interval": interval, "ledger": {"path": str(site.path)}})


class TestReset:
    def test_every_label_and_every_request_goes(self, site: Site) -> None:
        result = reset_recorded(site.ledger, site.cluster)
        assert (list(result.priorities), list(result.requests), dict(result.failed)) == ([2, 3], [4], {})
        assert set(site_factors(site).values()) == {0}
        assert not site.cluster.asked(4)

    def test_doing_it_again_does_nothing(self, site: Site) -> None:
        reset_recorded(site.ledger, site.cluster)
        done = len(site.cluster.done)
        result = reset_recorded(site.ledger, site.cluster)
        assert (list(result.priorities), list(result.requests), len(site.cluster.done)) == ([], [], done)

    def test_of_one_job_alone(self, site: Site) -> None:
        result = reset_recorded(site.ledger, site.cluster, 2)
        assert (list(result.priorities), list(result.requests)) == ([2], [])
        assert site_factors(site) == {1: 0, 2: 0, 3: -400, 4: 0}
        assert site.cluster.asked(4)

    def test_a_label_that_is_not_known_is_reset_too(self, site: Site) -> None:
        site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=10\ntrain\n", priority=100.0)
        site.cluster.lose = True
        site.cycle()
        site.cluster.lose = False
        assert 5 in reset_recorded(site.ledger, site.cluster).priorities

    def test_what_slurm_refuses_is_named_and_tried_again(self, site: Site) -> None:
        site.cluster.refuse = frozenset({"update"})
        result = reset_recorded(site.ledger, site.cluster)
        assert dict(result.failed) == {
            2: "its SiteFactor: refused: Access/permission denied",
            3: "its SiteFactor: refused: Access/permission denied",
        }  # fmt: skip
        site.cluster.refuse = frozenset()
        assert list(reset_recorded(site.ledger, site.cluster).priorities) == [2, 3]

    def test_an_answer_that_got_lost_is_no_success(self, site: Site) -> None:
        site.cluster.lose = True
        assert set(reset_recorded(site.ledger, site.cluster).failed) == {2, 3, 4}
        site.cluster.lose = False
        assert list(reset_recorded(site.ledger, site.cluster).priorities) == [2, 3]

    def test_jobs_that_ended_meanwhile_are_only_counted(self, site: Site) -> None:
        site.cluster.end(2, "CANCELLED")
        del site.cluster.jobs[3]
        result = reset_recorded(site.ledger, site.cluster)
        assert (list(result.priorities), list(result.ended), dict(result.failed)) == ([], [2, 3], {})

    def test_slurm_that_does_not_answer_changes_nothing(self, site: Site) -> None:
        site.cluster.reachable = False
        with pytest.raises(ReadFailed):
            reset_recorded(site.ledger, site.cluster)
        site.cluster.reachable = True
        assert list(reset_recorded(site.ledger, site.cluster).priorities) == [2, 3]

    def test_why_explains_it(self, site: Site) -> None:
        reset_recorded(site.ledger, site.cluster)
        assert "An operator ran `slurmplug reset`; its SiteFactor was set to 0." in site.ask("why", "2")
        assert "finished: withdrawn by an operator." in site.ask("why", "4")


class TestTheDaemonAfterwards:
    def from_elsewhere(self, site: Site, only: int | None = None) -> None:
        """By another process' connection, as the command does."""
        other = Ledger(site.path)
        try:
            reset_recorded(other, site.cluster, only)
        finally:
            other.close()

    def test_it_sets_them_anew_once_it_may(self, site: Site) -> None:
        self.from_elsewhere(site)
        site.cycle()
        assert site_factors(site) == {1: 0, 2: 400, 3: -400, 4: 0}

    def test_a_paused_one_leaves_them_reset(self, site: Site) -> None:
        site.ledger.set_control("paused", "")
        self.from_elsewhere(site)
        site.cycle(3)
        assert set(site_factors(site).values()) == {0}
        assert site.ledger.query("SELECT count(*) AS n FROM jobs WHERE label != 0")[0]["n"] == 0

    def test_a_stop_that_was_withdrawn_is_not_continued(self, site: Site) -> None:
        site.ledger.set_control("paused", "")
        self.from_elsewhere(site)
        site.cycle(20)
        assert "cancel" not in site.cluster.verbs()
        assert not site.cluster.asked(4)

    def test_a_job_that_was_reset_is_never_touched_again(self, site: Site) -> None:
        site.ledger.give_back([2])
        self.from_elsewhere(site, 2)
        site.cycle(3)
        assert site_factors(site)[2] == 0


class TestTheCommand:
    def test_all_is_reset_after_a_pause(self, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
        assert reset_with_ledger(config_of(site), site.ledger, site.cluster, None, "an emergency")
        assert site.ledger.control("paused") == "an emergency"
        assert "reset: priorities 2, requests to jobs 1, shapes and constraints 0" in capsys.readouterr().out

    def test_a_pause_that_was_there_keeps_its_reason(self, site: Site) -> None:
        site.ledger.set_control("paused", "upgrade")
        reset_with_ledger(config_of(site), site.ledger, site.cluster, None, "reset")
        assert site.ledger.control("paused") == "upgrade"

    def test_one_job_is_left_alone_for_good_without_a_pause(self, site: Site) -> None:
        assert reset_with_ledger(config_of(site), site.ledger, site.cluster, 2, "reset")
        assert site.ledger.control("paused") is None
        site.cycle(2)
        assert site_factors(site)[2] == 0

    def test_a_job_that_is_not_known_is_refused(self, site: Site) -> None:
        with pytest.raises(UsageError, match="no job 99"):
            reset_with_ledger(config_of(site), site.ledger, site.cluster, 99, "reset")

    def test_an_element_of_an_array_has_a_number_of_its_own(self, site: Site) -> None:
        array = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=5\ntrain\n", array_id=5, array_task=0)
        element = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=5\ntrain\n", array_id=array, array_task=1)
        site.cycle()
        assert job_number(site.ledger, JobId.parse(f"{array}_1")) == element
        assert job_number(site.ledger, JobId.parse("2")) == 2

    def test_an_element_that_is_not_known_is_no_other_job(self, site: Site) -> None:
        with pytest.raises(UsageError, match="no job 2_1 that has not ended"):
            job_number(site.ledger, JobId.parse("2_1"))

    @pytest.mark.parametrize("job", ["x", "0x2", "2_", "-2"])
    def test_what_is_no_job_is_refused(self, job: Any) -> None:
        result = run("reset", "--job", job)
        assert result.exit_code == 1
        assert "Bad job specified" in result.output

    def test_what_is_left_is_named(self, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
        site.cluster.refuse = frozenset({"update"})
        assert not reset_with_ledger(config_of(site), site.ledger, site.cluster, None, "reset")
        assert "not reset: job 2, its SiteFactor: refused" in capsys.readouterr().out

    def test_with_a_daemon_it_waits_for_a_cycle_that_saw_the_pause_and_looks_again(
        self, site: Site, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The daemon was in the middle of a cycle, and writes a label after the first look."""

        def cycle_at_work() -> None:
            site.cluster.jobs[1]["label"] = 7
            ledger = Ledger(site.path)
            try:
                intake: Any = site.scheduler.intake
                key = intake._records[1].key
                ledger.finish(0, (), {key: 7.0}, site.cluster.time, {})
                ledger.record_failed_read("mlfs", "", site.cluster.time + 1.0)
            finally:
                ledger.close()

        late = threading.Timer(0.3, cycle_at_work)
        with site.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            late.start()
            assert reset_with_ledger(config_of(site), site.ledger, site.cluster, None, "reset")
        late.join()
        assert set(site_factors(site).values()) == {0}
        assert capsys.readouterr().out.count("reset: priorities") == 2

    def test_a_daemon_that_hangs_is_reported(self, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
        settings = {"interval": 0.1, "slurm": {"timeout": 0.1}, "ledger": {"path": str(site.path)}}
        config = Config.from_table(settings)
        with site.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert not reset_with_ledger(config, site.ledger, site.cluster, None, "reset")
        assert "the daemon has not begun a cycle" in capsys.readouterr().out

    def test_without_slurm_the_command_says_so(self, site: Site, tmp_path: Path) -> None:
        file = tmp_path / "slurmplug.toml"
        file.write_text(f'[ledger]\npath = "{site.path}"\n[slurm]\nbin = "{tmp_path}"\n[spool]\npath = "{tmp_path}"\n')
        result = run("reset", "--config", str(file))
        assert result.exit_code == 1
        assert "Error: " in result.output
        assert site_factors(site)[2] == 400


class TestWithoutALedger:
    def test_every_site_factor_and_request_that_can_be_seen_goes(self, site: Site) -> None:
        result, doubts = reset_unrecorded(site.cluster)
        assert (list(result.priorities), list(result.requests), dict(result.failed)) == ([2, 3], [4], {})
        assert set(site_factors(site).values()) == {0}
        assert not site.cluster.asked(4)
        assert (list(doubts.unread), list(doubts.held)) == ([], [])

    def test_reservations_by_our_name_go_and_others_stay(self, site: Site) -> None:
        for name in ("slurmplug-2", "slurmplug-lesson", "lesson"):
            site.cluster.reservations.append(Reservation(name, frozenset(), frozenset(), frozenset(), 0.0, 1e12))
        site.cluster.jobs[2]["reservation"] = "slurmplug-2"
        assert list(reset_unrecorded(site.cluster)[0].reservations) == [2]
        assert [each.name for each in site.cluster.reservations] == ["slurmplug-lesson", "lesson"]
        assert site.cluster.jobs[2]["reservation"] == ""

    def test_who_waited_for_admission_is_released_and_other_holds_are_only_reported(self, site: Site) -> None:
        for job_id in (1, 2):
            site.cluster.jobs[job_id] |= {"priority": 0.0, "reason": "JobHeldAdmin"}
        site.cluster.jobs[3] |= {"priority": 0.0, "reason": "JobHeldUser"}
        site.cluster.waiting = frozenset({2, 3, 99})
        result, doubts = reset_unrecorded(site.cluster)
        assert list(result.holds) == [2]
        assert list(doubts.held) == [1]
        assert [site.cluster.jobs[job_id]["reason"] for job_id in (1, 2, 3)] == [
            "JobHeldAdmin",
            "Priority",
            "JobHeldUser",
        ]

    def test_of_one_job_alone(self, site: Site) -> None:
        result, _ = reset_unrecorded(site.cluster, 2)
        assert (list(result.priorities), list(result.requests)) == ([2], [])
        assert site_factors(site) == {1: 0, 2: 0, 3: -400, 4: 0}

    def test_what_slurm_refuses_is_named_and_no_success(self, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
        site.cluster.refuse = frozenset({"update"})
        assert not reset_without_ledger(config_of(site), site.cluster, None)
        assert "not reset: job 2, its SiteFactor: refused" in capsys.readouterr().out

    def test_what_cannot_be_read_is_named_and_no_success(self, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
        site.cluster.untold = ("SiteFactors: sprio exits 1",)
        assert not reset_without_ledger(config_of(site), site.cluster, None)
        assert "could not be read: SiteFactors: sprio exits 1" in capsys.readouterr().out

    def test_a_daemon_that_still_runs_is_reported(self, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
        with site.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert not reset_without_ledger(config_of(site), site.cluster, None)
        assert "stop it, and run reset again" in capsys.readouterr().out
        assert reset_without_ledger(config_of(site), site.cluster, None)


def test_an_array_that_is_reset_is_left_alone_with_the_elements_that_start_later(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        array = site.cluster.submit(elements=3, array_id=1)
        site.cycle()
        assert reset_with_ledger(config_of(site), site.ledger, site.cluster, array, "reset")
        element, other = (site.cluster.submit(array_id=array, array_task=0), site.cluster.submit())
        site.cluster.jobs[array]["elements"] = 2
        for job in (element, other):
            site.cluster.start(job)
        site.cycle()
        for job in (element, other):
            site.train(job, dict.fromkeys(range(1, 8), 0.95))
        site.cycle()
        assert not site.cluster.asked(element)
        assert site.cluster.asked(other)
