"""CPU time of the metrics at 10,000 jobs, as Prometheus asks for them once per cycle.

pytest tests/bench/test_bench_metrics.py --benchmark-only --benchmark-columns=median,iqr,rounds
"""

import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pytest_benchmark.fixture import BenchmarkFixture

from slurmplug.config.schema import Config
from slurmplug.endpoint.exporter import collector
from slurmplug.endpoint.exporter.collector import LedgerCollector
from tests.bench.test_bench_reports import site  # noqa: F401  a fixture
from tests.ledgers import Site


@pytest.mark.benchmark(timer=time.process_time)
def test_metrics(benchmark: BenchmarkFixture, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(collector, "FRESH_SECONDS", 0.0)
    config = Config.from_table({"ledger": {"path": str(site.path)}})
    registry = CollectorRegistry()
    registry.register(LedgerCollector(lambda: config))
    generate_latest(registry)
    text = benchmark.pedantic(lambda: generate_latest(registry), setup=lambda: site.cycle() and None, rounds=5)
    assert b"slurmplug_ledger_readable 1.0" in text
