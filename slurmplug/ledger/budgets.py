"""How many bytes the ledger keeps, of each job, each user and each table, and what goes first: the oldest.

table          of one job, one user     in all     beyond it
progress       JOB, USER                POINTS     earlier runs of the job; of ended jobs, all but the last point of
                                                   each trial, the longest ended first
jobs           USER                     JOBS       ended jobs with all that hangs on them, of the users who have most
cycles.inputs                           INPUTS     the oldest; after INPUTS_IN_FULL one cycle in EACH_WHOLE
cycles                                             after CYCLES_IN_FULL those without commands, errors or evidence
commands                                COMMANDS   those without an operation, the oldest; after COMMANDS_KEPT those
                                                   of ended jobs
"""

from collections.abc import Collection

from slurmplug.ledger.database import LedgerFile

KIB = 1_024
JOB = 1_024 * KIB
"""The points of all runs of a job; of one run, `slurmplug.spool.report_lines.MAX_RUN_BYTES`."""
USER = 256 * 1_024 * KIB
POINTS = 4 * 1_024 * 1_024 * KIB
JOBS = 4 * 1_024 * 1_024 * KIB
INPUTS = 1_024 * 1_024 * KIB
COMMANDS = 4_000_000
"""rows, of some 250 bytes"""
WEIGHED = 50_000
"""Ended jobs that are weighed at a time; others are weighed an hour later."""
DAY = 86_400.0
INPUTS_IN_FULL = DAY
"""Seconds after which only the inputs that are stored whole stay, not the differences to them."""
INPUTS_EVERY = 300.0
"""Seconds from one cycle whose inputs are kept to the next: those of cycles with commands, and of one without where
there was none for so long, as what is estimated of the queue is by the last ones."""
INPUTS_OF_CHANGES_EVERY = 60.0
"""The same seconds where jobs came, started or ended since."""
EACH_WHOLE = 60
"""At least one in so many cycles whose inputs are kept, and one in INPUTS_IN_FULL seconds, has them stored whole."""
CYCLES_IN_FULL = COMMANDS_KEPT = 30 * DAY


def keep_job_within(ledger: LedgerFile, job: int) -> None:
    """Delete the points of a job's earliest runs, within a transaction, while it has more than its share."""
    while _size(ledger, job) > JOB:
        deleted = ledger.db.execute(_FORGET_EARLIEST_RUN, [job])
        if not deleted.rowcount:
            return


def thin(ledger: LedgerFile, now: float) -> None:
    """Delete, within a transaction, what is beyond the budgets."""
    for row in ledger.query(_USERS_BEYOND, USER):
        _thin_jobs(ledger, row["bytes"] - USER, "AND user IS ?", row["user"])
    beyond = int(ledger.value("SELECT coalesce(sum(bytes), 0) FROM progress_size")) - POINTS
    _thin_jobs(ledger, beyond)
    _thin_ended(ledger)
    ledger.db.execute(_FORGET_DIFFERENCES, [now - INPUTS_IN_FULL])
    beyond = int(ledger.value("SELECT coalesce(sum(length(inputs)), 0) FROM cycles WHERE inputs IS NOT NULL")) - INPUTS
    if beyond > 0:
        ledger.db.execute(_FORGET_OLDEST_INPUTS, [beyond])
    ledger.db.execute(_FORGET_COMMANDS, [now - COMMANDS_KEPT])
    ledger.db.execute(_FORGET_OLDEST_COMMANDS, [COMMANDS])
    ledger.db.execute(_FORGET_CYCLES, [now - CYCLES_IN_FULL])


def _thin_jobs(ledger: LedgerFile, beyond: float, which: str = "", *parameters: object) -> None:
    """Leave of ended jobs, the longest ended first, the last point of each trial, until so many bytes are gone."""
    if beyond <= 0:
        return
    for row in ledger.query(_ENDED.format(which), *parameters):
        if beyond <= 0:
            return
        ledger.db.execute(_LEAVE_LAST_POINTS, [row["job"]])
        beyond -= row["bytes"] - _size(ledger, row["job"])


def _thin_ended(ledger: LedgerFile) -> None:
    """Delete ended jobs, each user's oldest first, until each user and all have no more than their share."""
    ledger.db.execute(_WEIGH, [WEIGHED])
    taken = ledger.query(_ENDED_OF_USERS)
    most = min(USER, fair_share([row["bytes"] for row in taken], JOBS))
    beyond = [row for row in taken if row["bytes"] > most]
    for row in beyond:
        ledger.db.execute(_FORGET_ENDED, [row["user"], row["bytes"] - most])
    if beyond:
        ledger.db.execute("DELETE FROM faults WHERE job_id != 0 AND job_id NOT IN (SELECT job_id FROM jobs)")


def fair_share(taken: Collection[float], budget: float) -> float:
    """The most that each may keep so that all keep no more than the budget; those who have less give nothing up."""
    left, share = budget, float("inf")
    for users, size in zip(range(len(taken), 0, -1), sorted(taken), strict=True):
        share = left / users
        if size > share:
            return share
        left -= size
    return float("inf")


