"""Which job a row of the queue is: whether a job id still means the job that it meant before, and which run. Pure.

Slurm gives job ids out again: they wrap at MaxJobId, and a slurmctld that lost its state begins at FirstJobId. As long
as a job lives, it keeps its user, its kind (batch, array, heterogeneous) and its script. It keeps its submit time, too,
but for a requeue: one of any kind (scontrol, the failure of a node, into a hold, of a job that had ended) raises the
restart count at once, and moves the submit time when COMPLETING is over. Its name may be changed at any time.
`tests/live/test_identity.py` tries all of this.
"""

import hashlib
from typing import Literal, TypeAlias

from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import JobRecord

Identity: TypeAlias = Literal["same", "another", "in doubt"]


def digest_of(script: bytes) -> str:
    """What a script is recognized by: SHA-256, in hexadecimal; empty for an empty script."""
    return hashlib.sha256(script).hexdigest() if script else ""


def identify(record: JobRecord, row: JobFacts, digest: str | None) -> Identity:
    """Whether a row is of the record's job.

    A submit time that a requeue explains is not enough, as a job that took the id over may have been requeued as well:
    then the script decides. `digest`: of the row's script; None where it was not read in this reading.
    """
    old, submit = record.facts, int(row.submit)
    if (row.uid, row.batch, row.array_id, row.het_id) != (old.uid, old.batch, old.array_id, old.het_id):
        return "another"
    known = submit in (int(old.submit), record.key.first_submit)
    if known and not record.in_doubt:
        return "same"
    if not known and not _requeue_explains(old, row):
        return "another"
    if not record.digest or (digest is None and not row.live):
        return "same" if row.name == old.name else "another"
    if digest is None:
        return "in doubt"
    return "same" if digest == record.digest else "another"


def _requeue_explains(old: JobFacts, row: JobFacts) -> bool:
    """Whether another submit time comes from a requeue: one since, one that was under way, or one that was forgotten.

    slurmctld, when killed, begins again with the state that it saved last, which may be of before the requeue.
    """
    if row.restarts == old.restarts:
        return row.restarts > 0 and old.state == "COMPLETING"
    return row.restarts > old.restarts or (row.restarts > 0 and row.submit < old.submit)


def of_present_run(old: JobFacts, row: JobFacts) -> JobFacts:
    """The row of the same job, with what squeue does not show of its present run any more.

    A requeued job shows its new restart count at once, while the run before it is still completing: then with that
    run's restart count, start and suspensions. Of a run that goes on, the seconds for which it was suspended are never
    fewer than before; squeue shows up to as many too few as it takes itself.
    """
    if row.state == "COMPLETING" and row.submit == old.submit and row.restarts > old.restarts and old.start is not None:
        return row._replace(restarts=old.restarts, start=old.start, suspended=old.suspended)
    same_run = row.start is not None and (row.restarts, row.start) == (old.restarts, old.start)
    if same_run and row.live and row.state != "COMPLETING" and row.suspended < old.suspended:
        return row._replace(suspended=old.suspended)
    return row
