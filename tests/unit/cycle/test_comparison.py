"""SiteFactors that Slurm lost are written again; those that somebody else set are left alone, and that is said."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from policies.plan import Plan
from policies.snapshot import JobKey
from slurmplug.cluster.port import Command, Outcome
from slurmplug.cycle.comparison import Comparison
from slurmplug.daemon.reset import reset_recorded
from slurmplug.errors import ReadFailed
from slurmplug.ledger.ledger import Ledger
from tests.builders import CLUSTER, NOW
from tests.fake_cluster import FakeCluster
from tests.ledgers import Planned, Site
from tests.schedulers import begun


def by_id(folder: Path, **settings: object) -> Site:
    return Site(
        folder, Planned(lambda seen: Plan(np.array([key.job_id for key in seen.jobs.keys], dtype=float))), **settings
    )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Four pending jobs, ranked by id, whose SiteFactors are in place and were compared."""
    with by_id(tmp_path) as one:
        for _ in range(4):
            one.cluster.submit()
        one.cycle(2)
        yield one


def in_slurm(site: Site) -> dict[int, int]:
    return {job_id: job.get("label", 0) for job_id, job in site.cluster.jobs.items()}


def in_ledger(site: Site) -> dict[int, float]:
    return {row["job_id"]: row["label"] for row in site.ledger.query("SELECT job_id, label FROM jobs")}


def in_order(site: Site) -> list[int]:
    """The jobs by Slurm's priority, the highest last."""
    jobs = site.cluster.jobs
    return sorted(jobs, key=lambda job: jobs[job]["priority"] + jobs[job].get("label", 0))


def killed(cluster: FakeCluster, site_factors: dict[int, int]) -> None:
    """slurmctld died and started again, with what it had saved last."""
    cluster.booted = cluster.time
    for job_id, site_factor in site_factors.items():
        cluster.jobs[job_id]["label"] = site_factor


@pytest.mark.parametrize("saved", [{1: 0, 2: 0, 3: 0, 4: 0}, {1: 4, 2: 0, 3: 0, 4: 0}], ids=["none", "an older one"])
def test_site_factors_that_a_slurmctld_lost_are_written_again_in_the_next_cycle(
    site: Site, saved: dict[int, int]
) -> None:
    before = in_slurm(site)
    assert len(set(before.values())) == 4
    killed(site.cluster, saved)
    site.cycle(seconds=1.0)
    after = in_slurm(site)
    assert after == in_ledger(site)
    assert in_order(site) == [1, 2, 3, 4]
    assert len(set(after.values())) == 4
    assert "set by others" not in site.ask("queue")


@pytest.mark.parametrize("saved", [{1: 0, 2: 0, 3: 0, 4: 0}, {1: 4, 2: 0, 3: 0, 4: 0}], ids=["none", "an older one"])
@pytest.mark.parametrize("cycles", [1, 2])
def test_two_starts_of_slurmctld_within_a_second_lose_nothing(
    tmp_path: Path, saved: dict[int, int], cycles: int
) -> None:
    """Slurm tells when it was started in whole seconds; what it shows as priorities tells what is gone."""
    with by_id(tmp_path) as site:
        for _ in range(4):
            site.cluster.submit()
        site.cluster.booted = site.cluster.time
        site.cycle(cycles, seconds=0.2)
        for job_id, site_factor in saved.items():
            site.cluster.jobs[job_id]["label"] = site_factor
        site.cycle(seconds=0.2)
        assert in_order(site) == [1, 2, 3, 4]
        assert len(set(in_slurm(site).values())) == 4
        site.cycle(2)
        assert in_order(site) == [1, 2, 3, 4]
        assert "set by others" not in site.ask("queue")


def test_a_daemon_that_starts_again_finds_what_is_gone(site: Site) -> None:
    killed(site.cluster, {1: 0, 2: 0, 3: 0, 4: 0})
    scheduler = site.scheduler
    site.scheduler = begun(scheduler.port, scheduler.policy, site.ledger, scheduler.config)
    site.cycle(seconds=1.0)
    assert in_slurm(site) == in_ledger(site)
    assert len(set(in_slurm(site).values())) == 4


