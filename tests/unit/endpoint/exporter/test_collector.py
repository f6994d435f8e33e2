"""Metrics: counters of what came since the first look, and gauges of how things are."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import Metric

from policies.baselines.fifo import FIFO
from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from slurmplug.config.schema import Config
from slurmplug.endpoint.exporter import collector
from slurmplug.endpoint.exporter.collector import LedgerCollector
from slurmplug.spool.values import SpoolFault
from tests.ledgers import Planned, Site

TRAINS = b"#!/bin/sh\n#PLUG --stop=optstop --max-iterations=20\ntrain\n"


class Scraped:
    """What Prometheus would read of a site's ledger."""

    def __init__(self, site: Site) -> None:
        config = Config.from_table({"ledger": {"path": str(site.path)}})
        self._registry = CollectorRegistry()
        self._registry.register(LedgerCollector(lambda: config, lambda: site.cluster.time))

    def text(self) -> str:
        return generate_latest(self._registry).decode()

    def __call__(self) -> "Scraped":
        self._lines = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in self._samples()}
        return self

    def _samples(self) -> Iterator[str]:
        return (line for line in self.text().splitlines() if not line.startswith("#"))

    def __getitem__(self, name: str) -> float:
        return self._lines[f"slurmplug_{name}"]

    def __contains__(self, name: str) -> bool:
        return any(line.startswith(f"slurmplug_{name}") for line in self._lines)


@pytest.fixture(autouse=True)
def _each_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "FRESH_SECONDS", 0.0)
    disable_created_metrics()  # type: ignore[no-untyped-call]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def test_before_the_first_cycle_there_is_a_ledger_and_nothing_else(site: Site) -> None:
    now = Scraped(site)()
    assert (now["ledger_readable"], now["daemon_alive"], now["paused"]) == (1, 0, 0)
    assert "jobs" not in now
    assert now['cycles_total{result="done"}'] == 0


def test_cycles_are_counted_from_the_first_look_on_with_the_times_of_their_stages(site: Site) -> None:
    site.cluster.submit()
    site.cycle(3)
    scraped = Scraped(site)
    assert scraped()['cycles_total{result="done"}'] == 0
    record = site.cycle(2)
    now = scraped()
    assert now['cycles_total{result="done"}'] == 2
    assert now['cycle_stage_seconds_count{stage="read"}'] == 2
    assert 'cycle_stage_seconds_count{stage="apply"}' in now
    assert now["snapshot_timestamp_seconds"] == record.started
    assert scraped()['cycles_total{result="done"}'] == 2


def test_a_cycle_that_failed_is_counted_as_such(site: Site) -> None:
    site.cycle()
    scraped = Scraped(site)
    scraped()
    site.cluster.reachable = False
    site.cluster.time += 60
    site.scheduler.run()
    now = scraped()
    assert now['cycles_total{result="failed"}'] == 1
    assert (now['cycle_errors_total{kind="cluster"}'], now['cycle_errors_total{kind="policy"}']) == (1, 0)


def test_a_policy_that_fails_is_another_kind_of_error(tmp_path: Path) -> None:
    def fails(snapshot: Snapshot) -> Plan:
        raise ValueError("no plan")

    with Site(tmp_path, Planned(fails)) as site:
        scraped = Scraped(site)
        scraped()
        site.cycle()
        now = scraped()
        assert now['cycles_total{result="failed"}'] == 1
        assert (now['cycle_errors_total{kind="cluster"}'], now['cycle_errors_total{kind="policy"}']) == (0, 1)


def test_writes_are_counted_by_outcome(site: Site) -> None:
    site.cycle()
    scraped = Scraped(site)
    scraped()
    for urgency in (1, 9):
        site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=%d\ntrain\n" % urgency)
    site.cycle()
    now = scraped()
    assert now['commands_total{status="done",verb="update"}'] > 0
    assert now['commands_total{status="refused",verb="update"}'] == 0


def test_gpus_are_those_of_users_and_accounts_held_and_requested(site: Site) -> None:
    held = site.cluster.submit(gpus=4, user="ada", account="vision")
    site.cluster.start(held)
    site.cluster.submit(gpus=2, user="ada", account="vision")
    site.cluster.submit(gpus=8, user="bob", account="nlp")
    site.cycle()
    now = Scraped(site)()
    assert now['gpus{account="vision",state="running",user="ada"}'] == 4
    assert now['gpus{account="vision",state="pending",user="ada"}'] == 2
    assert now['gpus{account="nlp",state="pending",user="bob"}'] == 8
    assert (now['jobs{state="pending"}'], now['jobs{state="running"}']) == (2, 1)


