"""`Reports` from the ledger."""

import gc
import pwd
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplug.config.schema import Config
from slurmplug.console import table
from slurmplug.console.table import Field
from slurmplug.errors import UsageError
from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.lock import daemon_runs
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports import acct, job_view, queue_fields
from slurmplug.reports.alive import alive
from slurmplug.reports.fact_fields import columns_of
from slurmplug.reports.interface import JobExplanation, Suggestions, Table
from slurmplug.reports.queue import EVERYTHING, queue_table
from slurmplug.reports.viewer import OPERATOR, Viewer

if TYPE_CHECKING:
    from slurmplug.reports.job_request import JobRequest

ACCT_FIELDS: Mapping[str, Field[Any]] = {field.name.lower(): field for field in acct.FIELDS}


class LedgerReports:
    """`Reports` from a ledger."""

    def __init__(
        self, ledger: LedgerFile, path: Path, config: Config, viewer: Viewer = OPERATOR, most: int = 0
    ) -> None:
        """`viewer`: who is shown the jobs that Slurm shows them. `most`: more jobs raise UsageError; 0 for no limit."""
        self._ledger, self._path, self._config = ledger, path, config
        self._viewer = viewer
        self._most = most

    def jobs(self, which: Selection, fields: Sequence[str], page: slice = EVERYTHING) -> Table:
        """For `acct`: a page of the jobs in order of id. Raises UsageError where the jobs are too many."""
        visible, others = self._visible(which), self._viewer.sees_all
        with _without_collector():
            if page == EVERYTHING:
                found = job_view.jobs(self._ledger, visible, others=others)
            else:
                rows = queries.job_rows(self._ledger, visible)[page]
                found = job_view.jobs_in_rows(self._ledger, rows, others=others)
            wanted = [acct.charged(each, self._config) for each in _named(fields, ACCT_FIELDS)]
            return columns_of(wanted, found)

    def queue(self, which: Selection, fields: Sequence[str], page: slice = EVERYTHING) -> Table:
        """For `queue` and `prio`: a page of the queue, in its order."""
        with _without_collector():
            wanted = [acct.charged(each, self._config) for each in _named(fields, queue_fields.FIELDS)]
            named = list(zip(fields, wanted, strict=True))
            return queue_table(self._ledger, self._visible(which), named, page)

    def explain_job(self, job: JobId, *, curves: bool = False) -> list[JobExplanation]:
        """For `why`: of each element of an array; empty where there is no such job. `curves`: with `curve`."""
        from slurmplug.reports import explaining  # noqa: PLC0415  the other reports need no sentences

        visible = self._visible(Selection(jobs=(job,)))
        fields = [acct.charged(field, self._config) for field in acct.FIELDS]
        return [
            JobExplanation(table.as_dict(fields, each), each.facts.array_task < 0, story)
            for each, story in explaining.explained(self._ledger, visible, self._viewer, self._config, curves=curves)
        ]

    def suggestions(self, which: Selection) -> Suggestions:
        """For `suggest`: about the jobs of these that have ended. Raises UsageError where the jobs are too many."""
        from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds  # noqa: PLC0415  the other reports need no statistics
        from slurmplug.ledger import cycle_queries, suggestion_queries, throttled_arrays  # noqa: PLC0415
        from slurmplug.reports import suggest  # noqa: PLC0415

        saved = cycle_queries.model(self._ledger, "speed")
        known = saved is not None and saved[0] == SeenSpeeds.version  # of another release: the daemon learns them anew
        seen = SeenSpeeds.from_state(saved[2]) if saved and known else SeenSpeeds()
        visible = self._visible(which)
        throttled = throttled_arrays.of_arrays(self._ledger, visible)
        found = suggest.suggest(suggestion_queries.ended_jobs(self._ledger, visible), seen, throttled)
        if not any(each.what == "array split" for each in found.suggestions):
            return found
        from slurmplug.reports import suggested_starts  # noqa: PLC0415  it loads the predictors

        return replace(found, suggestions=suggested_starts.with_starts(self._ledger, found.suggestions))

    def knows_user(self, user: str) -> bool:
        """Whether the user has an account on this machine, or jobs in the ledger that the viewer may know of."""
        return _has_account(user) or (self._viewer.sees_all and queries.has_jobs_of(self._ledger, user))

    def dead_since(self, now: float) -> float | None:
        """When the last cycle began, if the daemon is dead; None if it is alive or has never run."""
        last = queries.last_attempt(self._ledger)
        if last is None or alive(last, daemon_runs(self._path), self._config, now):
            return None
        return last.started

    def estimate(self, request: "JobRequest", now: float) -> dict[str, Any]:
        """For `estimate`; of a viewer's own job, whoever it names, but for an operator on the controller."""
        from slurmplug.reports import estimate  # noqa: PLC0415  it loads the predictors

        if self._viewer is not OPERATOR:
            request = replace(request, user=_account_name(self._viewer.uid))
        return estimate.estimate(self._ledger, request, now)

    def status(self, now: float) -> dict[str, Any]:
        """For `status`: what JSON shows."""
        from slurmplug.reports import daemon_status  # noqa: PLC0415  it loads the policies

        return daemon_status.status(self._ledger, self._path, self._config, self._viewer, now)

    def _visible(self, which: Selection) -> Selection:
        owner = which.owner if self._viewer.sees_all else self._viewer.uid
        return replace(which, owner=owner, most=self._most)


def _account_name(uid: int) -> str:
    """The name of a uid on this machine, as squeue shows it: in digits, where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _has_account(user: str) -> bool:
    """Whether this machine has an account of that name, or uid in digits."""
    number = user.isascii() and user.isdecimal() and len(user) < 11
    try:
        pwd.getpwuid(int(user)) if number else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        return False
    return True


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without Python's collector of cycles, which makes a report of many jobs a fifth slower, for nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _named(names: Sequence[str], fields: Mapping[str, Field[Any]]) -> list[Field[Any]]:
    """The fields of these names. Raises UsageError."""
    if unknown := [name for name in names if name not in fields]:
        raise UsageError(f"there is no field {unknown[0]!r}: is the same release of slurmplug on both hosts?")
    return [fields[name] for name in names]
