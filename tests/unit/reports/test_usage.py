"""Charging: rates by --stop and --urgency, the field Charge of acct, and usage by month, account and user."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from slurmplug.config.schema import Config
from slurmplug.directives.parser import Directives
from slurmplug.reports.charging import rate
from tests.builders import NOW
from tests.ledgers import Site, run

CHARGING = "[charging]\niterations = 2.0\noptstop = 1.5\ntarget = 1.0\nurgency = 0.1\n"
HOUR = 3_600.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "slurmplug.toml").write_text(CHARGING)
    with Site(tmp_path, mode={"default": "observe"}) as site:
        yield site


def asked(site: Site, command: str, *arguments: str, code: int = 0) -> str:
    result = run(command, "--config", str(site.path.parent / "slurmplug.toml"), "--ledger", str(site.path), *arguments)
    assert result.exit_code == code, result.output
    return result.output


def usage_of(site: Site, *arguments: str) -> Any:
    return json.loads(asked(site, "usage", "--json", *arguments))


def ran(site: Site, hours: float, directives: bytes = b"--urgency=5", **job: Any) -> int:
    """A job that has run for so long, and ended."""
    number = site.cluster.submit(b"#!/bin/sh\n#PLUG %b\ntrain\n" % directives, **job)
    site.cluster.start(number)
    site.cycle(seconds=hours * HOUR)
    site.cluster.end(number)
    site.cycle(seconds=60)
    return number


def charge_of(site: Site, job: int) -> Any:
    [found] = json.loads(asked(site, "acct", "--json", "-j", str(job), "-o", "charge"))["jobs"]
    return found["charge"]


class TestRates:
    LIMITS = Config.from_table({"guardrails": {"urgency": 8.0, "urgency_of": {"ml": 6.0}}}).guardrails
    RATES = Config.from_table({"charging": {"iterations": 2.0, "optstop": 1.5, "target": 1.0, "urgency": 0.1}})

    @pytest.mark.parametrize(
        ("given", "account", "expected"),
        [
            (Directives(), "other", 2.0),
            (Directives(stop="optstop:f1"), "other", 1.5),
            (Directives(stop="target", urgency=7.0), "other", 1.2),
            (Directives(urgency=10.0), "other", 2.3),
            (Directives(urgency=10.0), "ml", 2.1),
            (Directives(urgency=0.0), "other", 2.0),
        ],
    )
    def test_they_are_those_of_the_stop_and_of_the_urgency_that_counts(
        self, given: Directives, account: str, expected: float
    ) -> None:
        assert rate(given, account, self.RATES.charging, self.LIMITS) == pytest.approx(expected)

    @pytest.mark.parametrize("wrong", ["urgency = -1", "target = inf", "stop = 1"])
    def test_those_that_make_no_sense_are_refused(self, tmp_path: Path, wrong: str) -> None:
        (tmp_path / "wrong.toml").write_text(f"[charging]\n{wrong}\n")
        assert "charging." in (said := run("check-config", "--config", str(tmp_path / "wrong.toml"))).output
        assert said.exit_code == 1


class TestCharge:
    def test_it_is_the_gpu_hours_at_the_rate(self, site: Site) -> None:
        job = ran(site, 3.0, b"--stop=target --target=accuracy>=0.9 --urgency=8", gpus=4)
        assert charge_of(site, job) == pytest.approx((1.0 + 0.3) * 4 * (3 * HOUR + 60) / HOUR, rel=0.01)

    def test_there_is_none_where_the_site_charges_nothing(self, site: Site) -> None:
        job = ran(site, 1.0)
        assert site.json("acct", "-j", str(job), "-o", "charge")["jobs"] == [{"charge": None}]

    def test_queue_and_why_have_it_too(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=5\ntrain\n", gpus=2)
        site.cluster.start(job)
        site.cycle(seconds=HOUR)
        expected = pytest.approx(2.0 * 2)
        assert json.loads(asked(site, "queue", "--json"))["jobs"][0]["charge"] == expected
        assert json.loads(asked(site, "why", str(job), "--json"))["jobs"][0]["job"]["charge"] == expected

    def test_it_is_not_lowered_by_a_change_before_the_end(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=10\ntrain\n", gpus=1)
        site.cluster.start(job)
        site.cycle(seconds=HOUR)
        asked(site, "set", str(job), "--urgency=0")
        site.cycle(seconds=1)
        [shown] = json.loads(asked(site, "acct", "--json", "-j", str(job)))["jobs"]
        assert shown["urgency"] == 0
        assert shown["charge"] == pytest.approx(2.5 * shown["attained"])

    def test_what_was_changed_while_it_waited_is_not_charged(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=10\ntrain\n", gpus=1)
        site.cycle()
        asked(site, "set", str(job), "--urgency=0")
        site.cluster.time = time.time() + 60
        site.cycle()
        site.cluster.start(job)
        site.cycle(seconds=HOUR)
        [shown] = json.loads(asked(site, "acct", "--json", "-j", str(job)))["jobs"]
        assert shown["charge"] == pytest.approx(2.0 * shown["attained"])


class TestUsage:
    def test_it_is_that_of_each_user_after_that_of_the_account(self, site: Site) -> None:
        ran(site, 1.0, user="ada", account="ml", gpus=2)
        ran(site, 2.0, user="bob", account="ml", gpus=1, uid=1002)
        ran(site, 1.0, b"--stop=optstop --max-iterations=9", user="ada", account="vision", gpus=1)
        month = datetime.fromtimestamp(NOW).strftime("%Y-%m")
        header, *rows = [line.split("|") for line in asked(site, "usage", "-P").splitlines()]
        assert header == ["Month", "Account", "User", "GPUHours", "Charge", "Urgency"]
        assert [row[:3] for row in rows] == [
            [month, "ml", ""], [month, "ml", "ada"], [month, "ml", "bob"], [month, "vision", ""],
            [month, "vision", "ada"],
        ]  # fmt: skip
        [ml, ada, bob, vision, _] = [(float(row[3]), float(row[4])) for row in rows]
        assert ml == pytest.approx((ada[0] + bob[0], ada[1] + bob[1]), abs=0.011)
        assert vision[1] == pytest.approx(1.5 * vision[0], abs=0.02)

    def test_it_is_what_acct_says_of_the_jobs_together(self, site: Site) -> None:
        jobs = [ran(site, hours, gpus=2) for hours in (0.5, 1.5, 30.0)]
        shown = json.loads(asked(site, "acct", "-a", "--json", "-j", ",".join(map(str, jobs))))["jobs"]
        total = usage_of(site)["total"]
        assert total["gpu_hours"] == pytest.approx(sum(job["attained"] for job in shown))
        assert total["charge"] == pytest.approx(sum(job["charge"] for job in shown))

    def test_the_urgency_is_the_mean_over_the_gpu_hours_of_what_counts_at_most(self, site: Site) -> None:
        with (site.path.parent / "slurmplug.toml").open("a") as config:
            config.write("[guardrails]\nurgency = 9\n")
        ran(site, 3.0, b"--urgency=10", user="ada", account="ml", gpus=1)
        ran(site, 1.0, b"--stop=optstop", user="ada", account="ml", gpus=1)
        ran(site, 2.0, b"--stop=optstop", user="bob", account="ml", gpus=1, uid=1002)
        found = usage_of(site)
        urgency = {row["user"]: row["urgency"] for row in found["usage"]}
        assert urgency == {"ada": pytest.approx(8.0, abs=0.01), "bob": None}
        assert found["total"]["urgency"] == pytest.approx(7.0, abs=0.01)
        lines = asked(site, "usage", "-P", "--noheader").splitlines()
        assert [line.rpartition("|")[2] for line in lines] == ["7.00", "8.00", ""]

    def test_a_lower_urgency_before_the_end_changes_nothing(self, site: Site) -> None:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=9\ntrain\n", gpus=1)
        site.cluster.start(job)
        site.cycle(seconds=HOUR)
        asked(site, "set", str(job), "--urgency=0")
        site.cycle(seconds=1)
        assert usage_of(site)["total"]["urgency"] == pytest.approx(9.0)

    def test_a_run_is_split_where_a_month_ends(self, site: Site) -> None:
        now = datetime.fromtimestamp(NOW)
        turn = datetime(now.year + now.month // 12, now.month % 12 + 1, 1).timestamp()
        site.cluster.time = turn - 2 * HOUR
        job = site.cluster.submit(gpus=1)
        site.cluster.start(job)
        site.cycle(seconds=5 * HOUR)
        assert [row["gpu_hours"] for row in usage_of(site)["usage"]] == pytest.approx([2.0, 3.0])

    def test_of_a_run_that_part_counts_that_is_between_start_and_end(self, site: Site) -> None:
        job = site.cluster.submit(gpus=2)
        site.cluster.start(job)
        began = site.cluster.time
        site.cycle(seconds=10 * HOUR)
        window = ("-S", f"uts{began + HOUR:.0f}", "-E", f"uts{began + 4 * HOUR:.0f}")
        assert usage_of(site, *window)["total"]["gpu_hours"] == pytest.approx(6.0, abs=0.01)
        assert usage_of(site, "-S", f"uts{began + 20 * HOUR:.0f}") == {
            "usage": [], "total": {"gpu_hours": 0.0, "charge": None, "urgency": None},
        }  # fmt: skip

    def test_runs_before_a_requeue_count_once(self, site: Site) -> None:
        job = site.cluster.submit(gpus=1)
        site.cluster.start(job)
        site.cycle(seconds=2 * HOUR)
        site.cluster.requeue(job)
        site.cycle(seconds=HOUR)
        site.cluster.start(job)
        site.cycle(seconds=HOUR)
        [shown] = json.loads(asked(site, "acct", "--json", "-j", str(job)))["jobs"]
        assert shown["attained"] > 2.9
        assert usage_of(site)["total"]["gpu_hours"] == pytest.approx(shown["attained"])

    def test_users_and_accounts_are_selected(self, site: Site) -> None:
        ran(site, 1.0, user="ada", account="ml")
        ran(site, 1.0, user="bob", account="ml", uid=1002)
        ran(site, 1.0, user="ada", account="vision")
        for arguments, expected in (
            (("-u", "ada"), {("ml", "ada"), ("vision", "ada")}),
            (("-A", "ml"), {("ml", "ada"), ("ml", "bob")}),
            (("-A", "ml", "-u", "bob"), {("ml", "bob")}),
        ):
            assert {(row["account"], row["user"]) for row in usage_of(site, *arguments)["usage"]} == expected

    def test_without_rates_only_gpu_hours_are_shown(self, site: Site) -> None:
        ran(site, 1.0)
        assert site.json("usage")["total"]["charge"] is None
        *_, last = site.ask("usage", "-n").splitlines()
        assert last.split()[0] == "total"

    def test_names_that_would_move_the_cursor_do_not(self, site: Site) -> None:
        ran(site, 1.0, account="\x1b[2J|x")
        for arguments in ((), ("-P",)):
            assert "\x1b" not in asked(site, "usage", *arguments)
        assert {len(line.split("|")) for line in asked(site, "usage", "-P").splitlines()} == {6}

    def test_a_start_after_the_end_is_refused(self, site: Site) -> None:
        assert "is after the end" in asked(site, "usage", "-S", "now", "-E", "now-1days", code=1)
