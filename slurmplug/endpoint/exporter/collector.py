"""All metrics, as Prometheus collects them: what was counted, and gauges of how things are now."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slurmplug.config.schema import Config
from slurmplug.endpoint.exporter.counters import Counters
from slurmplug.errors import LedgerError
from slurmplug.ledger import cycle_queries, metric_queries, queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.reports import daemon_status
from slurmplug.reports.viewer import OPERATOR

FRESH_SECONDS = 1.0
"""For so long the ledger is not read again, however many ask."""

log = logging.getLogger(__name__)


class LedgerCollector(Collector):
    """The metrics of a ledger; thread-safe."""

    def __init__(self, config: Callable[[], Config], clock: Callable[[], float] = time.time) -> None:
        """config: returns the configuration in force. clock: seconds since the epoch."""
        self._config, self._clock = config, clock
        self._counters = Counters()
        self._gauges: Sequence[Metric] = ()
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering it reads no ledger."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics. Where the ledger cannot be read, those that were counted, and that."""
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._gauges = self._read()
                self._read_at = time.monotonic()
            return iter([*self._counters.families(), *self._gauges])

    def _read(self) -> list[Metric]:
        config, now, began = self._config(), self._clock(), time.monotonic()
        try:
            with contextlib.closing(LedgerFile(config.ledger.path, readonly=True)) as ledger:
                self._counters.look(ledger)
                found = list(_gauges(ledger, config, now))
        except LedgerError as error:
            log.warning("metrics: %s", error)
            return [_gauge("ledger_readable", "Whether the ledger could be read for this answer", 0)]
        return [
            *found,
            _gauge("ledger_readable", "Whether the ledger could be read for this answer", 1),
            _gauge("metrics_seconds", "Seconds that it took to compute these metrics", time.monotonic() - began),
        ]


def _gauges(ledger: LedgerFile, config: Config, now: float) -> Iterator[Metric]:
    status = daemon_status.status(ledger, config.ledger.path, config, OPERATOR, now)
    yield _labelled("build_info", "The release, and the policy in force", ("version", "policy"), [
        ((version("slurmplug"), str(status["policy"])), 1),
    ])  # fmt: skip
    yield _gauge("daemon_alive", "Whether the daemon runs and has begun a cycle of late", status["alive"])
    yield _gauge("paused", "Whether an operator has paused it", status["paused"] is not None)
    yield _gauge("cycle_interval_seconds", "Seconds from one cycle to the next, as configured", config.interval)
    modes = status["modes"]
    yield _labelled("mode_info", "The mode of each kind of action", ("kind", "mode"), [
        ((kind, mode or modes["default"]), 1) for kind, mode in modes.items()
    ])  # fmt: skip
    yield _gauge(
        "failed_cycles_in_a_row",
        "Cycles up to the last none of whose commands was carried out",
        status["failures_in_a_row"],
    )
    yield _gauge("ledger_bytes", "The size of the ledger", status["ledger"]["bytes"])
    cycle = status["cycle"]
    if cycle["id"] is not None:
        yield from _of_last_cycle(ledger, cycle["id"])
        yield _gauge("snapshot_timestamp_seconds", "When the last cycle read jobs and nodes", cycle["started"])
    held = metric_queries.held_gpus(ledger)
    yield _labelled("gpus", "GPUs held by running jobs, and requested by pending ones", ("state", "user", "account"), [
        ((each.state, each.user, each.account), each.gpus) for each in held
    ])  # fmt: skip
    operations = [((each["kind"], each["step"]), each["jobs"]) for each in status["operations"]]
    yield _labelled(
        "open_operations", "Jobs with an open operation, by its kind and step", ("kind", "step"), operations
    )


def _of_last_cycle(ledger: LedgerFile, cycle: int) -> Iterator[Metric]:
    last = queries.last_cycle(ledger)
    assert last is not None
    yield _labelled("jobs", "Jobs of the last cycle that have not ended, by state", ("state",), [
        (("pending",), last.pending), (("running",), last.running),
    ])  # fmt: skip
    yield _gauge("managed_jobs", "Jobs of the last cycle that slurmplug may act on", last.managed)
    yield _gauge("postponed_writes", "SiteFactors that wait for the next cycle", last.postponed)
    yield _gauge("frozen", "Whether a guardrail forbade all commands of the last cycle", bool(last.frozen))
    yield _labelled("vetoed_actions", "Actions of the last cycle that a guardrail forbade", ("kind", "rule"), [
        ((kind, rule), count) for kind, rule, count in metric_queries.vetoed_counts(ledger, cycle)
    ])  # fmt: skip
    memory = cycle_queries.policy_memory(ledger, last.policy)
    if "overloaded" in memory:
        yield _gauge("overloaded", "Whether the policy takes the cluster for overloaded", bool(memory["overloaded"][0]))


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"slurmplug_{name}", about, float(value))


def _labelled(name: str, about: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(f"slurmplug_{name}", about, labels=labels)
    for of, value in values:
        family.add_metric(of, float(value))
    return family
