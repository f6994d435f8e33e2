"""Metrics that count what happened since the process began: fed with what is new in the ledger.

As in every Prometheus exporter they begin at 0 with the process; `increase` and `rate` know that.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from slurmplug.ledger import metric_queries, stop_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.reports import job_view, savings
from slurmplug.reports.comparisons import comparisons
from slurmplug.reports.predicted_value import PredictedValue

STAGE_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ERROR_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
RESULTS = ("done", "frozen", "failed")
"""of cycles"""
ERRORS = ("cluster", "policy")
"""of cycles that failed: the cluster could not be read; the policy failed, or was not followed"""
STATUSES = ("done", "refused", "put off", "unknown")
"""of commands"""
QUANTITIES = ("run_time", "final_value")
"""that were forecast: the run time when a job was first seen, its final value at half of its iterations"""
STOP_RULES = ("target", "optstop", "diverged", "idle GPUs")


class Counters:
    """The counters and histograms. What was in the ledger before the first `look` is not counted."""

    def __init__(self) -> None:
        self._cycles = Counter(
            "slurmplug_cycles",
            "Cycles that are over, by how: done, frozen (no commands), failed",
            ["result"],
            registry=None,
        )
        self._cycle_errors = Counter(
            "slurmplug_cycle_errors",
            "Cycles that failed, by why: the cluster could not be read; the policy failed or was not followed",
            ["kind"],
            registry=None,
        )
        self._stages = Histogram(
            "slurmplug_cycle_stage_seconds",
            "Seconds that each stage of a cycle took",
            ["stage"],
            buckets=STAGE_SECONDS,
            registry=None,
        )
        self._commands = Counter(
            "slurmplug_commands",
            "Commands to Slurm and the spool, by verb (update writes a SiteFactor or a size) and outcome",
            ["verb", "status"],
            registry=None,
        )
        self._operations = Counter(
            "slurmplug_ended_operations",
            "Operations that ended, by kind and outcome",
            ["kind", "outcome"],
            registry=None,
        )
        self._stops = Counter("slurmplug_stops", "Jobs that a stop ended, by its rule", ["rule"], registry=None)
        self._saved = Counter(
            "slurmplug_saved_gpu_seconds",
            "GPU seconds that stopped jobs would have used after that, estimated as by `slurmplug savings`",
            ["rule"],
            registry=None,
        )
        self._faults = Counter(
            "slurmplug_faults",
            "Reports that were rejected and scripts that could not be read, by rule",
            ["rule"],
            registry=None,
        )
        self._forecasts = Counter(
            "slurmplug_forecasts",
            "Forecasts that can be compared with what came, by whether that lay in their 90 % interval",
            ["quantity", "inside"],
            registry=None,
        )
        self._errors = Histogram(
            "slurmplug_forecast_error_ratio",
            "The difference of a forecast to what came, as a share of what came",
            ["quantity"],
            buckets=ERROR_RATIOS,
            registry=None,
        )
        self._at: tuple[int, float] | None = None
        self._live: frozenset[int] = frozenset()
        self._last_row = 0
        self._fault_totals: dict[str, int] = {}
        self._name_expected()

    def _name_expected(self) -> None:
        """Create the expected counters at 0: `increase` does not see a counter that begins at 1."""
        for result in RESULTS:
            self._cycles.labels(result)
        for kind in ERRORS:
            self._cycle_errors.labels(kind)
        for status in STATUSES:
            self._commands.labels("update", status)
        for rule in STOP_RULES:
            self._stops.labels(rule)
            self._saved.labels(rule)
        for quantity in QUANTITIES:
            self._errors.labels(quantity)
            for inside in ("true", "false"):
                self._forecasts.labels(quantity, inside)

    @property
    def _all(self) -> Sequence[MetricWrapperBase]:
        return (
            self._cycles,
            self._cycle_errors,
            self._stages,
            self._commands,
            self._operations,
            self._stops,
            self._saved,
            self._faults,
            self._forecasts,
            self._errors,
        )

    def families(self) -> Iterator[Metric]:
        """What was counted so far."""
        for each in self._all:
            yield from each.collect()

    def look(self, ledger: LedgerFile) -> None:
        """Count what is new in the ledger. Raises LedgerError."""
        at, live, last_row = (
            metric_queries.last_finished(ledger),
            metric_queries.live_rows(ledger),
            metric_queries.last_row(ledger),
        )
        totals = metric_queries.fault_totals(ledger)
        if self._at is not None:
            self._count_cycles(ledger, *self._at, at[0])
            came = metric_queries.rows_after(ledger, self._last_row)
            self._count_forecasts(ledger, sorted((self._live | came) - live))
            for rule, total in totals.items():  # fewer where old ones were deleted
                self._faults.labels(rule).inc(max(0, total - self._fault_totals.get(rule, 0)))
        for rule in totals:
            self._faults.labels(rule)
        self._at, self._live, self._last_row, self._fault_totals = at, live, last_row, totals

    def _count_cycles(self, ledger: LedgerFile, after: int, began: float, until: int) -> None:
        for cycle in metric_queries.cycles_between(ledger, after, until):
            result = "failed" if cycle.error else "frozen" if cycle.frozen else "done"
            self._cycles.labels(result).inc()
            if cycle.error:
                self._cycle_errors.labels("policy" if cycle.read else "cluster").inc()
            for stage, seconds in cycle.seconds.items():
                self._stages.labels(stage).observe(seconds)
        for (verb, status), count in metric_queries.command_counts(ledger, after, until).items():
            for each in STATUSES:
                self._commands.labels(verb, each)
            self._commands.labels(verb, status).inc(count)
        ended = metric_queries.ended_operations(ledger, began, after, until)
        for operation in ended:
            self._operations.labels(operation.kind, operation.outcome).inc()
        self._count_stops(ledger, [each.job for each in ended if each.kind == "stop"])

    def _count_stops(self, ledger: LedgerFile, jobs: Sequence[int]) -> None:
        for saving in savings.savings(stop_queries.stops_of(ledger, jobs)):
            rule = saving.stop.reason.rule
            self._stops.labels(rule).inc()
            if saving.gpu_hours is not None:
                self._saved.labels(rule).inc(saving.gpu_hours.value * savings.HOUR)

    def _count_forecasts(self, ledger: LedgerFile, ended: Sequence[int]) -> None:
        """Compare forecasts with the outcomes of jobs that ended by themselves, as `slurmplug why` and `evaluate` do.

        ended: the rows of the jobs that ended.
        """
        for job in job_view.jobs_in_rows(ledger, ended):
            for quantity, forecast, actual in comparisons(job):
                self._compare(quantity, forecast, actual)

    def _compare(self, quantity: str, forecast: PredictedValue, actual: float | None) -> None:
        inside = forecast.holds(actual)
        if forecast.value is None or actual is None or inside is None:
            return
        self._forecasts.labels(quantity, str(inside).lower()).inc()
        if actual:
            self._errors.labels(quantity).observe(abs(forecast.value - actual) / abs(actual))
