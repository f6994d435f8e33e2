"""why: one job explained, from real cycles."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from slurmplug.console import times
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports import live_order
from slurmplug.reports.live_order import Placed
from slurmplug.spool.values import REPORTED_NAN, SpoolFault
from tests.builders import NOW
from tests.ledgers import Planned, Site

RAISED = {i: 0.80 + i / 50 for i in range(1, 7)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


def stopping(site: Site) -> int:
    """A job that runs and is asked to stop."""
    job = site.cluster.submit()
    site.cluster.start(job)
    site.train(job, RAISED, loss=0.5)
    site.cycle()
    return job


class TestWhatItRequested:
    def test_directives_are_told_as_they_would_be_written(self, site: Site) -> None:
        site.cluster.submit(
            b"#!/bin/sh\n#PLUG --deadline=2h --target=loss<=0.25 --max-iterations=90 --gpus=2..8\n"
            b"#PLUG --checkpoint=USR1:batch@60 --urgency=7 --utility=50,0.5,12 --type=resnet\n"
            b"#PLUG --allow-downgrade=target\ntrain\n"
        )
        site.cycle()
        output = site.ask("why", "1")
        for directive in (
            f"--deadline={times.format_time(NOW + 7_200)}", "--target=loss<=0.25", "--max-iterations=90", "--gpus=2..8",
            "--checkpoint=USR1:batch@60", "--urgency=7", "--utility=50,0.5,12", "--type=resnet",
            "--allow-downgrade=target",
        ):  # fmt: skip
            assert directive in output

    def test_a_mistake_is_told_with_its_line_and_the_word_that_was_meant(self, site: Site) -> None:
        site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=7\n#PLUG --tagret=accuracy>=0.9\ntrain\n")
        site.cycle()
        output = site.ask("why", "1").splitlines()
        assert "  Ignored: line 3: --tagret=accuracy>=0.9: no such directive; did you mean --target?" in output

    def test_the_mistakes_of_the_comment_come_before_those_of_the_script(self, site: Site) -> None:
        script = b"#!/bin/sh\n" + b"#PLUG --urgencey=7\n" * 3 + b"#PLUG --type=x\ntrain\n"
        site.cluster.submit(script, comment="plug: tagret=1")
        site.cycle()
        listed = [line.split(":")[1].strip() for line in site.ask("why", "1").splitlines() if "Ignored" in line]
        assert listed == ["comment", "line 2", "line 3", "line 4"]

    def test_mistakes_come_in_the_order_of_their_lines(self, site: Site) -> None:
        site.cluster.submit(b"#!/bin/sh\n#PLUG --stop=target\n#PLUG --urgency=1\n#PLUG --urgency=9\ntrain\n")
        site.cycle()
        listed = [line.split(":")[1].strip() for line in site.ask("why", "1").splitlines() if "Ignored" in line]
        assert listed == ["line 2", "line 4"]

    def test_a_job_that_asked_for_nothing_made_no_mistake(self, site: Site) -> None:
        site.cluster.submit(b"#!/bin/sh\ntrain\n")
        site.cluster.submit(b"#!/bin/sh\n#PLUG --urgencey=7\ntrain\n")
        site.cycle()
        assert "Requested:\n  Nothing.\n" in site.ask("why", "1")
        assert "Requested:\n  Nothing valid.\n" in site.ask("why", "2")

    def test_that_there_are_more_mistakes_than_are_named_is_told_last(self, site: Site) -> None:
        site.cluster.submit(b"#!/bin/sh\n" + b"#PLUG --urgencey=7\n" * 99 + b"#PLUG --type=x\ntrain\n")
        site.cycle()
        listed = [line for line in site.ask("why", "1").splitlines() if "Ignored" in line]
        assert "line 2" in listed[0]
        assert "line" not in listed[-1]

    def test_an_unmanaged_job_is_said_to_be_left_to_slurm(self, site: Site) -> None:
        site.cluster.submit(b"#!/bin/sh\ntrain\n")
        site.cycle()
        output = site.ask("why", "1")
        assert "Left to Slurm. It has no directive" in output

    @pytest.mark.parametrize(
        ("given", "because"),
        [
            ({"reason": "JobHeldUser", "priority": 0.0}, "It is held by its user or an operator"),
            ({"batch": False, "comment": "plug: urgency=3"}, "It is an interactive job (salloc or srun)"),
        ],
    )
    def test_a_job_that_is_not_to_be_touched_is_told_why(self, site: Site, given: dict[str, Any], because: str) -> None:
        site.cluster.submit(**given)
        site.cycle()
        assert because in site.ask("why", "1")


class TestItsRank:
    @pytest.fixture
    def crowd(self, site: Site) -> Site:
        for urgency in range(6):
            script = b"#!/bin/sh\n#PLUG --urgency=%d\ntrain\n" % urgency
            site.cluster.submit(script, user=f"u{urgency}", time_limit=3_600.0 - urgency)
        site.cycle()
        return site

    def test_its_position_its_rank_and_the_next_three_before_it(self, crowd: Site) -> None:
        output = crowd.ask("why", "2").splitlines()
        ranking = output[output.index("Rank:") + 1 :]
        assert ranking[0].startswith("  Rank 5 of 6 pending jobs, by a score of ")
        assert " = learning " in ranking[0]
        assert [line.split()[4] for line in ranking if line.startswith("  Ahead of it: job")] == ["3", "4", "5"]
        assert "job 3 of u2, score" in ranking[1]
        assert "ahead most by " in ranking[1]

    def test_the_first_has_nobody_before_it(self, crowd: Site) -> None:
        output = crowd.ask("why", "6")
        assert "Rank 1 of 6 pending jobs" in output
        assert "Ahead of it" not in output

    def test_when_slurm_expects_it_to_start_is_told_while_that_is_to_come(self, crowd: Site) -> None:
        assert "expects" not in crowd.ask("why", "6")
        crowd.cluster.jobs[6]["expected"] = NOW + 7_200.0
        crowd.cycle()
        assert f"Slurm expects to start it {times.format_time(NOW + 7_200)}, if the jobs ahead use" in crowd.ask(
            "why", "6"
        )
        crowd.cluster.jobs[6]["expected"] = NOW
        crowd.cycle()
        assert "expects" not in crowd.ask("why", "6")

    def test_an_order_of_slurms_own_that_differs_is_told(self, crowd: Site) -> None:
        crowd.cluster.refuse = frozenset({"update"})
        crowd.cluster.jobs[1]["priority"] = 9_000_000.0
        crowd.cycle()
        assert "Slurm's priority puts 1 job of lower rank ahead of it" in crowd.ask("why", "6")
        assert "lower rank" not in crowd.ask("why", "1")

    def test_jobs_without_a_rank_that_slurm_puts_ahead_are_counted(self, crowd: Site) -> None:
        said = "2 pending jobs without a rank have a higher priority in Slurm."
        assert said not in crowd.ask("why", "1")
        for priority in (9_000_000.0, 8_000_000.0, 0.0):
            crowd.cluster.submit(b"#!/bin/sh\n#PLUG --manage=off\ntrain\n", priority=priority)
        crowd.cycle()
        assert said in crowd.ask("why", "1")
        assert "Rank 1 of 6 pending jobs, by" in crowd.ask("why", "6")

    def test_an_observing_daemon_is_said_to_tell_slurm_nothing(self, tmp_path: Path) -> None:
        with Site(tmp_path, mode={"default": "act", "rank": "observe"}) as site:
            site.cluster.submit()
            site.cycle()
            assert "The rank is not written to Slurm: the mode for ranks is observe." in site.ask("why", "1")

    def test_a_paused_daemon_is_named(self, site: Site) -> None:
        site.ledger.set_control("paused", "maintenance")
        site.cluster.submit()
        site.cycle()
        assert "The rank is not written to Slurm: an operator paused slurmplug." in site.ask("why", "1")

    def test_of_equal_ranks_the_one_submitted_first_goes_first(self, tmp_path: Path) -> None:
        with Site(tmp_path, Planned(lambda snapshot: Plan(np.ones(len(snapshot.jobs))))) as site:
            site.cluster.submit()
            site.cluster.submit()
            site.cycle()
            assert "Ahead of it: job 1 of ada, score 1, which was submitted first." in site.ask("why", "2")

    def test_a_lead_that_its_digits_do_not_show_is_told_without_them(self, tmp_path: Path) -> None:
        learnt = np.array([1.0, 1.0 + 1e-9])
        with Site(tmp_path, Planned(lambda _: Plan(learnt, terms={"learning": learnt}))) as site:
            site.cluster.submit()
            site.cluster.submit()
            site.cycle()
            assert "Ahead of it: job 2 of ada, score 1, ahead by very little." in site.ask("why", "1")

    def test_a_job_that_was_given_back_is_left_to_slurm(self, crowd: Site) -> None:
        crowd.ledger.give_back([6])
        assert "An operator excluded it with `slurmplug reset --job`" in crowd.ask("why", "6")
        assert "Rank 1 of 5 pending jobs" in crowd.ask("why", "5")

    def test_the_policys_note_is_told(self, site: Site) -> None:
        site.cluster.submit(dependency="afterok:2")
        site.cluster.submit(dependency="afterok:1")
        site.cycle()
        assert "Its dependencies form a cycle" in site.ask("why", "1")

    def test_why_a_job_goes_first_is_told_whatever_the_policy_notes(self, tmp_path: Path) -> None:
        with Site(tmp_path, guardrails={"max_wait": 30}) as site:
            site.cluster.submit(dependency="afterok:1")
            site.cycle(2)
            assert "It has waited for 120 s, more than the site's limit, and goes first" in site.ask("why", "1")

    def test_a_failed_policy_is_told(self, tmp_path: Path) -> None:
        def fail(_: Snapshot) -> NoReturn:
            raise RuntimeError("no \x1b[2J idea")

        with Site(tmp_path, Planned(fail)) as site:
            site.cluster.submit()
            site.cycle()
            assert "policy planned failed: RuntimeError: no \\x1b[2J idea" in site.ask("why", "1")


class TestWhatIsPredicted:
    def told(self, site: Site) -> list[str]:
        lines = site.ask("why", "1").split("Predicted:\n")[1].splitlines()
        return [line.strip() for line in lines[: lines.index("Rank:")]]

    def submit(self, site: Site, deadline: bytes, **given: Any) -> int:
        """A job that may run for an hour and reports, with a deadline."""
        return site.cluster.submit(b"#!/bin/sh\n#PLUG --deadline=%s --max-iterations=90\ntrain\n" % deadline, **given)

    def test_a_job_that_waits_without_any_prediction_is_told_why(self, site: Site) -> None:
        site.cluster.submit(time_limit=np.nan)
        site.cycle()
        assert self.told(site) == ["No run time: slurmplug has seen no finished run like it, and it has no time limit."]

    def test_a_policy_that_asks_for_no_run_times_is_told(self, tmp_path: Path) -> None:
        with Site(tmp_path, Planned(lambda snapshot: Plan(np.ones(len(snapshot.jobs))))) as site:
            self.submit(site, b"2h")
            site.cycle()
            assert self.told(site) == [
                "No run time: the policy needs no run times.",
                f"Whether its deadline, {times.format_time(NOW + 7_200)}, can be met is not predicted.",
            ]

    @pytest.mark.parametrize(
        ("deadline", "seconds", "chance"),
        [
            (b"10h", 36_000, "can be met."), (b"50m", 3_000, "can be met, but may be missed."),
            (b"20m", 1_200, "will probably be missed."), (b"1m", 60, "cannot be met."),
        ],
    )  # fmt: skip
    def test_a_job_that_waits_is_told_what_becomes_of_its_deadline_if_it_started_now(
        self, site: Site, deadline: bytes, seconds: int, chance: str
    ) -> None:
        self.submit(site, deadline)
        site.cycle()
        left = site.json("acct", "-j", "1")["jobs"][0]
        end, low, high = (
            times.format_time(NOW + 60 + left[key]) for key in ("remaining", "remaininglow", "remaininghigh")
        )
        assert self.told(site)[-1] == (
            f"If it started now, it would end {end} (90 %: {low} to {high}): "
            f"its deadline, {times.format_time(NOW + seconds)}, {chance}"
        )

    def test_where_slurm_says_when_it_starts_its_deadline_is_held_against_that(self, site: Site) -> None:
        site.cluster.jobs[self.submit(site, b"50m")]["expected"] = NOW + 3_000.0
        site.cycle()
        end = times.format_time(NOW + 3_000 + site.json("acct", "-j", "1")["jobs"][0]["remaining"])
        assert self.told(site)[-1].startswith(f"Started when Slurm expects it, it ends {end} (90 %: ")
        assert self.told(site)[-1].endswith("cannot be met.")

    def test_a_job_that_runs_is_told_by_its_own_pace(self, site: Site) -> None:
        site.cluster.start(self.submit(site, b"2h"))
        site.train(1, dict.fromkeys(range(1, 31), 0.1))
        site.cycle(4)
        end = times.format_time(site.cluster.time + site.json("acct", "-j", "1")["jobs"][0]["remaining"])
        assert self.told(site)[-1].startswith(f"It ends {end} (90 %: ")
        assert self.told(site)[-1].endswith(f"its deadline, {times.format_time(NOW + 7_200)}, can be met.")

    def test_a_job_that_would_go_on_for_longer_than_calendars_do_is_told_all_the_same(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --deadline=9h --max-iterations=1000000000\ntrain\n")
        site.cluster.start(job)
        for iteration in range(1, 5):
            site.cluster.time += 600.0
            site.cluster.say(job, iteration=iteration, accuracy=0.1)
        site.cycle()
        assert self.told(site)[-1].startswith("It ends 9999-12-3")
        assert self.told(site)[-1].endswith("cannot be met.")

    def test_a_deadline_that_is_over_is_told(self, site: Site) -> None:
        self.submit(site, b"2m")
        site.cycle(3)
        assert self.told(site)[-1] == f"Its deadline, {times.format_time(NOW + 120)}, passed 00:01:00 ago."

    @pytest.mark.parametrize(("deadline", "told"), [(b"5m", "00:04:00 before"), (b"30s", "00:00:30 after")])
    def test_an_ended_job_is_told_how_it_kept_its_deadline(self, site: Site, deadline: bytes, told: str) -> None:
        site.cluster.start(self.submit(site, deadline))
        site.cycle()
        site.cluster.end(1)
        site.cycle()
        assert f"It ended {told} its deadline, " in site.ask("why", "1")


class TestWhatWasDone:
    def test_a_stop_is_told_from_its_reason_to_its_end(self, site: Site) -> None:
        job = stopping(site)
        site.cluster.end(job)
        site.cycle()
        opened, ended = times.format_time(NOW + 66), times.format_time(NOW + 126)
        assert site.ask("why", "1").split("Actions:\n")[1].splitlines() == [
            f"  {opened}: stop, by the rule target. Its accuracy of 0.92 meets the target of 0.9 that the job set, "
            "after iteration 6 of 90.",
            f"  {opened}: a stop was requested, by a file that its report() checks for: done.",
            f"  {ended}: finished: stopped.",
        ]

    def test_every_step_and_what_slurm_answered(self, tmp_path: Path) -> None:
        with Site(tmp_path, stop={"grace": 90.0, "cancel": True}) as site:
            stopping(site)
            site.cluster.refuse = frozenset({"cancel"})
            site.cycle(3)
            output = site.ask("why", "1")
            assert "it was cancelled, as it did not stop by itself: refused (Access/permission denied)" in output

    @pytest.mark.parametrize("mode", ["observe", "advise", "act"])
    def test_that_slurm_and_not_the_policy_places_it_is_no_deed(self, tmp_path: Path, mode: str) -> None:
        def turn(snapshot: Any) -> Plan:
            return Plan(np.zeros(1), actions=(Action("place", snapshot.jobs.keys[0], Reason("its turn"), 1),))

        with Site(tmp_path, Planned(turn), mode={"default": mode}) as site:
            site.cluster.submit()
            site.cycle()
            assert site.ledger.query("SELECT veto FROM decisions") == []
            assert "place" not in site.ask("why", "1")
            assert "would place" not in site.ask("queue")

    def test_a_stop_that_was_vetoed_names_the_guardrail(self, tmp_path: Path) -> None:
        with Site(tmp_path, mode={"default": "act", "stop": "observe"}) as site:
            stopping(site)
            site.cycle(2)
            first, last = times.format_time(NOW + 66), times.format_time(NOW + 186)
            output = site.ask("why", "1")
            assert f"{first} to {last}: stop, by the rule target. Its accuracy" in output
            assert "Not done: the mode is observe." in output

    def test_a_stop_by_overload_tells_of_the_overload(self, site: Site) -> None:
        job = site.cluster.submit(
            b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --allow-downgrade=target --max-iterations=90\ntrain\n"
        )
        site.cluster.submit(reason="Resources")
        site.cluster.start(job)
        site.train(job, RAISED)
        site.cycle(4)
        output = site.ask("why", "1")
        assert (
            "The job requested --stop=iterations and allows target, "
            "which was applied because the cluster was overloaded (" in output
        )

    def test_priorities_that_were_written_are_counted(self, site: Site) -> None:
        site.cluster.submit()
        site.cluster.submit(time_limit=600.0)
        site.cycle()
        label = site.cluster.jobs[2]["label"]
        written = (
            f"{times.format_time(NOW + 60)}: its priority was written, 1 time in all, last SiteFactor {label}: done."
        )
        assert written in site.ask("why", "2")

    def test_what_was_not_believed_is_told_with_how_often(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cluster.start(job)
        site.cluster.faults.append(SpoolFault(job, "owner", "uid 4711", 3))
        site.cluster.reports[job] = b"nonsense\n" * 2
        site.cycle()
        output = site.ask("why", "1")
        assert "A file with the name of its report belongs to another user (uid 4711) (3 times, last" in output
        assert "A line of its reports is not a JSON object (2 times, last" in output

    def test_a_script_that_cannot_be_read_is_told_of_apart_from_its_reports(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cluster.faults.append(SpoolFault(job, "script", "scontrol did not answer within 20 s", 3))
        site.cycle()
        output = site.ask("why", "1")
        assert "Script:\n  Its batch script could not be read (scontrol did not answer within 20 s)" in output
        assert "Reports not believed" not in output

    def test_a_rule_of_another_policy_is_told_with_its_facts(self, tmp_path: Path) -> None:
        def plan(snapshot: Snapshot) -> Plan:
            stop = Action("stop", snapshot.jobs.keys[0], Reason("full \x1b moon", {"phase": 1.0}))
            return Plan(np.full(len(snapshot.jobs), np.nan), actions=(stop,))

        with Site(tmp_path, Planned(plan)) as site:
            site.cluster.start(site.cluster.submit())
            site.cycle()
            output = site.ask("why", "1")
            assert 'Rule "full \\u001b moon": phase 1.' in output


class TestWhichJob:
    def test_a_job_that_is_not_known_is_said_to_be_so(self, site: Site) -> None:
        output = site.ask("why", "7", code=1)
        assert "slurmplug knows no job 7: it was submitted after the last cycle, never existed, " in output
        assert "or Slurm does not show it to you" in output

    @pytest.mark.parametrize("job", ["x", "1.2", "-3", "1_", ""])
    def test_what_is_no_job_is_refused(self, site: Site, job: str) -> None:
        assert site.ask("why", "--", job, code=1)

    def test_many_iterations_are_told_to_the_last_digit(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --max-iterations=9000000\ntrain\n")
        site.cluster.start(job)
        site.train(job, {1_234_567: 0.5})
        site.cluster.say(job, checkpoint=1_234_566)
        site.cycle()
        output = site.ask("why", "1")
        assert "Iteration 1234567 of 9000000: accuracy 0.5." in output
        assert "Its last checkpoint holds iteration 1234566." in output
        assert " 1234567/9000000 " in site.ask("queue")

    @pytest.mark.parametrize(
        ("told", "all_of_them"),
        [(range(20), True), (range(1, 20), False), (range(1, 21), True), (range(4, 20), True), (range(4, 19), False)],
    )
    def test_what_it_came_to_is_told_of_a_job_that_may_have_done_all_its_iterations(
        self, site: Site, told: range, all_of_them: bool
    ) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations=20\ntrain\n")
        site.cluster.start(job)
        site.train(job, {i: 0.9 - 0.5 / (i + 1) for i in told[:8]})
        site.cycle()
        site.train(job, {i: 0.9 - 0.5 / (i + 1) for i in told[8:]})
        site.cluster.end(job)
        site.cycle()
        assert ("It came to 0.8" in site.ask("why", "1")) == all_of_them

    def test_a_job_that_did_all_its_iterations_is_told_with_what_was_foreseen_and_what_came(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations=20\ntrain\n")
        site.cluster.start(job)
        site.train(job, {i: 0.9 - 0.5 / i for i in range(1, 11)})
        site.cycle()
        site.train(job, dict.fromkeys(range(11, 21), 0.3))
        site.cluster.end(job)
        site.cycle()
        output = site.ask("why", "1")
        assert re.search(r"After 10 iterations, accuracy 0\.8\d* \(90 %: 0\.8\d* to 0\.\d*\) at the end\.", output)
        assert "It came to 0.3, which is outside of that." in output

    def test_an_ended_job_is_told_with_what_was_predicted_and_what_it_took(self, site: Site) -> None:
        job = stopping(site)
        site.cluster.end(job)
        site.cycle()
        output = site.ask("why", "1")
        assert "Not ranked: the job has ended." in output
        assert re.search(r"When first seen, a run time of 00:.* to 00:.*, by its own pace\. It took 00:01:06\.", output)
        assert "84 iterations were saved." in output

    def test_a_run_without_reports_is_asked_for_them_only_while_it_runs(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cluster.start(job)
        site.cycle()
        output = site.ask("why", "1")
        assert "Nothing yet: does its training loop call report()?" in output
        assert ", has run for " in output
        site.cluster.end(job)
        site.cycle()
        output = site.ask("why", "1")
        assert "Nothing: its training loop did not call report(), or its reports could not be read." in output
        assert ", ran for " in output

    def test_an_array_is_a_table_of_its_elements(self, site: Site) -> None:
        array = site.cluster.submit(array_id=1, array_task=0)
        for element in range(1, 8):
            site.cluster.submit(array_id=array, array_task=element)
        site.cycle()
        heading, _, *rows, summary, last = site.ask("why", "1").splitlines()
        assert heading.split()[:2] == ["JobID", "State"]
        assert summary == "8 elements: 8 PENDING."
        assert [row.split()[0] for row in rows] == [f"1_{element}" for element in range(8)]
        assert last == "One of them: slurmplug why 1_0"
        assert "Job 1_6," in site.ask("why", "1_6")
        assert len(site.json("why", "1")["jobs"]) == 8

    @pytest.mark.parametrize(("tasks", "count"), [("4-99", 96), ("3,7-9", 4), ("0-20:5,31", 6), ("", 12)])
    def test_elements_that_wait_together_are_counted_one_by_one(self, site: Site, tasks: str, count: int) -> None:
        site.cluster.start(site.cluster.submit(array_id=1, array_task=0))
        site.cluster.submit(array_id=1, array_task=-1, array_tasks=tasks, elements=count)
        site.cycle()
        assert f"{count + 1} elements: {count} PENDING, 1 RUNNING." in site.ask("why", "1")

    def test_of_an_array_it_is_told_how_values_and_run_times_are_distributed(self, site: Site) -> None:
        for element in range(6):
            job = site.cluster.submit(b"#!/bin/sh\n#PLUG --type=a\ntrain\n", array_id=1, array_task=element)
            site.cluster.start(job)
            site.train(job, {1: (0.1, 0.11, 0.12, 0.13, 0.5, float("nan"))[element]})
        site.cluster.submit(array_id=1, array_task=6)
        site.cycle()
        lines = site.ask("why", "1").splitlines()
        summary = lines.index("7 elements: 1 PENDING, 6 RUNNING.")
        told = lines[summary + 1 :]
        assert told[0] == "Value of 5: 0.1 (1_0) to 0.5 (1_4), half of them up to 0.12"
        assert told[1].replace("█", "#") == f"  0.1 to 0.15 {'#' * 40} 4"
        assert told[8].replace("█", "#") == f"  0.45 to 0.5 {'#' * 10} 1"
        assert [line.split()[-1] for line in told[2:8]] == ["0.2", "0.25", "0.3", "0.35", "0.4", "0.45"]
        assert told[9].startswith("Run time of 6: 00:01:01 (1_5) to 00:01:06 (1_0), half of them up to 00:01:0")
        assert told[-1] == "One of them: slurmplug why 1_0"

    def test_json_has_the_sentences_and_the_rows_behind_them(self, site: Site) -> None:
        job = stopping(site)
        site.cluster.end(job)
        site.cycle()
        report = site.json("why", "1")["jobs"][0]
        assert report["job"]["stop"] == "target"
        assert report["story"][0]["about"] == "Job"
        assert report["operations"][0]["facts"]["achieved"] == pytest.approx(0.92)
        assert [step["step"] for step in report["steps"]] == ["ask", "ended"]
        fields = report["commands"][0]["fields"]
        assert json.loads(fields.pop("content"))["reason"] == "target"
        assert fields == {"what": "stop", "restart": "0"}
        assert report["decisions"][0]["verdict"] == "allowed"

    def test_nothing_that_a_user_wrote_reaches_the_terminal_raw(self, site: Site) -> None:
        evil = "\x1b[2J\n\u202e"
        site.cluster.submit(
            b"#!/bin/sh\n#PLUG --\x1b[2J=\xff\n#PLUG --urgency=1\nx\n", name=evil, comment=f"plug: {evil}=1",
            partition=evil, account=evil, reason=evil,
        )  # fmt: skip
        site.cycle()
        output = site.ask("why", "1")
        assert all(character.isprintable() or character == "\n" for character in output)


def test_the_queue_is_put_in_order_once_for_all_elements_of_an_array(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in range(20):
        site.cluster.submit(array_id=1, array_task=task)
    site.cycle()
    orders: list[int] = []
    order = live_order.live_order

    def noted(ledger: Ledger) -> list[Placed]:
        orders.append(1)
        return order(ledger)

    monkeypatch.setattr(live_order, "live_order", noted)
    assert len(site.json("why", "1")["jobs"]) == 20
    assert len(orders) == 1


def test_how_a_job_ended_is_told_where_it_was_no_success(site: Site) -> None:
    for code in (0, 3, 137):
        job = site.cluster.submit()
        site.cluster.start(job)
        site.cycle()
        site.cluster.end(job, "FAILED" if code else "COMPLETED", code)
    site.cycle()
    listed = [next(line for line in site.ask("why", str(job)).splitlines() if "It ended" in line) for job in (1, 2, 3)]
    assert [line.partition(",")[2] for line in listed] == ["", " with exit code 3:0.", " with exit code 0:9."]


class TestHowAJobIsNamed:
    @pytest.fixture
    def array(self, site: Site) -> Site:
        """Array 1, of which 1_3 runs and seven wait; the heterogeneous job of 3 and 4."""
        site.cluster.submit(array_id=1, elements=7)
        site.cluster.start(site.cluster.submit(array_id=1, array_task=3))
        for _ in range(2):
            site.cluster.submit(het_id=3)
        site.cycle()
        return site

    def first_line(self, site: Site, name: str) -> str:
        return next(line for line in site.ask("why", name).splitlines() if line.startswith("  Job ")).split(",")[0]

    def test_elements_that_wait_together_are_told_by_how_many_they_are(self, array: Site) -> None:
        for name in ("1", "1_[0-2,4-7%2]"):
            assert [line.split()[0] for line in array.ask("why", name).splitlines()[2:4]] == ["1_[x7]", "1_3"]

    def test_an_element_that_has_not_started_is_told_with_those_it_waits_with(self, array: Site) -> None:
        heading, _, first, *_ = array.ask("why", "1_5").splitlines()
        assert heading.startswith("1_5 has not started")
        assert first.startswith("  Job 1_[x7], ")
        assert [each["job"]["jobid"] for each in array.json("why", "1_5")["jobs"]] == ["1_[x7]"]
        assert self.first_line(array, "1_3") == "  Job 1_3"

    def test_of_a_component_of_a_heterogeneous_job_its_leader_is_explained(self, array: Site) -> None:
        for name in ("3+1", "4"):
            assert array.ask("why", name).startswith("3+1 is a component of the heterogeneous job 3, with which")
            assert self.first_line(array, name) == self.first_line(array, "3") == "  Job 3+0"

    @pytest.mark.parametrize("name", ["1_", "1_[3", "_3", "1+", "1+2_3", "1_3+2", "\u0661", "99999999999", ""])
    def test_what_names_no_job_is_a_mistake(self, array: Site, name: str) -> None:
        assert "Bad job specified" in array.ask("why", name, code=1)

    def test_a_name_is_escaped_once(self, site: Site) -> None:
        site.cluster.submit(name="a\x1b[2J it's")
        site.cycle()
        assert "Job 1, 'a\\x1b[2J it's' of " in site.ask("why", "1")


class TestNoIterationHasTheValuesOfAnother:
    def test_a_value_of_an_earlier_iteration_is_told_with_that_iteration(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cluster.start(job)
        site.cluster.say(job, iteration=7, loss=0.4, accuracy=0.75)
        site.cluster.say(job, iteration=9, loss=0.3)
        site.cycle()
        assert "Iteration 9 of 90: loss 0.3, accuracy 0.75 at iteration 7." in site.ask("why", "1")
        assert "0.75@7" in site.ask("queue")
        (row,) = site.table("-o", "iterations,value,valueat,loss,lossat,accuracy,accuracyat")
        assert list(row.values()) == ["9", "0.75", "7", "0.3", "9", "0.75", "7"]

    def test_counting_from_0_moves_both(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cluster.start(job)
        for iteration, values in enumerate(({"accuracy": 0.5}, {"loss": 0.25})):
            site.cluster.say(job, iteration=iteration, **values)
        site.cycle()
        assert "Iteration 2 of 90: accuracy 0.5 at iteration 1, loss 0.25." in site.ask("why", "1")

    def test_an_iteration_of_nan_is_shown_as_such_also_by_a_daemon_that_restarted(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cluster.start(job)
        site.cluster.say(job, iteration=1, loss=0.4)
        site.cluster.say(job, iteration=2, loss=float("nan"), accuracy=float("inf"))
        site.cycle()
        assert "Iteration 2 of 90: loss nan, accuracy inf." in site.ask("why", "1")
        (row,) = site.json("acct")["jobs"]
        assert (row["loss"], row["lossat"], row["value"]) == ("nan", 2, "inf")
        (record,) = site.ledger.live_records()
        assert record.points.quantities["loss"].tolist() == [0.4, REPORTED_NAN]


def test_a_job_whose_script_is_not_read_again_after_a_requeue_is_not_told_that_it_has_no_directive(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = site.cluster.submit()
    site.cluster.start(job)
    site.cycle()
    site.cluster.requeue(job)
    read = site.cluster.read
    monkeypatch.setattr(site.cluster, "read", lambda known, alive: replace(read(known, alive), scripts={}))
    site.cycle()
    assert "Left to Slurm. Its script has not been read yet, and until then nothing is done to it." in site.ask(
        "why", str(job)
    )
    assert "Slurm's (script not read)" in site.ask("queue")
