"""Giving back to Slurm what slurmplug set, with or without a daemon."""

import fcntl
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmplug.cluster.port import ClusterPort, Command, Outcome
from slurmplug.ledger import Ledger
from slurmplug.record import LIVE_STATES


@dataclass(frozen=True)
class Returned:
    """What came of it. `gone`: jobs that ended meanwhile. `kept`: what could not be given back, and why, by job id."""

    priorities: Collection[int]
    requests: Collection[int]
    gone: Collection[int]
    kept: Mapping[int, str]


def give_back(ledger: Ledger, port: ClusterPort, only: int | None = None) -> Returned:
    """Set every SiteFactor that is not 0, or not known, to 0, and take back the open requests to stop.

    `only`: of this job alone.

    Raises:
        ReadFailed: Slurm could not be read; nothing was given back.
        LedgerError: what was given back may not have been noted; giving back again does no harm.
    """
    jobs = port.read(_Everything(), ()).jobs
    live = {
        job_id
        for job_id, state in zip(jobs.job_id.tolist(), jobs.state.tolist(), strict=True)
        if state in LIVE_STATES and only in (None, job_id)
    }
    set_by_us = [key for key, label in ledger.labels().items() if label != 0 and only in (None, key.job_id)]
    labels = [
        Command(f"reset-{key.job_id}", "update", key, {"SiteFactor": "0"}) for key in set_by_us if key.job_id in live
    ]
    open_stops = [o for o in ledger.open_operations() if o.kind == "stop" and only in (None, o.job.job_id)]
    requests = [
        Command(f"reset-{o.id}", "withdraw", o.job, {"what": "stop", "restart": str(o.restarts)}, o.id)
        for o in open_stops
    ]
    commands = [*labels, *requests]
    outcomes = {outcome.command: outcome for outcome in (port.apply(commands) if commands else ())}
    done = [command for command in commands if _status(outcomes, command) == "done"]
    in_doubt = [command for command in labels if _status(outcomes, command) == "unknown"]
    ledger.reset(
        labels={c.job: 0.0 for c in done if c.verb == "update"} | {c.job: float("nan") for c in in_doubt},
        withdrawn=[command.operation for command in done if command.verb == "withdraw"],
        now=port.now(),
    )
    return Returned(
        priorities=sorted(c.job.job_id for c in done if c.verb == "update"),
        requests=sorted(c.job.job_id for c in done if c.verb == "withdraw"),
        gone=sorted(key.job_id for key in set_by_us if key.job_id not in live),
        kept={c.job.job_id: _why(outcomes, c) for c in commands if c not in done},
    )


def daemon_runs(ledger: Path) -> bool:
    """Whether a daemon holds the lock beside this ledger; yes where that cannot be told."""
    try:
        descriptor = os.open(ledger.with_suffix(".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def seen_since(ledger: Ledger, when: float) -> bool:
    """Whether the daemon began a cycle after that time, so that no earlier one is still at work."""
    return bool(ledger.query("SELECT 1 FROM cycles WHERE started > ? LIMIT 1", when))


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


def _status(outcomes: Mapping[str, Outcome], command: Command) -> str:
    return outcomes[command.id].status if command.id in outcomes else "unknown"


def _why(outcomes: Mapping[str, Outcome], command: Command) -> str:
    outcome = outcomes.get(command.id)
    what = "its SiteFactor" if command.verb == "update" else "the request to stop"
    message = f": {outcome.message}" if outcome and outcome.message else ""
    return f"{what}: {outcome.status if outcome else 'unknown'}{message}"
