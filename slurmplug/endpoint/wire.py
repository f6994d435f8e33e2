"""The questions and answers of the endpoint as JSON, the same for both ends.

A job is sent as the ledger's columns that it is made from, so that both ends make the same `Job` of it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurmplug.errors import EndpointError, UsageError
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.job_view import Job, from_columns
from slurmplug.reports.queue import QueueEntry
from slurmplug.reports.service import JobExplanation, Reports

PREFIX = "/v1/"
QUESTIONS = ("jobs", "queue", "story", "user", "status")
QUESTION_BYTES = 65_536
MOST_WORDS = 500
"""Jobs, users, accounts or states that one question may name."""

_Word = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
_Words = Annotated[tuple[_Word, ...], Field(max_length=MOST_WORDS)]
_Id = Annotated[int, Field(ge=0, lt=1 << 40)]
_Time = Annotated[float, Field(ge=-1e12, le=1e12)]


class _Which(BaseModel):
    """A `Selection` without what is the endpoint's alone to say: whose jobs, and how many."""

    model_config = ConfigDict(extra="forbid")

    jobs: Annotated[tuple[tuple[_Id, _Id | None], ...], Field(max_length=MOST_WORDS)] = ()
    users: _Words = ()
    accounts: _Words = ()
    states: _Words = ()
    start: _Time | None = None
    end: _Time | None = None
    live: bool = False
    uneligible: bool = True


class _Named(BaseModel):
    """A question about one job or one user."""

    model_config = ConfigDict(extra="forbid")

    job: tuple[_Id, _Id | None] | None = None
    user: _Word | None = None


def payload(question: str, body: bytes) -> bytes:
    """What a request's credential holds: it is good for this question and no other."""
    return f"slurmplug {PREFIX}{question} {hashlib.sha256(body).hexdigest()}".encode("ascii")


# --- questions -----------------------------------------------------------------------------------------------------


def of_selection(which: Selection) -> dict[str, Any]:
    """The body of `jobs` and `queue`."""
    return {
        "jobs": [list(job) for job in which.jobs],
        "users": which.users,
        "accounts": which.accounts,
        "states": which.states,
        "start": which.start,
        "end": which.end if which.end < float("inf") else None,
        "live": which.live,
        "uneligible": which.uneligible,
    }


def answer(question: str, body: bytes, reports: Reports, now: float) -> dict[str, Any]:
    """The answer to a question, as JSON has it.

    Raises:
        UsageError: the question makes no sense, or its answer would be too long.
        LedgerError
    """
    try:
        parameters = json.loads(body) if body else {}
        if question in ("jobs", "queue"):
            which = _selection(_Which.model_validate(parameters))
            if question == "jobs":
                return {"jobs": [job.columns for job in reports.jobs(which)]}
            return {"entries": [_of_entry(entry) for entry in reports.queue(which)]}
        named = _Named.model_validate(parameters)
    except (ValueError, RecursionError) as error:
        raise UsageError(_mistake(error)) from error
    if question == "story" and named.job:
        found = reports.explain_job(JobId(*named.job))
        return {"explained": [{"job": each.job.columns, "story": each.story} for each in found]}
    if question == "user" and named.user is not None:
        return {"known": reports.knows_user(named.user)}
    if question == "status":
        return reports.status(now)
    raise UsageError(f"not a question: {question}")


def _selection(which: _Which) -> Selection:
    return Selection(
        jobs=tuple(JobId(*job) for job in which.jobs),
        users=which.users,
        accounts=which.accounts,
        states=which.states,
        start=which.start,
        end=float("inf") if which.end is None else which.end,
        live=which.live,
        uneligible=which.uneligible,
    )


def _mistake(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return "the question is no JSON"


def _of_entry(entry: QueueEntry) -> dict[str, Any]:
    return {"job": entry.job.columns, "position": entry.rank, "doing": entry.doing}


# --- answers -------------------------------------------------------------------------------------------------------


def jobs(answer: Mapping[str, Any]) -> list[Job]:
    """The answer to `jobs`. Raises EndpointError."""
    with _understood():
        return [from_columns(columns) for columns in answer["jobs"]]


def entries(answer: Mapping[str, Any]) -> list[QueueEntry]:
    """The answer to `queue`. Raises EndpointError."""
    with _understood():
        return [QueueEntry(from_columns(e["job"]), e["position"], e["doing"]) for e in answer["entries"]]


def explanations(answer: Mapping[str, Any]) -> list[JobExplanation]:
    """The answer to `story`. Raises EndpointError."""
    with _understood():
        return [JobExplanation(from_columns(each["job"]), each["story"]) for each in answer["explained"]]


@contextmanager
def _understood() -> Iterator[None]:
    """Turn what another release may have sent into an error that says what to do."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EndpointError(
            f"the daemon's answer is not understood ({error}): is slurmplug of the same release here and there?"
        ) from error