def test_a_stop_is_counted_with_the_gpu_time_that_savings_shows(site: Site) -> None:
    job = site.cluster.submit(gpus=4)
    site.cluster.start(job)
    site.train(job, {iteration: 0.8 + iteration / 50 for iteration in range(1, 7)})
    site.cycle()
    scraped = Scraped(site)
    assert 'open_operations{kind="stop",step=' in scraped()
    site.cluster.end(job)
    site.cycle()
    now = scraped()
    [shown] = site.json("savings")["done"]["rows"]
    assert now['stops_total{rule="target"}'] == shown["stops"] == 1
    assert now['saved_gpu_seconds_total{rule="target"}'] == pytest.approx(shown["gpu_hours"]["value"] * 3600)
    assert now['ended_operations_total{kind="stop",outcome="stopped"}'] == 1
    assert scraped()['stops_total{rule="target"}'] == 1


def test_what_a_guardrail_forbids_is_shown_by_its_rule(tmp_path: Path) -> None:
    def stops(snapshot: Snapshot) -> Plan:
        actions = tuple(Action("stop", key, Reason("optstop", {})) for key in snapshot.jobs.keys)
        return Plan(np.full(len(snapshot.jobs), np.nan), actions=actions)

    with Site(tmp_path, Planned(stops), mode={"default": "observe"}) as site:
        job = site.cluster.submit(TRAINS)
        site.cluster.start(job)
        site.train(job, {1: 0.5, 2: 0.6})
        site.cycle()
        assert Scraped(site)()['vetoed_actions{kind="stop",rule="mode"}'] == 1


def test_forecasts_are_compared_with_what_came(site: Site) -> None:
    scraped = Scraped(site)
    scraped()

    def trained(seconds: float) -> None:
        job = site.cluster.submit(TRAINS)
        site.cycle()
        site.cluster.start(job)
        site.cluster.time += seconds
        site.cluster.end(job)
        site.cycle()

    for seconds in (1000.0, 1000.0, 1000.0, 1000.0, 1000.0):
        trained(seconds)
        scraped()
    now = scraped()
    compared = sum(now[f'forecasts_total{{inside="{inside}",quantity="run_time"}}'] for inside in ("true", "false"))
    expected = site.json("acct", "-a", "-S", "1970-01-01")["jobs"]
    assert compared == sum(job["predicted"] is not None for job in expected) > 0
    assert now['forecast_error_ratio_count{quantity="run_time"}'] == compared


def test_doubted_reports_are_counted_and_those_deleted_take_nothing_away(site: Site) -> None:
    site.cluster.faults = [SpoolFault(0, "spool", "unreadable", 3)]
    site.cycle()
    scraped = Scraped(site)
    assert scraped()['faults_total{rule="spool"}'] == 0
    site.cluster.faults = [SpoolFault(0, "spool", "unreadable", 3)]
    site.cycle()
    assert scraped()['faults_total{rule="spool"}'] == 3
    site.ledger.db.execute("DELETE FROM faults")
    assert scraped()['faults_total{rule="spool"}'] == 3


def test_an_unreadable_ledger_is_said_and_the_counters_stay(site: Site) -> None:
    site.cycle()
    scraped = Scraped(site)
    scraped()
    site.cycle()
    scraped()
    site.path.rename(site.path.with_name("away"))
    now = scraped()
    assert now["ledger_readable"] == 0
    assert now['cycles_total{result="done"}'] == 1
    assert "jobs" not in now


def test_the_ledger_is_read_once_for_all_who_ask_within_a_second(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.cycle()
    read: list[object] = []

    def gauges(*of: object) -> Iterator[Metric]:
        read.append(of)
        return iter(())

    monkeypatch.setattr(collector, "FRESH_SECONDS", 60.0)
    monkeypatch.setattr(collector, "_gauges", gauges)
    scraped = Scraped(site)
    for _ in range(5):
        scraped.text()
    assert len(read) == 1


def test_promtool_finds_no_fault_with_names_and_help(site: Site) -> None:
    site.cluster.submit()
    site.cycle(2)
    assert shutil.which("promtool"), "install it: apt-get install prometheus"
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=Scraped(site).text(), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_overload_is_shown_where_the_policy_knows_it(site: Site, tmp_path: Path) -> None:
    site.cluster.submit()
    site.cycle()
    assert Scraped(site)()["overloaded"] in (0, 1)
    (tmp_path / "fifo").mkdir()
    with Site(tmp_path / "fifo", FIFO()) as other:
        other.cycle()
        assert "overloaded" not in Scraped(other)()


def names(text: str) -> set[Any]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


def test_every_metric_is_documented(site: Site) -> None:
    site.cluster.submit()
    site.cycle(2)
    page = (Path(__file__).parents[4] / "docs/metrics.md").read_text()
    assert not {name for name in names(Scraped(site).text()) if f"`{name}`" not in page}
