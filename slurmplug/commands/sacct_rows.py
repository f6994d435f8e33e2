"""The rows of `slurmplug acct`: jobs from the reports, completed by sacct where that is needed.

sacct is called by the user of this process, who is shown by it what Slurm shows that user.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplug.cluster.user_answers import Record
from slurmplug.errors import ReadFailed, UsageError
from slurmplug.ledger.selection import Selection
from slurmplug.reports import sacct_fields
from slurmplug.reports.acct import FIELDS
from slurmplug.reports.interface import Reports
from slurmplug.reports.sacct_fields import Run

if TYPE_CHECKING:
    from slurmplug.cluster.user_client import UserClient

_OWN = {field.name.lower() for field in FIELDS}
_ONLY = {field.name.lower(): field for field in sacct_fields.ONLY}


@dataclass(frozen=True)
class Extra:
    """Which rows sacct adds to those of jobs."""

    duplicates: bool
    """earlier runs of requeued jobs, before the last one"""
    steps: bool
    """the steps of each run, after it"""


def rows(
    reports: Reports, which: Selection, names: Sequence[str], extra: Extra, slurm: "Callable[[], UserClient]"
) -> list[list[Any]]:
    """The values of these fields, a list for each of them. `slurm`: makes the client of sacct.

    Raises:
        UsageError: sacct does not answer, and fields or rows that only it has are wanted.
    """
    own = list(dict.fromkeys(["jobidraw", "state", *(name for name in names if name in _OWN)]))
    found = dict(zip(own, reports.jobs(which, own), strict=True))
    only = [name for name in names if name in _ONLY]
    if extra.duplicates or extra.steps or only:
        try:
            runs = _runs(slurm(), found["jobidraw"], steps=True, duplicates=extra.duplicates)
        except ReadFailed as error:
            raise UsageError(f"this needs Slurm's accounting: {error}") from error
        return _completed(found, names, runs, extra)
    if "state" in names and (cancelled := _cancelled(found)):
        with suppress(ReadFailed):  # without accounting, it is not known who cancelled a job
            _tell_by_whom(found, _runs(slurm(), cancelled, steps=False, duplicates=False))
    return [list(found[name]) for name in names]


def _runs(client: "UserClient", job_ids: Sequence[Any], *, steps: bool, duplicates: bool) -> dict[int, list[Run]]:
    """The runs of each job, the earliest first."""
    ids = list(dict.fromkeys(map(int, job_ids)))
    found = grouped(client.records(ids, steps=steps, duplicates=duplicates))
    return {job: sorted(runs, key=lambda run: run.record.submitted) for job, runs in found.items()}


def grouped(records: Iterable[Record]) -> dict[int, list[Run]]:
    """By job id its runs, each with its steps, from records in sacct's order: a run, then its steps."""
    found: dict[int, list[Run]] = defaultdict(list)
    for record in records:
        if not record.step:
            found[record.job_id].append(Run(record, []))
        elif found[record.job_id]:
            run = found[record.job_id][-1]
            found[record.job_id][-1] = run._replace(steps=[*run.steps, record])
    return found


def _cancelled(found: dict[str, list[Any]]) -> list[Any]:
    return [job for job, state in zip(found["jobidraw"], found["state"], strict=True) if state == "CANCELLED"]


def _tell_by_whom(found: dict[str, list[Any]], runs: dict[int, list[Run]]) -> None:
    """CANCELLED becomes CANCELLED by UID, as sacct has it."""
    found["state"] = [
        _state(state, runs.get(job)) for job, state in zip(found["jobidraw"], found["state"], strict=True)
    ]


def _state(state: str, runs: Sequence[Run] | None) -> str:
    by_sacct = runs[-1].record.fields["State"] if runs else ""
    return by_sacct if state == "CANCELLED" and by_sacct.startswith("CANCELLED") else state


def _completed(
    found: dict[str, list[Any]], names: Sequence[str], runs: dict[int, list[Run]], extra: Extra
) -> list[list[Any]]:
    """The rows of the jobs with what sacct has, and the rows that it adds."""
    _tell_by_whom(found, runs)
    table: list[list[Any]] = []
    for number, job in enumerate(found["jobidraw"]):
        of_job = runs.get(job, [])
        last = of_job[-1] if of_job else None
        for run in of_job[:-1]:
            table += [sacct_fields.values(names, run), *_steps(names, run, extra)]
        table.append([_value(name, number, found, last) for name in names])
        table += _steps(names, last, extra)
    return [list(column) for column in zip(*table, strict=True)] or [[] for _ in names]


def _value(name: str, number: int, found: dict[str, list[Any]], run: Run | None) -> Any:
    if name in _ONLY:
        return None if run is None else _ONLY[name].value(run)
    return found[name][number]


def _steps(names: Sequence[str], run: Run | None, extra: Extra) -> list[list[Any]]:
    if run is None or not extra.steps:
        return []
    return [sacct_fields.values(names, Run(step, [step])) for step in run.steps]
