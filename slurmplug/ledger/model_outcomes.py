"""What models of learnt policies did, cycle by cycle, and how long jobs took under whom.

All functions raise `LedgerError` where the ledger cannot be read or written.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from policies.snapshot import JobKey
from slurmplug.cycle.outcomes import Outcomes
from slurmplug.ledger import cycle_queries, job_rows
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.ledger import Ledger

MOST_JOBS = 500
"""The latest of them are compared."""


class ModelCycle(NamedTuple):
    """A model's part in one cycle.

    error: why it was not followed, or could not have been; else empty. Of a model in shadow, beside the policy that
    acted, NaN where there is none: ranks, the rank correlation of the pending jobs' order; actions, the share of
    actions that both have of those that one has; gain, the share by which the jobs' mean time to their ends is
    forecast to be shorter in its order.
    """

    cycle: int
    role: Literal["shadow", "acting"]
    error: str = ""
    ranks: float = np.nan
    actions: float = np.nan
    gain: float = np.nan


class ModelRecord(NamedTuple):
    """A model's cycles in one role since it has it.

    errors: how many of the `cycles` had one; last_error: the last of these. The others are means, None where there is
    none.
    """

    cycles: int
    errors: int
    last_error: str
    ranks: float | None
    actions: float | None
    gain: float | None


def keep_cycle(ledger: Ledger, digest: str, made: ModelCycle) -> None:
    """Keep a model's part in a cycle."""
    row = {name: job_rows.nan_to_null(value) if name in _FIGURES else value for name, value in made._asdict().items()}
    with ledger._transaction():
        ledger._put("model_cycles", [{**row, "model": digest}], key=["cycle", "model"])


def record(ledger: LedgerFile, digest: str, role: Literal["shadow", "acting"]) -> ModelRecord:
    """A model's cycles in a role since it has it."""
    return ModelRecord(**ledger.query(_RECORD, digest, role)[0])


def errors_since(ledger: LedgerFile, digest: str, when: float) -> list[str]:
    """Why the acting model was not followed, cycle by cycle, in those that began after that time and since it acts."""
    return [row["error"] for row in ledger.query(_ERRORS, digest, "acting", when)]


def cycles_without_error(ledger: LedgerFile, digest: str) -> int:
    """In how many cycles in shadow, up to the last one, the model decided without an error."""
    return int(ledger.value(_WITHOUT_ERROR, digest, "shadow"))


def keep_waits(ledger: Ledger, ranked_by: str, waits: Mapping[JobKey, float], now: float) -> None:
    """Keep what was forecast of jobs' times to their ends, when each was first ranked by this model or policy."""
    found = [(cycle_queries.row_id(ledger, job), ranked_by, now, expected) for job, expected in waits.items()]
    with ledger._transaction():
        ledger._run("INSERT OR IGNORE INTO foreseen_waits (job, ranked_by, at, expected) VALUES (?, ?, ?, ?)", found)


def waits_of_live_jobs(ledger: LedgerFile) -> frozenset[JobKey]:
    """The live jobs of which that is kept."""
    found = ledger.query(_LIVE)
    return frozenset(JobKey(row["cluster"], row["job_id"], row["first_submit"]) for row in found)


def outcomes(ledger: LedgerFile, ranked_by: str, now: float) -> Outcomes:
    """The outcomes of the latest jobs that one model or policy, `ranked_by`, ranked until they started."""
    found = ledger.query(_OUTCOMES, ranked_by, MOST_JOBS)
    took = np.array([(row["end"] or now) - row["at"] for row in found])
    expected = np.array([row["expected"] for row in found])
    ended = np.array([row["state"] == "COMPLETED" and row["ended"] == 1 for row in found], dtype=bool)
    return Outcomes(np.maximum(took, 1.0) / expected, ended)


def ended_jobs(ledger: LedgerFile, ranked_by: str) -> int:
    """How many of these jobs ended."""
    return int(ledger.value(_ENDED, ranked_by))


_FIGURES = ("ranks", "actions", "gain")
_SINCE = """
model = ?1 AND role = ?2 AND cycle > coalesce((SELECT max(cycle) FROM model_events
    WHERE model_events.model = ?1 AND event = CASE ?2 WHEN 'acting' THEN 'promoted' ELSE 'shadow' END), 0)
"""
"""The model's cycles in a role since it has it."""
_RECORD = f"""
SELECT count(*) AS cycles, coalesce(sum(error != ''), 0) AS errors,
    coalesce((SELECT error FROM model_cycles WHERE {_SINCE} AND error != '' ORDER BY cycle DESC LIMIT 1), '')
    AS last_error, avg(ranks) AS ranks, avg(actions) AS actions, avg(gain) AS gain
FROM model_cycles WHERE {_SINCE}
"""
_ERRORS = f"""
SELECT error FROM model_cycles WHERE {_SINCE} AND error != ''
    AND cycle > coalesce((SELECT max(id) FROM cycles WHERE started <= ?3), 0) ORDER BY cycle
"""
_WITHOUT_ERROR = f"""
SELECT count(*) FROM model_cycles WHERE {_SINCE}
    AND cycle > coalesce((SELECT max(cycle) FROM model_cycles WHERE {_SINCE} AND error != ''), 0)
"""
_LIVE = """
SELECT cluster, job_id, first_submit FROM jobs JOIN foreseen_waits ON foreseen_waits.job = jobs.id WHERE ended = 0
"""
_OUTCOMES = """
SELECT at, expected, end, ended, state FROM foreseen_waits JOIN jobs ON jobs.id = job
WHERE ranked_by = ? ORDER BY at DESC LIMIT ?
"""
_ENDED = """
SELECT count(*) FROM foreseen_waits JOIN jobs ON jobs.id = job WHERE ranked_by = ? AND ended = 1
"""
