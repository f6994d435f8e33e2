"""The requests of clients, checked, and the responses to them as values of JSON."""

import json
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurmplug.cluster.tres import MOST_GRES
from slurmplug.directives.grammar import LINE_BYTES, TABLE
from slurmplug.endpoint import wire
from slurmplug.errors import UsageError
from slurmplug.ledger.directive_changes import ChangeRequest
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.service import LedgerReports

MAX_ITEMS = 500
"""The most jobs, users, nodes or the like that one request may name."""

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
    partitions: _Words = ()
    qos: _Words = ()
    names: _Words = ()
    nodes: _Words = ()
    limits: tuple[_Time, _Time] | None = None
    start: _Time | None = None
    end: _Time | None = None
    live: bool = False
    uneligible: bool = True
    first: Annotated[int, Field(ge=0, lt=1 << 40)] = 0
    """the place of the first one that is wanted, from 0: a response has at most wire.PAGE"""
    fields: _Words = ()
    """by their names in JSON"""


class _Named(BaseModel):
    """A request about one job or one user."""

    model_config = ConfigDict(extra="forbid")

    job: tuple[_Id, _Id | None] | None = None
    user: _Word | None = None
    curves: bool = False
    """whether a job's learning curve is wanted with its story"""


class _Change(BaseModel):
    """A `ChangeRequest`. It names the cluster, as a credential is valid on every cluster with the same key."""

    model_config = ConfigDict(extra="forbid")

    job: tuple[_Id, _Id | None]
    written: Annotated[tuple[Annotated[str, Field(max_length=LINE_BYTES)], ...], Field(max_length=len(TABLE))]
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    cluster: Annotated[str, Field(min_length=1, max_length=200)]


class _Estimate(BaseModel):
    """A `JobRequest`; its user is the sender."""

    model_config = ConfigDict(extra="forbid")

    nodes: Annotated[str, Field(max_length=16_384)]
    partition: _Word = ""
    account: _Word = ""
    qos: _Word = ""
    name: _Word = ""
    gpu_type: _Word = ""
    gpus: Annotated[int, Field(ge=0, le=MOST_GRES)] = 0
    cpus: Annotated[int, Field(ge=1, le=1 << 30)] = 1
    memory: Annotated[float, Field(ge=0, le=1e15)] = 0.0
    time_limit: Annotated[float, Field(ge=0, le=1e9)] | None = None
    begin: Annotated[float, Field(ge=0, le=1e11)] | None = None
    script: Annotated[tuple[Annotated[str, Field(max_length=LINE_BYTES)], ...], Field(max_length=len(TABLE))] = ()
    comment: Annotated[str, Field(max_length=LINE_BYTES)] = ""
    parts: Annotated[int, Field(ge=0, le=1 << 30)] = 0
    apart: bool = False


def is_later_page(report: str, body: bytes) -> bool:
    """Whether a request is for a page of a report after its first one."""
    try:
        parameters = json.loads(body) if report in ("jobs", "queue") else None
    except (ValueError, RecursionError):
        return False
    return isinstance(parameters, dict) and bool(parameters.get("first"))


def change_request(body: bytes) -> ChangeRequest:
    """The request of such a body. Raises UsageError where it is not valid."""
    try:
        found = _Change.model_validate(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise UsageError(_error_message(error)) from error
    return ChangeRequest(JobId(*found.job), found.written, found.id, found.cluster)


def answer(report: str, body: bytes, reports: LedgerReports, now: float) -> dict[str, Any]:
    """The response to a request, as values of JSON.

    Raises:
        UsageError: the request is not valid, or its response would be too long.
        LedgerError: the ledger cannot be read.
    """
    try:
        parameters = json.loads(body) if body else {}
        if report in ("jobs", "queue"):
            wanted = _Which.model_validate(parameters)
            which, page = _selection(wanted), slice(wanted.first, wanted.first + wire.PAGE + 1)
            make = reports.jobs if report == "jobs" else reports.queue
            return wire.table_body(make(which, wanted.fields, page))
        if report == "suggestions":
            return asdict(reports.suggestions(_selection(_Which.model_validate(parameters))))
        if report == "estimate":
            from slurmplug.reports.job_request import JobRequest  # noqa: PLC0415  the other reports do without

            asked = _Estimate.model_validate(parameters)
            return reports.estimate(JobRequest(user="", **asked.model_dump()), now)
        named = _Named.model_validate(parameters)
    except (ValueError, RecursionError) as error:
        raise UsageError(_error_message(error)) from error
    if report == "story" and named.job:
        found = reports.explain_job(JobId(*named.job), curves=named.curves)
        return {"explained": [asdict(each) for each in found]}
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
        partitions=which.partitions,
        qos=which.qos,
        names=which.names,
        nodes=which.nodes,
        limits=which.limits,
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
