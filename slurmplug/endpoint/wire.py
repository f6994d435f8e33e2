"""The requests and responses of the endpoint as JSON, for the client and the server.

A report of jobs is a table: for each field that was asked for, its values.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slurmplug.errors import EndpointError
from slurmplug.ledger.selection import Selection
from slurmplug.reports.interface import JobExplanation, Suggestion, Suggestions, Table

if TYPE_CHECKING:
    from slurmplug.ledger.directive_changes import ChangeRequest

PREFIX = "/v1/"
REPORT_NAMES = ("jobs", "queue", "story", "suggestions", "user", "status", "estimate")
CHANGE_NAME = "set"
"""The only request that changes anything: directives of the sender's own jobs, or of any for an operator."""
METRICS_NAME = "metrics"
METRICS_PATH = "/metrics"
"""Where operators find the metrics."""
REQUEST_BYTES = 65_536
PAGE = 10_000
"""The most jobs in one response; there are more where it has so many."""


def payload(report: str, body: bytes) -> bytes:
    """The payload of a request's credential, which is valid for this request only."""
    path = METRICS_PATH if report == METRICS_NAME else f"{PREFIX}{report}"
    return f"slurmplug {path} {hashlib.sha256(body).hexdigest()}".encode("ascii")


def selection_body(which: Selection, fields: Sequence[str], first: int) -> dict[str, Any]:
    """The body of a request for these fields of `jobs` or `queue`, from this place on."""
    return {
        "fields": list(fields),
        "jobs": [list(job) for job in which.jobs],
        "users": which.users,
        "accounts": which.accounts,
        "states": which.states,
        "partitions": which.partitions,
        "qos": which.qos,
        "names": which.names,
        "nodes": which.nodes,
        "limits": [min(limit, 1e12) for limit in which.limits] if which.limits else None,
        "start": which.start,
        "end": which.end if which.end < float("inf") else None,
        "live": which.live,
        "uneligible": which.uneligible,
        "first": first,
    }


def change_body(request: "ChangeRequest") -> dict[str, Any]:
    """The body of a request to change directives."""
    return {
        "job": list(request.job),
        "written": list(request.written),
        "id": request.id,
        "cluster": request.cluster,
    }


def table_body(found: Table) -> dict[str, Any]:
    """The response to `jobs` or `queue`: of a table that may have more rows than a page, its first page."""
    return {"columns": [column[:PAGE] for column in found], "more": any(len(column) > PAGE for column in found)}


def columns(answer: Mapping[str, Any], fields: Sequence[str]) -> tuple[Table, bool]:
    """The table of a response to `jobs` or `queue`, and whether another page follows. Raises EndpointError."""
    with _version_checked():
        found, more = answer["columns"], answer["more"]
        if len(found) != len(fields) or len(set(map(len, found))) > 1:
            raise ValueError("not the fields that were asked for")
        if more and len(found[0]) != PAGE:
            raise ValueError("a page with too few jobs")
        return found, bool(more)


def explanations(answer: Mapping[str, Any]) -> list[JobExplanation]:
    """The explanations of a response to `story`. Raises EndpointError."""
    with _version_checked():
        return [JobExplanation(**each) for each in answer["explained"]]


def suggestions(answer: Mapping[str, Any]) -> Suggestions:
    """The suggestions of a response to `suggestions`. Raises EndpointError."""
    with _version_checked():
        found = [Suggestion(**each) for each in answer["suggestions"]]
        return Suggestions(**{**answer, "suggestions": found})


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
