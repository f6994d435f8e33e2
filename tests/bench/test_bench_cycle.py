"""What each part of a cycle takes with 10,000 jobs, a tenth of them running and half of them with directives."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from policies.mlfs.mlfs import MLFS
from slurmplug.cluster.port import Command, Reading
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.intake.intake import Intake
from slurmplug.ledger.ledger import Ledger
from slurmplug.rules import guardrails
from slurmplug.rules.guardrails import Past
from tests.builders import NOW
from tests.fake_cluster import job_row, node_rows, reading, report

JOBS = 10_000
RUNNING = 1_000
NODES = 500
CONFIG = Config.from_table({"mode": {"default": "act"}})
SCRIPT = b"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations=200 --urgency=7 --deadline=2h --type=resnet\n"


def look(cycle: int, reports: bool = True) -> Reading:
    """The queue after so many minutes; every running job reports one iteration a minute."""
    now = NOW + 60.0 * cycle
    running: dict[str, Any] = {"state": "RUNNING", "start": NOW}
    rows = [
        job_row(
            job_id,
            user=f"user{job_id % 100}",
            uid=1000 + job_id % 100,
            gpus=1 + job_id % 8,
            priority=float(job_id),
            features=("", "a100", "a100&nvlink")[job_id % 3],
            **(running | {"node_list": f"n[{job_id % NODES + 1}]"} if job_id <= RUNNING else {}),
        )
        for job_id in range(1, JOBS + 1)
    ]
    said = {
        job_id: report(time=now, iteration=cycle, loss=1.0 / cycle, accuracy=1.0 - 0.9 / cycle)
        for job_id in range(1, RUNNING + 1)
    }
    scripts = {job_id: SCRIPT if job_id % 2 else b"#!/bin/sh\ntrue\n" for job_id in range(1, JOBS + 1)}
    nodes = node_rows(NODES, features=[frozenset({"a100"} if i % 2 else {"a100", "nvlink"}) for i in range(NODES)])
    return reading(*rows, now=now, nodes=nodes, scripts=scripts, reports=said if reports else {})


class Cycles:
    """An intake, a forecaster and a ledger that have seen twenty cycles."""

    def __init__(self) -> None:
        self.intake, self.forecaster, self.policy, self.ledger = Intake(), Forecaster(), MLFS(), Ledger(None)
        self.number = 0
        for _ in range(20):
            record = self.record()
        self.ledger.begin(replace(record, changes=self.changes))

    def record(self) -> CycleRecord:
        self.number += 1
        seen, changes = self.intake.absorb(look(self.number), self.number)
        self.changes = changes.after(getattr(self, "changes", None))
        forecasts = self.forecaster.forecast(seen, self.policy.needs)
        plan = self.policy.decide(seen, forecasts, {})
        verdict = guardrails.check(seen, plan, Past(seen.now), CONFIG.mode, CONFIG.guardrails)
        keys = seen.jobs.keys[:200]
        writes = [Command(f"{self.number}-label-{key.job_id}", "update", key, {"SiteFactor": "5"}) for key in keys]
        return CycleRecord(
            started=seen.now, policy="mlfs", modes={}, snapshot=seen, forecasts=forecasts, memory={}, decided=plan,
            made_from=self.policy.made_from, plan=plan,
            verdict=verdict, operations=(), commands=writes, changes=changes, postponed=0, seconds={},
        )  # fmt: skip


@pytest.fixture(scope="module")
def cycles() -> Iterator[Cycles]:
    made = Cycles()
    with closing(made.ledger):
        yield made


def test_absorb_the_first_look(benchmark: Any) -> None:
    first = look(1)
    benchmark.pedantic(lambda intake: intake.absorb(first, 1), setup=lambda: ((Intake(),), {}), rounds=3)


def test_absorb(benchmark: Any, cycles: Cycles) -> None:
    def setup() -> tuple[Any, Any]:
        cycles.number += 1
        return (look(cycles.number), cycles.number), {}

    benchmark.pedantic(cycles.intake.absorb, setup=setup, rounds=5)


def test_forecast(benchmark: Any, cycles: Cycles) -> None:
    def setup() -> tuple[Any, Any]:
        cycles.number += 1
        return (cycles.intake.absorb(look(cycles.number), cycles.number)[0], cycles.policy.needs), {}

    benchmark.pedantic(cycles.forecaster.forecast, setup=setup, rounds=3)


def test_check(benchmark: Any, cycles: Cycles) -> None:
    record = cycles.record()
    benchmark(guardrails.check, record.snapshot, record.plan, Past(record.snapshot.now), CONFIG.mode, CONFIG.guardrails)


@pytest.mark.parametrize("commands", [False, True], ids=["quiet", "commanding"])
def test_begin(benchmark: Any, cycles: Cycles, commands: bool) -> None:
    def setup() -> tuple[Any, Any]:
        record = cycles.record()
        return (record if commands else replace(record, commands=()),), {}

    benchmark.pedantic(cycles.ledger.begin, setup=setup, rounds=3)


def test_past(benchmark: Any, cycles: Cycles) -> None:
    benchmark(cycles.ledger.past, NOW)


def test_restart(benchmark: Any, cycles: Cycles) -> None:
    records = benchmark.pedantic(cycles.ledger.live_records, rounds=2)
    assert len(records) == JOBS
