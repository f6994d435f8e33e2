"""The requests and responses of the endpoint as JSON, for the client and the server.

A job is sent as the ledger's columns, from which both ends make the same `Job`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurmplug.directives.grammar import LINE_BYTES, TABLE
from slurmplug.errors import EndpointError, UsageError
from slurmplug.ledger.directive_changes import ChangeRequest
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.job_view import Job, from_columns
from slurmplug.reports.queue import QueueEntry
from slurmplug.reports.service import JobExplanation, Reports

PREFIX = "/v1/"
REPORT_NAMES = ("jobs", "queue", "story", "user", "status")
CHANGE_NAME = "set"
"""The only request that changes anything: directives of the sender's own jobs, or of any for an operator."""
REQUEST_BYTES = 65_536
MAX_ITEMS = 500
"""The most jobs, users, accounts or states that one request may name."""

_Word = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
_Words = Annotated[tuple[_Word, ...], Field(max_length=MAX_ITEMS)]
_Id = Annotated[int, Field(ge=0, lt=1 << 40)]
_Time = Annotated[float, Field(ge=-1e12, le=1e12)]


class _Which(BaseModel):
    """A `Selection` without what the endpoint alone decides: whose jobs may be seen, and how many."""

    model_config = ConfigDict(extra="forbid")

    jobs: Annotated[tuple[tuple[_Id, _Id | None], ...], Field(max_length=MAX_ITEMS)] = ()
    users: _Words = ()
    accounts: _Words = ()
    states: _Words = ()
    start: _Time | None = None
    end: _Time | None = None
    live: bool = False
    uneligible: bool = True


class _Named(BaseModel):
    """A request about one job or one user."""

    model_config = ConfigDict(extra="forbid")

    job: tuple[_Id, _Id | None] | None = None
    user: _Word | None = None


class _Change(BaseModel):
    """A `ChangeRequest`. It names the cluster, as a credential is valid on every cluster with the same key."""

    model_config = ConfigDict(extra="forbid")

    job: tuple[_Id, _Id | None]
    written: Annotated[tuple[Annotated[str, Field(max_length=LINE_BYTES)], ...], Field(max_length=len(TABLE))]
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    cluster: Annotated[str, Field(min_length=1, max_length=200)]


def payload(report: str, body: bytes) -> bytes:
    """The payload of a request's credential, which is valid for this request only."""
    return f"slurmplug {PREFIX}{report} {hashlib.sha256(body).hexdigest()}".encode("ascii")


# --- requests ------------------------------------------------------------------------------------------------------


def selection_body(which: Selection) -> dict[str, Any]:
    """The body of a request for `jobs` or `queue`."""
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


def change_body(request: ChangeRequest) -> dict[str, Any]:
    """The body of a request to change directives."""
    return {
        "job": list(request.job),
        "written": list(request.written),
        "id": request.id,
        "cluster": request.cluster,
    }


def change_request(body: bytes) -> ChangeRequest:
    """The request of such a body. Raises UsageError where it is not valid."""
    try:
        found = _Change.model_validate(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise UsageError(_error_message(error)) from error
    return ChangeRequest(JobId(*found.job), found.written, found.id, found.cluster)


def answer(report: str, body: bytes, reports: Reports, now: float) -> dict[str, Any]:
    """The response to a request, as values of JSON.

    Raises:
        UsageError: the request is not valid, or its response would be too long.
        LedgerError: the ledger cannot be read.
    """
    try:
        parameters = json.loads(body) if body else {}
        if report in ("jobs", "queue"):
            which = _selection(_Which.model_validate(parameters))
            if report == "jobs":
                return {"jobs": [job.columns for job in reports.jobs(which)]}
            return {"entries": [_of_entry(entry) for entry in reports.queue(which)]}
        named = _Named.model_validate(parameters)
    except (ValueError, RecursionError) as error:
        raise UsageError(_error_message(error)) from error
    if report == "story" and named.job:
        found = reports.explain_job(JobId(*named.job))
        return {"explained": [{"job": each.job.columns, "story": each.story} for each in found]}
    if report == "user" and named.user is not None:
        return {"known": reports.knows_user(named.user)}
    if report == "status":
        return reports.status(now)
    raise UsageError(f"not a valid request for {report}")


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


def _error_message(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return "the request is not JSON"


def _of_entry(entry: QueueEntry) -> dict[str, Any]:
    return {"job": entry.job.columns, "position": entry.rank, "doing": entry.doing}


# --- responses -----------------------------------------------------------------------------------------------------


def jobs(answer: Mapping[str, Any]) -> list[Job]:
    """The jobs of a response to `jobs`. Raises EndpointError."""
    with _version_checked():
        return [from_columns(columns) for columns in answer["jobs"]]


def entries(answer: Mapping[str, Any]) -> list[QueueEntry]:
    """The entries of a response to `queue`. Raises EndpointError."""
    with _version_checked():
        return [QueueEntry(from_columns(e["job"]), e["position"], e["doing"]) for e in answer["entries"]]


def explanations(answer: Mapping[str, Any]) -> list[JobExplanation]:
    """The explanations of a response to `story`. Raises EndpointError."""
    with _version_checked():
        return [JobExplanation(from_columns(each["job"]), each["story"]) for each in answer["explained"]]


def sentences(answer: Mapping[str, Any]) -> list[str]:
    """What was changed, of a response to `set`. Raises EndpointError."""
    with _version_checked():
        return [str(sentence) for sentence in answer["changed"]]


@contextmanager
def _version_checked() -> Iterator[None]:
    """Raise EndpointError for a response that another release of slurmplug may have sent."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EndpointError(
            f"the daemon's response is not valid ({error}): is the same release of slurmplug installed on both hosts?"
        ) from error
