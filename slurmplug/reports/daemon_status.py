"""Whether the daemon is alive, and what it did: the values that `slurmplug status` shows."""

from pathlib import Path
from typing import Any

from slurmplug.config import policy_names
from slurmplug.config.schema import Config
from slurmplug.ledger import cycle_queries, queries, queue_forecasts
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.lock import daemon_runs
from slurmplug.ledger.sqlite import Row
from slurmplug.reports import model_view
from slurmplug.reports.alive import alive
from slurmplug.reports.viewer import Viewer, shown_error

JOURNAL = Path("/run/systemd/system")
"""Exists where systemd runs (sd_booted(3)), and with it the journal."""
DAY = 86_400.0
JUDGED_DAYS = 30
"""The forecasts of so many days are compared with what came true."""


def status(ledger: LedgerFile, path: Path, config: Config, viewer: Viewer, now: float) -> dict[str, Any]:
    """What JSON shows. `path`: the ledger's."""
    last, cycle = queries.last_attempt(ledger), queries.last_cycle(ledger)
    age = now - last.started if last else None
    running, past = daemon_runs(path), cycle_queries.past(ledger, now, 0.0, ())
    not_ranked = queries.factors_by_others(ledger)
    figures = ("id", "started", "jobs", "pending", "running", "managed", "postponed")
    return {
        "alive": alive(last, running, config, now),
        "running": running,
        "age": age,
        "interval": config.interval,
        "paused": cycle_queries.control(ledger, "paused"),
        "hindered": cycle_queries.control(ledger, "hindered"),
        "modes": cycle.modes if cycle else {},
        "policy": (cycle and cycle.policy) or config.policy,
        "policies": policy_names.names(),
        "models": model_view.in_charge(ledger, now, viewer),
        "cycle": {
            **{name: getattr(cycle, name, None) for name in figures},
            "seconds": cycle.seconds if cycle else {},
        },
        "frozen": (cycle and cycle.frozen) or "",
        "error": shown_error(last.error, viewer) if last else "",
        "operations": _named(viewer, queries.open_operation_counts(ledger)),
        "stops_last_hour": sum(past.stops_last_hour.values()),
        "factors_by_others": len(not_ranked),
        "not_ranked": not_ranked if viewer.sees_all else [],
        "failures_in_a_row": past.failures_in_a_row,
        "unchangeable": _named(viewer, queries.unchangeable_requests(ledger, now - DAY)),
        "faults": _named(viewer, queries.fault_counts(ledger, now - DAY)),
        "forecasts": _forecasts(ledger, now),
        "journal": JOURNAL.is_dir(),
        "ledger": {
            "path": str(path),
            "bytes": sum(part.stat().st_size for part in _parts(path) if part.exists()),
            **queries.sizes(ledger),
        },
    }


def _forecasts(ledger: LedgerFile, now: float) -> dict[str, Any]:
    """When the queue was as the last forecast goes by, and how the starts and ends of jobs came that were forecast."""
    last, since = queue_forecasts.last(ledger), now - JUDGED_DAYS * DAY
    return {
        "at": None if last is None else last.at,
        "days": JUDGED_DAYS,
        "start": queue_forecasts.start_accuracy(ledger, since)._asdict(),
        "end": queue_forecasts.end_accuracy(ledger, since)._asdict(),
    }


def _named(viewer: Viewer, counts: list[Row]) -> list[Row]:
    """The counts with the ids of their jobs, for who sees all jobs."""
    return counts if viewer.sees_all else [{**row, "job_ids": []} for row in counts]


def _parts(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-wal")
