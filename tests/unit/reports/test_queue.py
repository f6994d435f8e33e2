"""queue: the live queue in order, with what is done and would be."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.commands import queue as queue_command
from slurmplug.console import times
from tests.builders import NOW
from tests.ledgers import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def busy(site: Site) -> Site:
    """1 runs, 2 is not managed, 3 and 4 wait, 4 before 3."""
    site.cluster.start(site.cluster.submit())
    site.cluster.submit(b"#!/bin/sh\ntrain\n", user="eve")
    for urgency in (1, 9):
        site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=%d --deadline=2h\ntrain\n" % urgency, user="bob")
    site.train(1, {1: 0.1, 30: 0.5}, loss=0.7)
    site.cycle()
    return site


def rows(shown: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines()]


def test_running_jobs_come_first_then_the_ranked_in_order_then_the_others(busy):
    assert [(job["jobid"], job["position"]) for job in busy.json("queue")["jobs"]] == [
        ("1", None), ("4", 1), ("3", 2), ("2", None),
    ]  # fmt: skip


def test_rank_is_the_position_and_score_the_number_that_the_policy_ranks_by(busy):
    first = next(job for job in busy.json("queue")["jobs"] if job["position"] == 1)
    heading, _, line, *_ = busy.ask("queue").splitlines()
    ends = heading.index("SCORE") + len("SCORE")
    assert line.split()[:2] == ["1", first["jobid"]]
    assert line[:ends].split()[-1] == f"{first['rank']:.6g}"


def test_a_job_that_slurm_alone_decides_about_has_no_rank(busy):
    busy.cluster.submit(reason="JobHeldUser", priority=0.0)
    busy.cycle()
    busy.ledger.give_back([3])
    ranks = {job["jobid"]: job["rank"] for job in busy.json("queue")["jobs"]}
    assert {job for job, rank in ranks.items() if rank is None} == {"2", "3", "5"}
    heading, *lines = busy.ask("queue").splitlines()
    ends = heading.index("SCORE") + len("SCORE")
    assert [bool(line[ends - 5 : ends].strip()) for line in lines] == [True, True, False, False, False]


def test_lines_tell_progress_and_quantity(busy):
    heading, first, *_ = busy.ask("queue").splitlines()
    assert heading.split()[:6] == ["RANK", "JOBID", "USER", "NAME", "STATE", "GPUS"]
    assert "30/90" in first
    assert "accuracy 0.5" in first
    assert "###......." in first


def test_positions_stay_those_of_the_whole_queue_when_few_are_shown(busy):
    assert [(job["jobid"], job["position"]) for job in busy.json("queue", "-j", "3")["jobs"]] == [("3", 2)]
    assert [job["jobid"] for job in busy.json("queue", "-u", "bob")["jobs"]] == ["4", "3"]


def test_a_user_who_is_nobody_is_a_mistake(busy):
    assert "Invalid user id: nobodyhere" in busy.ask("queue", "-u", "bob,nobodyhere", code=1)


def test_no_heading(busy):
    assert len(busy.ask("queue", "-n").splitlines()) == 4


def test_ended_jobs_are_gone(busy):
    busy.cluster.end(1)
    busy.cycle()
    assert [job["jobid"] for job in busy.json("queue")["jobs"]] == ["4", "3", "2"]


class TestDoing:
    def doing(self, site: Site) -> dict[str, str]:
        return {job["jobid"]: job["doing"] for job in site.json("queue")["jobs"]}

    def test_a_job_left_alone_says_why(self, busy):
        assert self.doing(busy) == {"1": "", "2": "Slurm's (unmanaged)", "3": "", "4": ""}

    def test_a_job_that_was_given_back_says_so(self, busy):
        busy.ledger.give_back([3])
        assert self.doing(busy)["3"] == "Slurm's (given back)"

    def test_an_open_stop_says_its_step(self, busy):
        busy.train(1, dict.fromkeys(range(31, 38), 0.95))
        busy.cycle()
        assert self.doing(busy)["1"] == "stop (target): requested"

    def test_a_stop_that_would_be_says_what_forbids_it(self, tmp_path):
        with Site(tmp_path, mode={"default": "observe"}) as site:
            site.cluster.start(site.cluster.submit())
            site.train(1, dict.fromkeys(range(1, 8), 0.95))
            site.cycle()
            assert self.doing(site) == {"1": "would stop (target), but mode observe"}
            site.train(1, {8: 0.1})
            site.ledger.set_control("paused", "")
            site.cycle()
            assert self.doing(site) == {"1": "would stop (target), but paused"}

    def test_what_was_decided_once_and_is_no_more_is_not_told(self, tmp_path):
        with Site(tmp_path, mode={"default": "act", "stop": "observe"}) as site:
            site.cluster.start(site.cluster.submit())
            site.train(1, dict.fromkeys(range(1, 8), 0.95))
            site.cycle()
            site.cluster.requeue(1)
            site.cycle()
            assert self.doing(site) == {"1": ""}


def test_the_final_value_is_shown_with_its_interval(site):
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations=20\ntrain\n")
    site.cluster.start(job)
    site.train(job, {i: 0.9 - 0.5 / i for i in range(1, 11)})
    site.cycle()
    assert re.search(r" 0\.8\d* \(0\.8\d* to 0\.\d+\) ", site.ask("queue"))


class TestTerminals:
    @pytest.mark.parametrize("width", [40, 100, 130, 200])
    def test_no_line_is_wider_than_the_terminal(self, busy, width, monkeypatch):
        monkeypatch.setattr(queue_command, "terminal_width", lambda: width, raising=False)
        assert max(map(len, busy.ask("queue").splitlines())) <= width

    def test_a_wide_one_gets_the_bar_and_a_narrow_one_does_not(self, busy, monkeypatch):
        monkeypatch.setattr(queue_command, "terminal_width", lambda: 250, raising=False)
        assert "AT MOST" in busy.ask("queue")
        monkeypatch.setattr(queue_command, "terminal_width", lambda: 120, raising=False)
        assert "PROGRESS" not in busy.ask("queue")

    def shown(self, site: Site, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        monkeypatch.setattr(queue_command, "terminal_width", lambda: width, raising=False)
        return site.ask("queue").splitlines()

    def test_80_columns_have_the_deadline_and_what_is_done(self, busy, monkeypatch):
        script = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --max-iterations=90 --deadline=2h\ntrain\n"
        site, job = busy, busy.cluster.submit(script, name="a-long-name-of-a-job", user="a-long-user-name")
        site.cluster.start(job)
        site.train(job, dict.fromkeys(range(1, 8), 0.95))
        site.cycle()
        heading, *lines = self.shown(site, 80, monkeypatch)
        assert heading.split() == "RANK JOBID USER NAME ST GPUS ITER VALUE LEFT DEADLINE DOING".split()
        assert max(map(len, (heading, *lines))) <= 80
        line = next(line for line in lines if " a-long-+ " in line)
        assert line.split()[:7] == [str(job), "a-long-+", "a-long-+", "R", "1", "7/90", "0.95"]
        assert line.endswith(times.shown(site.cluster.jobs[job]["submit"] + 7_200)[5:16])
        assert lines[-1].endswith(" Slurm's (+")

    @pytest.mark.parametrize("width", range(55, 140, 5))
    def test_no_deadline_is_cut(self, busy, width, monkeypatch):
        deadline = times.shown(NOW + 7_200)
        heading, _, line, *_ = self.shown(busy, width, monkeypatch)
        assert "DEADLINE" in heading
        assert deadline in line or deadline[5:16] in line

    def test_the_deadline_of_another_year_has_its_year(self, site, monkeypatch):
        site.cluster.submit(b"#!/bin/sh\n#PLUG --deadline=2024-02-03T18:00\ntrain\n")
        site.cycle()
        assert " 2024-02-03" in self.shown(site, 60, monkeypatch)[1]

    def test_a_terminal_that_has_room_for_it_gets_whole_states_times_and_values(self, busy, monkeypatch):
        lines = self.shown(busy, 132, monkeypatch)
        assert "accuracy 0.5" in lines[1]
        assert " RUNNING " in lines[1]
        assert times.shown(NOW + 7_200) in lines[2]
        assert "SCORE" in lines[0]

    def test_where_there_is_none_nothing_is_cut(self, site):
        site.cluster.submit(name="n" * 300)
        site.cycle()
        assert "n" * 300 in site.ask("queue")


def test_when_slurm_expects_a_job_to_start_is_told_of_those_that_wait(busy):
    busy.cluster.jobs[3]["expected"] = NOW + 3_600.0
    busy.cycle()
    told = {job["jobid"]: job["expected"] for job in busy.json("queue")["jobs"]}
    assert told == {"1": None, "2": None, "3": NOW + 3_600, "4": None}


def test_deadlines_are_in_json_as_seconds(busy):
    assert {job["jobid"]: job["deadline"] for job in busy.json("queue")["jobs"]} == {
        "1": None, "2": None, "3": NOW + 7_200, "4": NOW + 7_200,
    }  # fmt: skip
