"""queue: the live queue in order, with what is done and would be."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.commands import queue as queue_command
from slurmplug.console import times
from slurmplug.ledger.selection import Selection
from slurmplug.reports import job_view
from slurmplug.reports.job_view import Job
from slurmplug.reports.live_order import live_order, ranked
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


def test_running_jobs_come_first_then_the_ranked_in_order_then_the_others(busy: Site) -> None:
    assert [(job["jobid"], job["position"]) for job in busy.json("queue")["jobs"]] == [
        ("1", None), ("4", 1), ("3", 2), ("2", None),
    ]  # fmt: skip


def test_rank_is_the_position_and_score_the_number_that_the_policy_ranks_by(busy: Site) -> None:
    first = next(job for job in busy.json("queue")["jobs"] if job["position"] == 1)
    heading, _, line, *_ = busy.ask("queue").splitlines()
    ends = heading.index("SCORE") + len("SCORE")
    assert line.split()[:2] == ["1", first["jobid"]]
    assert line[:ends].split()[-1] == f"{first['rank']:.6g}"


def test_a_job_that_slurm_alone_decides_about_has_no_rank(busy: Site) -> None:
    busy.cluster.submit(reason="JobHeldUser", priority=0.0)
    busy.cycle()
    busy.ledger.give_back([3])
    ranks = {job["jobid"]: job["rank"] for job in busy.json("queue")["jobs"]}
    assert {job for job, rank in ranks.items() if rank is None} == {"2", "3", "5"}
    heading, *lines = busy.ask("queue").splitlines()
    ends = heading.index("SCORE") + len("SCORE")
    assert [bool(line[ends - 5 : ends].strip()) for line in lines] == [True, True, False, False, False]


def test_lines_tell_progress_and_quantity(busy: Site) -> None:
    heading, first, *_ = busy.ask("queue").splitlines()
    assert heading.split()[:8] == ["RANK", "JOBID", "PARTITION", "USER", "NAME", "STATE", "TIME", "GPUS"]
    assert "30/90" in first
    assert "accuracy 0.5" in first
    assert "###......." in first


def test_positions_stay_those_of_the_whole_queue_when_few_are_shown(busy: Site) -> None:
    assert [(job["jobid"], job["position"]) for job in busy.json("queue", "-j", "3")["jobs"]] == [("3", 2)]
    assert [job["jobid"] for job in busy.json("queue", "-u", "bob")["jobs"]] == ["4", "3"]


def test_a_user_who_is_nobody_is_a_mistake(busy: Site) -> None:
    assert "Invalid user id: nobodyhere" in busy.ask("queue", "-u", "bob,nobodyhere", code=1)


def test_no_heading(busy: Site) -> None:
    assert len(busy.ask("queue", "-n").splitlines()) == 4


def test_ended_jobs_are_gone(busy: Site) -> None:
    busy.cluster.end(1)
    busy.cycle()
    assert [job["jobid"] for job in busy.json("queue")["jobs"]] == ["4", "3", "2"]


class TestDoing:
    def doing(self, site: Site) -> dict[str, str]:
        return {job["jobid"]: job["doing"] for job in site.json("queue")["jobs"]}

    def test_a_job_left_alone_says_why(self, busy: Site) -> None:
        assert self.doing(busy) == {"1": "", "2": "Slurm's (unmanaged)", "3": "", "4": ""}

    def test_a_job_that_was_given_back_says_so(self, busy: Site) -> None:
        busy.ledger.give_back([3])
        assert self.doing(busy)["3"] == "Slurm's (given back)"

    def test_an_open_stop_says_its_step(self, busy: Site) -> None:
        busy.train(1, dict.fromkeys(range(31, 38), 0.95))
        busy.cycle()
        assert self.doing(busy)["1"] == "stop (target): requested"

    def test_a_stop_that_would_be_says_what_forbids_it(self, tmp_path: Path) -> None:
        with Site(tmp_path, mode={"default": "observe"}) as site:
            site.cluster.start(site.cluster.submit())
            site.train(1, dict.fromkeys(range(1, 8), 0.95))
            site.cycle()
            assert self.doing(site) == {"1": "would stop (target), but mode observe"}
            site.train(1, {8: 0.1})
            site.ledger.set_control("paused", "")
            site.cycle()
            assert self.doing(site) == {"1": "would stop (target), but paused"}

    def test_what_was_decided_once_and_is_no_more_is_not_told(self, tmp_path: Path) -> None:
        with Site(tmp_path, mode={"default": "act", "stop": "observe"}) as site:
            site.cluster.start(site.cluster.submit())
            site.train(1, dict.fromkeys(range(1, 8), 0.95))
            site.cycle()
            site.cluster.requeue(1)
            site.cycle()
            assert self.doing(site) == {"1": ""}


def test_the_final_value_is_shown_with_its_interval(site: Site) -> None:
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations=20\ntrain\n")
    site.cluster.start(job)
    site.train(job, {i: 0.9 - 0.5 / i for i in range(1, 11)})
    site.cycle()
    assert re.search(r" 0\.8\d* \(0\.8\d* to 0\.\d+\) ", site.ask("queue"))


class TestTerminals:
    @pytest.mark.parametrize("width", [40, 100, 130, 200])
    def test_no_line_is_wider_than_the_terminal(self, busy: Site, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queue_command, "terminal_width", lambda: width, raising=False)
        assert max(map(len, busy.ask("queue").splitlines())) <= width

    def test_a_wide_one_gets_the_bar_and_a_narrow_one_does_not(
        self, busy: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue_command, "terminal_width", lambda: 250, raising=False)
        assert "AT MOST" in busy.ask("queue")
        monkeypatch.setattr(queue_command, "terminal_width", lambda: 120, raising=False)
        assert "PROGRESS" not in busy.ask("queue")

    def shown(self, site: Site, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        monkeypatch.setattr(queue_command, "terminal_width", lambda: width, raising=False)
        return site.ask("queue").splitlines()

    def test_80_columns_have_the_deadline_and_what_is_done(self, busy: Site, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert line.endswith(times.format_time(site.cluster.jobs[job]["submit"] + 7_200)[5:16])
        assert lines[-1].endswith(" Slurm's (+")

    @pytest.mark.parametrize("width", range(55, 140, 5))
    def test_no_deadline_is_cut(self, busy: Site, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        deadline = times.format_time(NOW + 7_200)
        heading, _, line, *_ = self.shown(busy, width, monkeypatch)
        assert "DEADLINE" in heading
        assert deadline in line or deadline[5:16] in line

    def test_the_deadline_of_another_year_has_its_year(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        site.cluster.submit(b"#!/bin/sh\n#PLUG --deadline=2024-02-03T18:00\ntrain\n")
        site.cycle()
        assert " 2024-02-03" in self.shown(site, 60, monkeypatch)[1]

    def test_a_terminal_that_has_room_for_it_gets_whole_states_times_and_values(
        self, busy: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines = self.shown(busy, 132, monkeypatch)
        assert "accuracy 0.5" in lines[1]
        assert " RUNNING " in lines[1]
        assert times.format_time(NOW + 7_200) in lines[2]
        assert "SCORE" in lines[0]

    def test_where_there_is_none_nothing_is_cut(self, site: Site) -> None:
        site.cluster.submit(name="n" * 300)
        site.cycle()
        assert "n" * 300 in site.ask("queue")


def test_when_slurm_expects_a_job_to_start_is_told_of_those_that_wait(busy: Site) -> None:
    busy.cluster.jobs[3]["expected"] = NOW + 3_600.0
    busy.cycle()
    values = {job["jobid"]: job["expected"] for job in busy.json("queue")["jobs"]}
    assert values == {"1": None, "2": None, "3": NOW + 3_600, "4": None}


def test_deadlines_are_in_json_as_seconds(busy: Site) -> None:
    assert {job["jobid"]: job["deadline"] for job in busy.json("queue")["jobs"]} == {
        "1": None, "2": None, "3": NOW + 7_200, "4": NOW + 7_200,
    }  # fmt: skip


def test_the_order_that_a_few_columns_give_is_that_of_whole_jobs(site: Site) -> None:
    for number in range(30):
        directives = (b"", b"#PLUG --urgency=2\n", b"#PLUG --manage=off\n", b"#PLUG --urgency=9\n")[number % 4]
        job = site.cluster.submit(b"#!/bin/sh\n" + directives, priority=float(number % 7))
        if number % 5 == 0:
            site.cluster.start(job)
    site.cycle()
    site.ledger.give_back([4, 8])
    jobs = job_view.jobs(site.ledger, Selection(live=True))
    ranks = {job.row: rank for rank, job in enumerate(ranked(jobs), start=1)}

    def place(job: Job) -> tuple[bool, float, float, int]:
        score = -math.inf if job.score is None else job.score
        return job.waits, ranks.get(job.row, math.inf), -score, job.key.job_id

    expected = [
        (job.row, ranks.get(job.row), job.ranking.priority if job.ranking else None, job.waits)
        for job in sorted(jobs, key=place)
    ]
    assert live_order(site.ledger) == expected
    assert len(ranks) > 5


class TestLikeSqueue:
    def shown(self, site: Site, *arguments: str) -> list[str]:
        return site.ask("queue", "-n", "-O", "JobArrayID:.1", *arguments).splitlines()

    @pytest.mark.parametrize(
        ("options", "jobs"),
        [
            (("-t", "PD"), "432"), (("-t", "R,pending"), "1432"), (("-t", "all"), "1432"), (("-u", "bob"), "43"),
            (("-p", "gpu"), "1432"), (("-p", "none"), ""), (("-A", "none"), ""), (("-w", "n[1-2]"), "1"),
            (("-w", "n2"), ""), (("--name", "other"), ""), (("-q", "normal"), "1432"), (("-S", "i"), "1234"),
            (("-S", "-i"), "4321"), (("-S", "-u,i"), "2341"), (("-S", "-Position,i"), "3412"), (("-a",), "1432"),
        ],
    )  # fmt: skip
    def test_jobs_are_selected_and_sorted(self, busy: Site, options: tuple[str, ...], jobs: str) -> None:
        assert "".join(self.shown(busy, *options)) == jobs

    def test_me_is_who_asks(self, busy: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "getuid", lambda: busy.cluster.jobs[1]["uid"])
        assert "2" in self.shown(busy, "--me")
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        assert self.shown(busy, "--me") == []

    def test_an_array_that_waits_for_several_partitions_is_in_each(self, site: Site) -> None:
        site.cluster.submit(partition="long,gpu")
        site.cycle()
        assert self.shown(site, "-p", "gpu") == self.shown(site, "-p", "long,other") == ["1"]
        assert self.shown(site, "-p", "lon") == []

    def test_a_format_has_squeues_letters_widths_and_text_between(self, busy: Site) -> None:
        lines = busy.ask("queue", "-o", "%.6i|%5u|%t %M,%.2D %R", "-j", "1,3").splitlines()
        assert lines[0] == " JOBID|USER |ST TIME,NO NODELIST(REASON)"
        assert lines[1].startswith("     1|ada  |R ")
        assert lines[1].endswith(", 1 n1")
        assert lines[2] == "     3|bob  |PD 0:00, 1 (Priority)"

    def test_a_long_format_has_squeues_types_and_ours(self, busy: Site) -> None:
        lines = busy.ask("queue", "-O", "JobID:4,UserName:.6,Iteration", "-j", "1").splitlines()
        assert lines == ["JOBI  USERITERATION           ", "1      ada30/90               "]

    def test_long_is_squeues_table_under_the_time(self, busy: Site) -> None:
        date, heading, *lines = busy.ask("queue", "-l").splitlines()
        assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}", date)
        assert heading.split() == "JOBID PARTITION NAME USER STATE TIME TIME_LIMI NODES NODELIST(REASON)".split()
        assert len(lines) == 4

    def test_start_shows_what_waits_by_when_it_is_expected(self, busy: Site) -> None:
        busy.cluster.jobs[2]["expected"] = NOW + 7_200.0
        busy.cluster.jobs[3]["expected"] = NOW + 3_600.0
        busy.cycle()
        rows = [line.split() for line in busy.ask("queue", "-n", "--start").splitlines()]
        assert [row[0] for row in rows] == ["3", "2", "4"]
        assert [row[5] for row in rows] == [times.format_time(NOW + 3_600), times.format_time(NOW + 7_200), "N/A"]

    @pytest.mark.parametrize(
        "options",
        [("-o", "%Z"), ("-o", "JobID"), ("-O", "none"), ("-S", "none"), ("-t", "XX"), ("-M", "elsewhere")],
    )
    def test_what_is_not_known_is_a_mistake(self, busy: Site, options: tuple[str, ...]) -> None:
        assert "nvalid" in (said := busy.ask("queue", *options, code=1)) or "nknown" in said or "known" in said


@pytest.mark.parametrize(("deadline", "mark"), [("2h", ""), ("45m", "?"), ("29m", "!"), ("1s", "!!")])
def test_a_deadline_that_can_hardly_be_met_is_marked(site: Site, deadline: str, mark: str) -> None:
    """Of a job of which nothing but its time limit of an hour is known."""
    site.cluster.submit(b"#!/bin/sh\n#PLUG --deadline=%b\ntrain\n" % deadline.encode())
    site.cycle()
    [job] = site.json("queue")["jobs"]
    line = site.ask("queue").splitlines()[1]
    shown = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([!?]*)", line)
    assert shown is not None
    assert shown[1] == mark, job


def test_a_report_starts_no_threads_for_linear_algebra_and_leaves_the_environment(busy: Site) -> None:
    code = f"""
import os
from slurmplug.commands import main
before = dict(os.environ)
main(["queue", "--ledger", {str(busy.path)!r}, "--config", "/none"], standalone_mode=False)
import numpy
print(dict(os.environ) == before, len(os.listdir("/proc/self/task")))
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert asked.stdout.splitlines()[-1] == "True 1"