@pytest.mark.parametrize("value", [7777, -50, 0])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_somebody_else_set_is_left_alone_and_said(site: Site, value: int, restarts: bool) -> None:
    site.cluster.jobs[2]["label"] = value
    if restarts:
        scheduler = site.scheduler
        site.scheduler = begun(scheduler.port, scheduler.policy, site.ledger, scheduler.config)
    for _ in range(3):
        site.cluster.submit()
        site.cycle()
    assert in_slurm(site)[2] == in_ledger(site)[2] == value
    others = [in_slurm(site)[job] for job in (1, 3, 4, 5, 6, 7)]
    assert others == sorted(set(others))
    assert f"Somebody else set its SiteFactor to {value}; slurmplug ranks it again once" in site.ask("why", "2")
    assert site.ask("queue").count("Slurm's (set by others)") == 1
    assert "1 job not ranked, as somebody else set the SiteFactor" in site.ask("status", code=1)


def test_what_was_set_between_a_write_and_the_next_comparison_is_left_alone(tmp_path: Path) -> None:
    with by_id(tmp_path) as site:
        site.cluster.submit()
        site.cluster.submit()
        site.cycle()
        site.cluster.jobs[2]["label"] = 7777
        site.cycle(2)
        assert in_slurm(site)[2] == 7777


def test_what_was_set_on_a_job_that_slurmplug_never_wrote_to_is_left_alone(site: Site) -> None:
    new = site.cluster.submit()
    site.cluster.jobs[new]["label"] = 7777
    site.cycle(2)
    assert in_slurm(site)[new] == 7777


def test_a_ledger_that_is_new_takes_the_site_factors_that_it_finds_for_its_own(tmp_path: Path) -> None:
    with by_id(tmp_path) as site:
        for label in (90, 40, 60, 50):
            site.cluster.jobs[site.cluster.submit()]["label"] = label
        site.cycle(2)
        assert in_order(site) == [1, 2, 3, 4]
        assert "set by others" not in site.ask("queue")


def test_setting_it_to_0_gives_the_job_back_to_slurmplug(site: Site) -> None:
    site.cluster.jobs[2]["label"] = 7777
    site.cycle()
    site.cluster.jobs[2]["label"] = 0
    site.cycle()
    after = in_slurm(site)
    assert after[2] == in_ledger(site)[2]
    assert in_order(site) == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [7777, 0])
def test_resume_gives_the_job_back_to_slurmplug(site: Site, value: int) -> None:
    site.cluster.jobs[2]["label"] = value
    site.cycle()
    assert "job 2 is ranked again" in site.ask("resume", "--job", "2")
    site.cycle()
    after = in_slurm(site)
    assert after[2] == in_ledger(site)[2] != value
    assert in_order(site) == [1, 2, 3, 4]


def test_resume_refuses_a_job_whose_site_factor_nobody_else_set(site: Site) -> None:
    assert "no SiteFactor that somebody else set" in site.ask("resume", "--job", "2", code=1)


def test_reset_leaves_what_somebody_else_set(site: Site) -> None:
    site.cluster.jobs[2]["label"] = 7777
    site.cycle()
    reset_recorded(site.ledger, site.cluster)
    assert in_slurm(site) == {1: 0, 2: 7777, 3: 0, 4: 0}


def test_what_reset_set_to_0_was_not_set_by_others(site: Site) -> None:
    """Also where the daemon has a cycle between the reset in Slurm and that in the ledger."""
    with closing(Ledger(site.path)) as other:
        other.set_control("paused", "reset")
        for job in site.cluster.jobs.values():
            job["label"] = 0
        site.cycle()
        reset_recorded(other, site.cluster)
        other.set_control("paused", None)
    site.cycle()
    assert len(set(in_slurm(site).values())) == 4
    assert "set by others" not in site.ask("queue")


def test_a_job_whose_site_factor_was_set_is_still_stopped_as_its_user_asked(site: Site) -> None:
    site.cluster.jobs[2]["label"] = 7777
    site.cycle()
    site.cluster.start(2)
    record = site.cycle()
    row = record.snapshot.jobs.keys.index(next(key for key in record.snapshot.jobs.keys if key.job_id == 2))
    rules = {rule for rule, mask in record.verdict.protected_by.items() if mask[row]}
    assert rules == {"set by others"}
    assert np.isnan(record.verdict.score[row])


def test_what_slurm_does_not_show_stays_as_it_is_known(site: Site) -> None:
    known = in_ledger(site)[2]
    site.cluster.jobs[2] |= {"eligible": NOW + 1e6, "reason": "BeginTime", "label": 0}
    site.cycle()
    assert in_ledger(site)[2] == known
    assert "set by others" not in site.ask("queue")


def test_a_job_whose_priority_is_pinned_is_left_alone(site: Site) -> None:
    site.cluster.jobs[2] |= {"pinned": True, "label": 0}
    site.cycle(2)
    assert in_ledger(site)[2] is None
    assert not any(command.job.job_id == 2 for command in site.cycle(2).commands)
    assert "set by others" not in site.ask("queue")