def _size(ledger: LedgerFile, job: int) -> int:
    return int(ledger.value("SELECT coalesce((SELECT bytes FROM progress_size WHERE job = ?), 0)", job))


_FORGET_EARLIEST_RUN = """
DELETE FROM progress WHERE job = ?1 AND restarts = (SELECT min(restarts) FROM progress WHERE job = ?1)
    AND restarts < (SELECT max(restarts) FROM progress WHERE job = ?1)
"""
_USERS_BEYOND = """
SELECT user, sum(bytes) AS bytes FROM progress_size JOIN jobs ON jobs.id = progress_size.job
GROUP BY user HAVING sum(bytes) > ?
"""
_ENDED = """
SELECT job, bytes FROM progress_size JOIN jobs ON jobs.id = progress_size.job
WHERE ended = 1 AND listed = 0 {} ORDER BY last_seen, job
"""
_LEAVE_LAST_POINTS = """
DELETE FROM progress WHERE job = ?1 AND (restarts, trial, iteration) NOT IN (
    SELECT restarts, trial, max(iteration) FROM progress WHERE job = ?1 GROUP BY restarts, trial
)
"""
_FORGET_DIFFERENCES = """
UPDATE cycles SET inputs = NULL, inputs_base = NULL
WHERE inputs IS NOT NULL AND inputs_base IS NOT NULL AND started < ?
"""
_FORGET_OLDEST_INPUTS = """
WITH aged AS (
    SELECT coalesce(inputs_base, id) AS base, sum(length(inputs)) AS bytes
    FROM cycles WHERE inputs IS NOT NULL GROUP BY 1
), summed AS (SELECT base, sum(bytes) OVER (ORDER BY base) - bytes AS before FROM aged)
UPDATE cycles SET inputs = NULL, inputs_base = NULL
WHERE inputs IS NOT NULL AND coalesce(inputs_base, id) IN (SELECT base FROM summed WHERE before < ?)
"""
"""Differences go with the inputs that they are the difference to."""
_WEIGH = """
UPDATE jobs SET weight = 700 + length(coalesce(name, '')) + length(coalesce(comment, ''))
    + length(coalesce(dependency, '')) + length(coalesce(features, '')) + length(coalesce(node_list, ''))
    + length(coalesce(directives, '')) + length(submitted_directives) + length(changes) + length(trials)
    + (SELECT coalesce(sum(length(facts) + length(veto_facts) + 150), 0) FROM decisions WHERE job = jobs.id)
    + (SELECT coalesce(sum(length(facts) + length(goal) + length(undo) + length(noted) + length(seen) + length(result)
        + 300 + 100 * (SELECT count(*) FROM steps WHERE operation = operations.id)), 0)
        FROM operations WHERE job = jobs.id)
    + (SELECT 100 * count(*) FROM foreseen_starts WHERE job = jobs.id)
    + (SELECT 60 * count(*) FROM throttled_arrays WHERE job = jobs.id)
    + (SELECT coalesce(sum(length(result) + 60), 0) FROM notifications WHERE job = jobs.id)
    + (SELECT coalesce(sum(length(fields) + length(message) + 200), 0) FROM commands WHERE job = jobs.id)
WHERE id IN (SELECT id FROM jobs WHERE ended = 1 AND listed = 0 AND weight IS NULL LIMIT ?)
"""
"""With what SQLite adds to each row and its indexes."""
_ENDED_OF_USERS = """
SELECT user, coalesce(sum(weight), 0) AS bytes FROM jobs WHERE ended = 1 AND listed = 0 GROUP BY user
"""
_FORGET_ENDED = """
WITH aged AS (
    SELECT id, sum(weight) OVER (ORDER BY last_seen, id) - weight AS before
    FROM jobs WHERE user IS ? AND ended = 1 AND listed = 0 AND weight IS NOT NULL
)
DELETE FROM jobs WHERE id IN (SELECT id FROM aged WHERE before < ?)
"""
_FORGET_CYCLES = """
DELETE FROM cycles WHERE started < ? AND error = '' AND inputs IS NULL AND id < (SELECT max(id) FROM cycles)
    AND NOT EXISTS (SELECT 1 FROM commands WHERE cycle = cycles.id)
    AND NOT EXISTS (SELECT 1 FROM model_cycles WHERE cycle = cycles.id)
"""
_FORGET_COMMANDS = """
DELETE FROM commands WHERE operation IS NULL AND cycle < (SELECT coalesce(max(id), 0) FROM cycles WHERE started < ?)
    AND job IN (SELECT id FROM jobs WHERE ended = 1)
"""
_FORGET_OLDEST_COMMANDS = """
DELETE FROM commands WHERE operation IS NULL AND status != 'unknown'
    AND cycle <= (SELECT cycle FROM commands ORDER BY cycle DESC LIMIT 1 OFFSET ?)
"""
"""Commands whose outcome is not known stay, as the next start has to find out what became of them."""
