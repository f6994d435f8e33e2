"""acct: sacct's options, windows and formats over what the ledger knows."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from slurmplug.console import times
from slurmplug.errors import UsageError
from slurmplug.reports import acct
from tests.builders import NOW
from tests.ledgers import Site, run

ALL = ("-a", "-S", "2023-11-01")
NOBODY = 65_534
PLAIN = b"#!/bin/sh\ntrain\n"
HOSTILE = "a|b\x1b[2J\n99|root\\\u202e\ufffe\U000e0001"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def trained(site: Site) -> Site:
    """1 was stopped at its target, 2 failed, 3 runs, 4 waits."""
    first, second, third, _ = (site.cluster.submit(user=user) for user in ("ada", "bob", "ada", "cyd"))
    for job in (first, second, third):
        site.cluster.start(job)
    site.cycle()
    site.train(first, {i: 0.80 + i / 50 for i in range(1, 7)}, loss=0.5)
    site.train(third, {1: 0.3})
    site.cycle()
    site.cluster.end(first)
    site.cluster.end(second, "FAILED", 1)
    site.cycle()
    return site


def finished(site: Site, cycles_at: Iterable[int]) -> int:
    """A job of 20 iterations with a cycle after each of some of them, which then ended by itself."""
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations=20\ntrain\n")
    site.cluster.start(job)
    for iteration in range(1, 21):
        site.train(job, {iteration: 0.9 - 0.5 / iteration})
        if iteration in cycles_at:
            site.cycle()
    site.cluster.end(job)
    site.cycle()
    return job


def jobs(rows: list[dict[str, str]]) -> list[str]:
    return [row["JobID"] for row in rows]


class TestWhichJobs:
    def test_everything_since_a_time(self, trained: Site) -> None:
        assert jobs(trained.table(*ALL)) == ["1", "2", "3", "4"]

    def test_ended_jobs_of_before_midnight_are_not_shown_by_default(self, trained: Site) -> None:
        assert jobs(trained.table("-a")) == ["3", "4"]

    def test_named_jobs_are_shown_whenever_they_ended(self, trained: Site) -> None:
        assert jobs(trained.table("-j", "2,1")) == ["1", "2"]

    def test_as_many_jobs_may_be_named_as_one_likes(self, trained: Site) -> None:
        many = ",".join(["2", "1", "77_1", *(f"{job},{job}_0" for job in range(1_000, 2_000))])
        assert jobs(trained.table("-j", many)) == ["1", "2"]

    def test_a_job_that_is_not_known_is_no_mistake(self, trained: Site) -> None:
        assert jobs(trained.table("-j", "77")) == []

    @pytest.mark.parametrize(("users", "found"), [("ada", ["1", "3"]), ("bob,cyd", ["2", "4"]), ("0", [])])
    def test_the_jobs_of_some_users(self, trained: Site, users: str, found: list[str]) -> None:
        assert jobs(trained.table("-S", "2023-11-01", "-u", users)) == found

    def test_users_may_be_given_by_number(self, trained: Site) -> None:
        assert jobs(trained.table("-S", "2023-11-01", "-u", "1001")) == ["1", "2", "3", "4"]

    def test_the_jobs_of_some_accounts(self, trained: Site) -> None:
        assert jobs(trained.table(*ALL, "-A", "lab")) == ["1", "2", "3", "4"]
        assert jobs(trained.table(*ALL, "-A", "other")) == []

    def test_who_is_not_root_sees_only_their_own_jobs_unless_they_ask_for_others(
        self, trained: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        assert jobs(trained.table("-S", "2023-11-01")) == []
        assert jobs(trained.table(*ALL)) == ["1", "2", "3", "4"]
        assert jobs(trained.table("-j", "2")) == ["2"]

    @pytest.mark.parametrize(
        ("states", "found"),
        [
            ("CD", ["1"]), ("completed", ["1"]), ("F,CD", ["1", "2"]), ("R", ["1", "2", "3"]),
            ("RUNNING", ["1", "2", "3"]), ("PD", ["1", "2", "3", "4"]), ("TO,CA,OOM", []),
        ],
    )  # fmt: skip
    def test_the_jobs_that_were_in_a_state_inside_the_window(
        self, trained: Site, states: str, found: list[str]
    ) -> None:
        assert jobs(trained.table(*ALL, "-E", "now", "-s", states)) == found

    def test_states_without_a_window_are_those_of_now(self, trained: Site) -> None:
        assert jobs(trained.table("-a", "-s", "CD,F,R,PD")) == ["3", "4"]

    def test_states_with_a_start_only_are_those_of_that_moment(self, trained: Site) -> None:
        assert jobs(trained.table("-a", "-s", "R", "-S", times.format_time(NOW + 30))) == ["1", "2", "3"]
        assert jobs(trained.table("-a", "-s", "R", "-S", times.format_time(NOW + 3_000))) == ["3"]

    def in_state(self, site: Site, state: str, since: float, until: float) -> list[str]:
        return jobs(
            site.table("-a", "-s", state, "-S", times.format_time(NOW + since), "-E", times.format_time(NOW + until))
        )

    def test_a_job_that_was_cancelled_while_it_waited_was_pending_and_never_running(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cycle()
        site.cluster.jobs[job]["start"] = site.cluster.time
        site.cluster.end(job, "CANCELLED")
        site.cycle()
        found = {state: self.in_state(site, state, 0, 600) for state in ("PD", "R", "CA", "CD")}
        assert found == {"PD": ["1"], "R": [], "CA": ["1"], "CD": []}
        assert self.in_state(site, "PD", 61, 600) == []

    def test_a_job_that_was_cancelled_before_it_was_eligible_is_shown_by_that_state_only(self, site: Site) -> None:
        job = site.cluster.submit(eligible=float("nan"), reason="JobHeldUser", priority=0.0)
        site.cycle()
        site.cluster.jobs[job]["start"] = site.cluster.time
        site.cluster.end(job, "CANCELLED")
        site.cycle()
        found = {state: self.in_state(site, state, 0, 600) for state in ("PD", "R", "CA")}
        assert found == {"PD": [], "R": [], "CA": ["1"]}
        assert jobs(site.table(*ALL)) == []

    def test_a_requeued_job_that_waits_for_its_next_run_did_run(self, site: Site) -> None:
        site.cluster.start(site.cluster.submit())
        site.cycle()
        site.cluster.requeue(1)
        site.cycle()
        found = {state: self.in_state(site, state, -1, 62) for state in ("PD", "R", "RQ", "CD")}
        assert found == {"PD": ["1"], "R": ["1"], "RQ": ["1"], "CD": []}
        assert self.in_state(site, "R", 61, 90) == []
        assert jobs(site.table("-a", "-S", times.format_time(NOW - 1), "-E", times.format_time(NOW + 62))) == ["1"]

    def test_a_job_that_is_suspended_is_not_running(self, site: Site) -> None:
        site.cluster.start(site.cluster.submit())
        site.cycle()
        site.cluster.jobs[1]["state"] = "SUSPENDED"
        site.cycle()
        assert jobs(site.table("-a", "-s", "R")) == []
        assert jobs(site.table("-a", "-s", "S")) == ["1"]

    def test_a_suspended_job_has_run_without_the_time_since_then(self, site: Site) -> None:
        """It is suspended after a minute, goes on after two more, and ends after another one."""
        site.cluster.start(site.cluster.submit(PLAIN, time_limit=600.0))
        site.cycle()
        elapsed = []
        for state, suspended in (("SUSPENDED", 60.0), ("SUSPENDED", 120.0), ("RUNNING", 120.0)):
            site.cluster.jobs[1] |= {"state": state, "suspended": suspended}
            site.cycle()
            elapsed.append(site.table("-a", "-o", "elapsedraw")[0]["ElapsedRaw"])
        assert elapsed == ["60", "60", "120"]

    def test_what_begins_as_the_window_ends_is_not_in_it(self, trained: Site) -> None:
        assert self.in_state(trained, "R", -60, 0) == []
        assert self.in_state(trained, "R", -60, 1) == ["1", "2", "3"]

    def test_a_state_until_now_is_that_of_this_moment(self, trained: Site) -> None:
        assert jobs(trained.table("-a", "-s", "R", "-E", "now")) == ["3"]

    def test_a_window_ends_where_it_is_told_to(self, trained: Site) -> None:
        assert jobs(trained.table("-a", "-S", "2023-11-01", "-E", "2023-11-02")) == []

    def test_a_job_that_was_never_eligible_is_shown_by_its_id_only(self, site: Site) -> None:
        site.cluster.submit(eligible=float("nan"), reason="Dependency")
        site.cycle()
        assert jobs(site.table(*ALL)) == []
        assert jobs(site.table("-j", "1")) == ["1"]

    def test_elements_of_an_array_are_named_by_array_and_element(self, site: Site) -> None:
        array = site.cluster.submit(array_id=1, elements=7)
        site.cluster.submit(array_id=array, array_task=3)
        site.cycle()
        assert jobs(site.table("-j", "1")) == ["1_[x7]", "1_3"]
        assert jobs(site.table("-j", "1_3")) == ["1_3"]

    def test_the_elements_of_an_array_stand_together_whatever_their_ids(self, site: Site) -> None:
        array = site.cluster.submit(array_id=1, elements=7)
        other = site.cluster.submit()
        for task in (10, 9):
            site.cluster.submit(array_id=array, array_task=task)
        site.cycle()
        assert jobs(site.table(*ALL)) == ["1_[x7]", "1_9", "1_10", str(other)]

    def test_of_jobs_with_the_same_id_the_latest_is_shown(self, site: Site) -> None:
        job = site.cluster.submit(name="old")
        site.cycle()
        site.cluster.jobs[job] |= {"uid": 1002, "name": "new", "submit": site.cluster.time}
        site.cycle()
        assert [row["JobName"] for row in site.table("-j", "1")] == ["new"]


class TestFields:
    def test_a_stopped_job_tells_by_which_rule_and_what_was_saved(self, trained: Site) -> None:
        wanted = "JobID,State,ExitCode,Stop,Iterations,MaxIterations,Saved,Value,Loss,Target,Elapsed"
        row = trained.table("-j", "1", "-o", wanted)[0]
        assert row == {
            "JobID": "1", "State": "COMPLETED", "ExitCode": "0:0", "Stop": "target", "Iterations": "6",
            "MaxIterations": "90", "Saved": "84", "Value": "0.92", "Loss": "0.5", "Target": "accuracy>=0.9",
            "Elapsed": "00:02:07",
        }  # fmt: skip

    @pytest.mark.parametrize("first", [0, 1])
    def test_iterations_are_told_alike_everywhere_whether_a_program_counts_from_0_or_from_1(
        self, site: Site, first: int
    ) -> None:
        job = site.cluster.submit()
        site.cluster.start(job)
        site.train(job, {i: 0.9 + (i - first) / 100 for i in range(first, first + 7)})
        site.cluster.say(job, checkpoint=first + 4)
        site.cycle()
        assert " 7/90 " in site.ask("queue")
        site.cluster.end(job)
        site.cycle()
        row = site.table("-j", "1", "-o", "iterations,maxiterations,checkpoint,saved,stop")[0]
        assert list(row.values()) == ["7", "90", "5", "83", "target"]
        output = site.ask("why", "1")
        assert "Iteration 7 of 90: accuracy 0.96." in output
        assert ", after iteration 7 of 90." in output
        assert "Its last checkpoint holds iteration 5." in output
        assert "83 iterations were saved." in output

    def test_a_job_that_was_cancelled_while_it_waited_never_started(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cycle()
        site.cluster.jobs[job]["start"] = site.cluster.time + 30.0
        site.cluster.time += 30.0
        site.cluster.end(job, "CANCELLED")
        site.cycle()
        row = site.table("-j", "1", "-o", "state,start,elapsed,waited")[0]
        assert row == {"State": "CANCELLED", "Start": "Unknown", "Elapsed": "00:00:00", "Waited": "00:01:30"}
        assert ", ran for" not in site.ask("why", "1")

    def test_a_job_that_ended_by_itself_was_not_stopped(self, trained: Site) -> None:
        row = trained.table("-j", "2", "-o", "stop,saved,exitcode")[0]
        assert row == {"Stop": "", "Saved": "", "ExitCode": "1:0"}

    def test_a_signal_stands_after_the_colon(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cycle()
        site.cluster.end(job, "FAILED", 128 + 9)
        site.cycle()
        assert site.table("-j", "1", "-o", "exitcode") == [{"ExitCode": "0:9"}]

    def test_what_is_still_to_come_is_not_told_as_if_it_had_been(self, site: Site) -> None:
        job = site.cluster.submit(end=NOW + 9_000)
        site.cycle()
        site.cluster.start(job)
        site.cluster.jobs[job]["end"] = NOW + 3_600
        site.cycle()
        row = site.table("-j", "1", "-o", "start,end,elapsed,timelimit")[0]
        assert row == {
            "Start": times.format_time(NOW + 60), "End": "Unknown", "Elapsed": "00:01:00", "Timelimit": "01:00:00",
        }  # fmt: skip

    def test_a_loss_to_be_reached_from_above_is_predicted_with_its_own_sign(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=loss<=5.1 --max-iterations=50 --stop=optstop\ntrain\n")
        site.cluster.start(job)
        site.train(job, {i: 5.0 + 2.0 / i for i in range(1, 11)}, "loss")
        site.cycle()
        report = site.json("acct", "-j", "1")["jobs"][0]
        assert report["finallow"] < report["final"] < report["finalhigh"]
        assert 4.0 < report["final"] < 5.3
        assert report["value"] == report["loss"] == 5.2
        assert 0 <= report["reach"] <= 1

    def test_the_first_prediction_is_kept_when_later_ones_differ(self, trained: Site) -> None:
        assert trained.table("-j", "1", "-o", "predicted") == [{"Predicted": "00:30:00"}]

    def test_what_was_predicted_is_kept_with_its_intervals_for_a_job_that_ended(self, site: Site) -> None:
        job = finished(site, cycles_at=(4, 10, 15, 20))
        row = site.json("acct", "-j", str(job))["jobs"][0]
        assert row["predictedlow"] < row["predicted"] < row["predictedhigh"]
        assert row["foreseenlow"] < row["foreseen"] < row["foreseenhigh"]
        assert row["foreseenat"] == 10
        assert row["remaining"] is None

    def test_the_final_value_of_a_job_first_seen_late_is_that_predicted_then(self, site: Site) -> None:
        finished(site, cycles_at=(15, 18, 20))
        assert site.table("-j", "1", "-o", "foreseenat") == [{"ForeseenAt": "15"}]

    def test_a_value_already_reached_counts_for_no_prediction(self, site: Site) -> None:
        finished(site, cycles_at=(20,))
        assert site.table("-j", "1", "-o", "foreseen,foreseenat") == [{"Foreseen": "", "ForeseenAt": ""}]

    def test_a_loss_is_foreseen_with_its_own_sign(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=loss<=4 --max-iterations=50\ntrain\n")
        site.cluster.start(job)
        site.train(job, {i: 5.0 + 2.0 / i for i in range(1, 11)}, "loss")
        site.cycle()
        report = site.json("acct", "-j", "1")["jobs"][0]
        assert 0 < report["foreseenlow"] < report["foreseen"] < report["foreseenhigh"]

    def test_a_quantity_told_seldom_is_found_among_many_reports(self, site: Site) -> None:
        job = site.cluster.submit()
        site.cluster.start(job)
        site.train(job, {1: 0.5})
        site.train(job, {i: 1.0 / i for i in range(2, 40)}, "loss")
        site.cycle()
        assert site.table("-j", "1", "-o", "accuracy,iterations") == [{"Accuracy": "0.5", "Iterations": "39"}]

    def test_fields_are_found_in_any_case_and_by_their_beginning(self, trained: Site) -> None:
        assert list(trained.table("-j", "1", "-o", "JOBID,jobn,Max,nnodes")[0]) == [
            "JobID", "JobName", "MaxIterations", "NNodes",
        ]  # fmt: skip

    def test_all_fields_can_be_asked_for(self, trained: Site) -> None:
        assert list(trained.table("-j", "1", "-o", "ALL")[0]) == [field.name for field in acct.FIELDS]

    def test_every_field_can_be_named_exactly(self, trained: Site) -> None:
        for field in acct.FIELDS:
            assert list(trained.table("-j", "1", "-o", field.name.lower())[0]) == [field.name]

    def test_helpformat_lists_every_field_without_a_ledger(self) -> None:
        shown = run("acct", "--helpformat", "--ledger", "/nowhere").output
        assert [line.split()[0] for line in shown.splitlines()] == [field.name for field in acct.ALL_FIELDS]


class TestFormats:
    def test_columns_have_their_width_and_what_is_cut_ends_in_a_plus(self, site: Site) -> None:
        site.cluster.submit(name="a-rather-long-name")
        site.cycle()
        shown = site.ask("acct", *ALL, "-o", "jobid%5,jobname%8,jobname%-20,user")
        assert shown == (
            "JobID  JobName JobName                   User\n"
            "----- -------- -------------------- ---------\n"
            "    1 a-rathe+ a-rather-long-name         ada\n"
        )

    def test_no_heading(self, trained: Site) -> None:
        assert trained.ask("acct", "-n", "-j", "1", "-o", "jobid%-3") == "1  \n"

    def test_parsable_ends_each_row_with_the_delimiter_and_parsable2_does_not(self, trained: Site) -> None:
        assert trained.ask("acct", "-p", "-j", "1", "-o", "jobid,state") == "JobID|State|\n1|COMPLETED|\n"
        assert trained.ask("acct", "-P", "-j", "1", "-o", "jobid,state") == "JobID|State\n1|COMPLETED\n"

    def test_another_delimiter(self, trained: Site) -> None:
        assert trained.ask("acct", "-nP", "--delimiter", "::", "-j", "1", "-o", "jobid,state") == "1::COMPLETED\n"

    @pytest.mark.parametrize("delimiter", ["", "x", "7", "\\", " ", "\n"])
    def test_a_delimiter_that_escapes_are_made_of_is_refused(self, trained: Site, delimiter: str) -> None:
        assert "--delimiter" in trained.ask("acct", "-P", "--delimiter", delimiter, "-j", "1", code=1)

    def test_json_has_numbers_seconds_and_nulls(self, trained: Site) -> None:
        stopped, failed, runs, waits = trained.json("acct", *ALL)["jobs"]
        assert [job["stop"] for job in (stopped, failed, runs, waits)] == ["target", "", "", ""]
        assert (stopped["jobid"], stopped["jobidraw"], stopped["state"]) == ("1", 1, "COMPLETED")
        assert (stopped["start"], stopped["iterations"], stopped["managed"]) == (NOW, 6, True)
        assert (waits["start"], waits["iterations"], waits["loss"]) == (None, None, None)
        assert runs["remaining"] > 0


class TestHostileTexts:
    @pytest.fixture
    def hostile(self, site: Site) -> Site:
        site.cluster.submit(name=HOSTILE, comment=HOSTILE * 100, partition="gpu")
        site.cycle()
        return site

    def test_nothing_reaches_a_terminal_raw(self, hostile: Site) -> None:
        for arguments in (
            ("acct", *ALL),
            ("acct", "-p", *ALL, "-o", "all"),
            ("acct", "--json", *ALL),
            ("queue",),
            ("why", "1"),
        ):
            shown = hostile.ask(*arguments)
            assert all(character.isprintable() or character == "\n" for character in shown)

    def test_no_value_breaks_a_row(self, hostile: Site) -> None:
        header, *rows = hostile.ask("acct", "-P", *ALL, "-o", "all").splitlines()
        assert [len(row.split("|")) for row in rows] == [len(header.split("|"))]

    def test_an_escaped_value_unescapes_to_what_it_was(self, hostile: Site) -> None:
        shown = hostile.table(*ALL, "-o", "jobname")[0]["JobName"]
        assert shown == "a\\x7cb\\x1b[2J\\x0a99\\x7croot\\x5c\\u202e\\ufffe\\U000e0001"
        assert shown.encode().decode("unicode_escape") == HOSTILE

    def test_json_keeps_it_whole(self, hostile: Site) -> None:
        report = json.loads(hostile.ask("acct", "--json", *ALL))["jobs"][0]
        assert (report["jobname"], report["comment"]) == (HOSTILE, HOSTILE * 100)

    def test_wide_and_combining_characters_keep_the_columns(self, site: Site) -> None:
        site.cluster.submit(name="学習" * 9)
        site.cluster.submit(name="e\u0301" * 3)
        site.cycle()
        first, second = site.ask("acct", "-n", *ALL, "-o", "jobname%-8,user%4").splitlines()
        assert first == "学習学+   ada"
        assert second == "e\u0301" * 3 + "       ada"


class TestMistakes:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("-S", "tomorow"), ("-E", "25:00"), ("-S", "now", "-E", "now-1hour"), ("-j", "x"), ("-j", "1_x"),
            ("-j", "1.0"), ("-j", "9" * 40), ("-s", "ZZ"), ("-o", "nothing"), ("-o", "jobid%0"),
            ("-o", ","), ("--bad",), ("extra",),
        ],
    )  # fmt: skip
    def test_a_mistake_ends_with_1_as_sacct(self, trained: Site, arguments: tuple[str, ...]) -> None:
        trained.ask("acct", *arguments, code=1)

    @pytest.mark.parametrize("user", ["nosuchuser", "4294967290", "9" * 5_000, "ada\x1b", "\udcff", "1_0"])
    def test_a_user_that_neither_the_machine_nor_the_ledger_knows_is_named(self, trained: Site, user: str) -> None:
        shown = trained.ask("acct", "-a", "-u", f"ada,{user}", code=1)
        assert "Invalid user id: " + user.encode("unicode_escape").decode() in shown

    @pytest.mark.parametrize("user", ["root", "0", "daemon"])
    def test_a_user_of_the_machine_without_jobs_is_no_mistake(self, trained: Site, user: str) -> None:
        assert trained.table(*ALL, "-u", user) == []

    def test_a_missing_ledger_is_named(self, tmp_path: Path) -> None:
        result = run("acct", "--ledger", str(tmp_path / "none.db"))
        assert result.exit_code == 1
        assert "none.db cannot be opened: No such file or directory; has the daemon run?" in result.output

    def test_a_ledger_that_is_not_to_be_read_says_who_can(self, trained: Site) -> None:
        trained.ask("acct", *ALL)
        trained.path.chmod(0)
        trained.path.parent.chmod(0)
        os.seteuid(NOBODY)
        try:
            result = run("acct", "--ledger", str(trained.path))
        finally:
            os.seteuid(os.getuid())
            trained.path.parent.chmod(0o700)
        assert result.exit_code == 1
        assert "Permission denied; reports run on the controller, as root or in the daemon's group" in result.output

    def test_a_missing_configuration_is_named(self, tmp_path: Path) -> None:
        result = run("acct", "--config", str(tmp_path / "none.toml"))
        assert result.exit_code == 1
        assert "there is no configuration" in result.output

    def test_a_file_that_is_no_ledger_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "ledger.db").write_bytes(b"not a database, but a text that is long enough" * 10)
        assert run("acct", "--ledger", str(tmp_path / "ledger.db")).exit_code == 1

    def test_the_ledger_may_be_named_by_the_environment_and_by_the_configuration(
        self, trained: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "slurmplug.toml"
        file.write_text(f'[ledger]\npath = "{trained.path}"\n')
        monkeypatch.setenv("SLURMPLUG_CONFIG", str(file))
        by_config = run("acct", "-nj1", "-o", "jobid%1").output
        monkeypatch.setenv("SLURMPLUG_LEDGER", str(trained.path))
        monkeypatch.setenv("SLURMPLUG_CONFIG", "/nowhere")
        assert by_config == run("acct", "-nj1", "-o", "jobid%1").output == "1\n"

    def test_a_report_never_writes_to_the_ledger(self, trained: Site) -> None:
        before = trained.path.read_bytes()
        trained.ask("acct", *ALL)
        assert trained.path.read_bytes() == before


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("now", "2023-11-14T22:13:20"), ("now-1hour", "2023-11-14T21:13:20"),
            ("now - 2days", "2023-11-12T22:13:20"),
            ("now+90", "2023-11-14T22:14:50"), ("today", "2023-11-14T00:00:00"), ("midnight", "2023-11-14T00:00:00"),
            ("noon", "2023-11-14T12:00:00"), ("fika", "2023-11-14T15:00:00"), ("teatime", "2023-11-14T16:00:00"),
            ("tomorrow", "2023-11-15T00:00:00"), ("today-18:00", "2023-11-14T18:00:00"),
            ("8:05", "2023-11-14T08:05:00"),
            ("18:00:09", "2023-11-14T18:00:09"), ("6:00PM", "2023-11-14T18:00:00"), ("12:00am", "2023-11-14T00:00:00"),
            ("0130", "2023-01-30T00:00:00"), ("1231", "2022-12-31T00:00:00"), ("013024", "2024-01-30T00:00:00"),
            ("01/30", "2023-01-30T00:00:00"), ("1/3", "2023-01-03T00:00:00"), ("01/30/24-18:00", "2024-01-30T18:00:00"),
            ("01.30.24", "2024-01-30T00:00:00"), ("2023-11-01", "2023-11-01T00:00:00"),
            ("2023-11-01T08:00", "2023-11-01T08:00:00"), ("2023-11-01 08:00:30", "2023-11-01T08:00:30"),
        ],
    )  # fmt: skip
    def test_a_time_as_sacct_takes_it(self, text: str, meant: str) -> None:
        now = datetime(2023, 11, 14, 22, 13, 20).timestamp()
        assert times.format_time(times.parse_time(text, now)) == meant

    def test_so_long_ago_is_counted_in_seconds_also_where_clocks_are_put_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        try:
            for now in (1_761_438_600.0, 1_761_442_200.0, 1_761_445_800.0):  # half past two, again, half past three
                assert now - times.parse_time("now", now) == 0
                assert now - times.parse_time("now-3hours", now) == 3 * 3_600
                assert now - times.parse_time("now-1week", now) == 7 * 86_400
        finally:
            monkeypatch.undo()
            time.tzset()

    def test_seconds_since_the_epoch(self) -> None:
        assert times.parse_time("1700000000", NOW) == times.parse_time("uts1700000000", NOW) == 1_700_000_000

    @pytest.mark.parametrize(
        "text",
        ["", " ", "soon", "25:00", "12:0", "1361", "2023-13-01", "2023-02-30", "now-", "now-2fortnights", "2023-11-01T",
         "13:00PM", "18:00junk", "1-2-3", "9999999999999", "now-999999999weeks"],
    )  # fmt: skip
    def test_no_time_is_refused_with_what_to_write(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"Invalid time specification.*write"):
            times.parse_time(text, NOW)

    @pytest.mark.parametrize(
        ("seconds", "text"), [(0, "00:00:00"), (59.9, "00:00:59"), (3_661, "01:01:01"), (90_061, "1-01:01:01")]
    )
    def test_spans_are_shown_as_slurm_does(self, seconds: float, text: str) -> None:
        assert times.format_duration(seconds) == text


def test_the_documented_table_of_fields_is_made_from_them() -> None:
    page = (Path(__file__).parents[3] / acct.generated().path).read_text()
    assert acct.generated().renewed(page) == page, "run python -m slurmplug.reports.acct"


@pytest.mark.parametrize(
    ("directive", "state", "exit_code", "stop"),
    [
        ("--require-target=yes", "FAILED", 1, "target"),
        ("--require-target=yes", "FAILED", 2, ""),  # a failure of its own
        ("", "FAILED", 1, ""),
        ("", "COMPLETED", 0, "target"),
    ],
)
def test_a_job_that_fails_as_its_stop_tells_it_counts_as_stopped(
    site: Site, directive: str, state: str, exit_code: int, stop: str
) -> None:
    script = f"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target {directive}\ntrain\n"
    job = site.cluster.submit(script.encode())
    site.cluster.start(job)
    site.train(job, {i: 0.80 + i / 50 for i in range(1, 7)})
    site.cycle()
    site.cluster.end(job, state, exit_code)
    site.cycle()
    [row] = site.table(*ALL, "-o", "state,stop")
    assert list(row.values()) == [state, stop]