def test_a_write_whose_answer_got_lost_is_looked_for_at_once(tmp_path: Path) -> None:
    with by_id(tmp_path, priority={"compare": 1e6}) as site:
        for _ in range(3):
            site.cluster.submit()
        site.cluster.lose = True
        site.cycle()
        compared = site.cluster.compared
        assert site.cycle(seconds=1.0).commands == ()
        assert site.cluster.compared == compared + 1
        assert in_slurm(site) == in_ledger(site)
        site.cycle()
        assert site.cluster.compared == compared + 1


def test_a_write_that_slurm_put_off_is_tried_again_soon_but_not_in_every_cycle(tmp_path: Path) -> None:
    with by_id(tmp_path, priority={"compare": 60.0}) as site:
        for _ in range(3):
            site.cluster.submit()
        site.cluster.put_off = True
        tried = [len(site.cycle(seconds=5.0).commands) for _ in range(9)]
        assert tried == [2, 0, 0, 2, 0, 0, 2, 0, 0]
        site.cluster.put_off = False
        site.cycle(seconds=5.0)
        assert in_order(site) == [1, 2, 3]
        assert len(set(in_slurm(site).values())) == 3
        assert in_slurm(site) == in_ledger(site)


def test_a_comparison_that_fails_leaves_the_cycle_to_go_on_and_is_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, booted = site.cluster.compared, site.cluster.booted
    site.cluster.jobs[4]["label"] = 7777
    for _ in range(2):
        site.cluster.submit(partition="own")
    with monkeypatch.context() as patch:
        asked = site.cluster.site_factors_in_slurm
        patch.setattr(site.cluster, "site_factors_in_slurm", lambda _: asked(booted - 1.0))
        assert site.cycle().commands
    site.cycle(seconds=1.0)
    assert site.cluster.compared == compared + 2
    assert "Slurm's (set by others)" in site.ask("queue")


@pytest.mark.parametrize("lost", [False, True], ids=["nothing lost", "slurmctld lost what was written"])
def test_where_sprio_is_never_answered_what_is_in_order_is_not_written_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    def refused(_: float) -> dict[int, int]:
        raise ReadFailed("sprio answers 'Access/permission denied'")

    monkeypatch.setattr(site.cluster, "site_factors_in_slurm", refused)
    if lost:
        killed(site.cluster, {1: 0, 2: 0, 3: 0, 4: 0})
    written = [len(site.cycle(seconds=61.0).commands) for _ in range(6)]
    assert written[2:] == [0, 0, 0, 0]
    assert bool(sum(written)) == lost
    assert in_order(site) == [1, 2, 3, 4]
    last = site.cluster.submit()
    assert [len(site.cycle(seconds=61.0).commands) > 0 for _ in range(3)] == [True, False, False]
    assert in_order(site) == [1, 2, 3, 4, last]


def test_where_ranks_are_only_observed_nothing_is_compared(tmp_path: Path) -> None:
    with by_id(tmp_path, mode={"default": "act", "rank": "observe"}) as site:
        site.cluster.submit()
        site.cycle(3)
        assert site.cluster.compared == 0


class TestWhenItIsDue:
    def test_at_first_and_after_the_interval(self) -> None:
        assert Comparison().due(NOW, 5.0, 60.0)
        assert not Comparison(NOW, 5.0).due(NOW + 59.0, 5.0, 60.0)
        assert Comparison(NOW, 5.0).due(NOW + 60.0, 5.0, 60.0)

    def test_when_another_slurmctld_answers_or_the_clock_went_back(self) -> None:
        assert Comparison(NOW, 5.0).due(NOW, 6.0, 60.0)
        assert Comparison(NOW, 5.0).due(NOW - 1.0, 5.0, 60.0)

    @pytest.mark.parametrize(("status", "field", "due"), [
        ("done", "SiteFactor", False), ("refused", "SiteFactor", True), ("unknown", "SiteFactor", True),
        ("unknown", "Gres", False),
    ])  # fmt: skip
    def test_after_a_write_that_was_not_carried_out(self, status: str, field: str, due: bool) -> None:
        command = Command("1", "update", JobKey(CLUSTER, 1, 0), {field: "5"})
        after = Comparison(NOW, 5.0).after([command], [Outcome("1", status)])  # type: ignore[arg-type]
        assert after.due(NOW, 5.0, 60.0) == due
