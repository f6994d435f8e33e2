"""The questions and answers of the endpoint as JSON, the same for both ends.

A job travels as the ledger's row that it is made from, so that both ends make the same `Job` of it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurmplug.errors import EndpointError, UsageError
from slurmplug.reports import job_view as reports
from slurmplug.reports.job_view import JobId, Selection
from slurmplug.reports.queue import Entry
from slurmplug.reports.service import Answers, Told

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


def answer(question: str, body: bytes, answers: Answers, now: float) -> dict[str, Any]:
    """The answer to a question, as JSON has it.

    Raises:
        UsageError: the question makes no sense, or its answer would be too long.
        LedgerError
    """
    try:
        asked = json.loads(body) if body else {}
        if question in ("jobs", "queue"):
            which = _selection(_Which.model_validate(asked))
            if question == "jobs":
                return {"jobs": [job.columns for job in answers.jobs(which)]}
            return {"entries": [_of_entry(entry) for entry in answers.queue(which)]}
        named = _Named.model_validate(asked)
    except (ValueError, RecursionError) as error:
        raise UsageError(_mistake(error)) from error
    if question == "story" and named.job:
        told = answers.story(JobId(*named.job))
        return {"told": [{"job": each.job.columns, "story": each.story} for each in told]}
    if question == "user" and named.user is not None:
        return {"known": answers.knows_user(named.user)}
    if question == "status":
        return answers.status(now)
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


def _of_entry(entry: Entry) -> dict[str, Any]:
    return {"job": entry.job.columns, "position": entry.position, "doing": entry.doing}


# --- answers -------------------------------------------------------------------------------------------------------


def jobs(told: Mapping[str, Any]) -> list[reports.Job]:
    """The answer to `jobs`. Raises EndpointError."""
    with _understood():
        return [reports.of_columns(columns) for columns in told["jobs"]]


def entries(told: Mapping[str, Any]) -> list[Entry]:
    """The answer to `queue`. Raises EndpointError."""
    with _understood():
        return [Entry(reports.of_columns(e["job"]), e["position"], e["doing"]) for e in told["entries"]]


def stories(told: Mapping[str, Any]) -> list[Told]:
    """The answer to `story`. Raises EndpointError."""
    with _understood():
        return [Told(reports.of_columns(each["job"]), each["story"]) for each in told["told"]]


@contextmanager
def _understood() -> Iterator[None]:
    """Turns what another release may have said into an error with advice."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EndpointError(
            f"the daemon's answer is not understood ({error}): is slurmplug of the same release here and there?"
        ) from error
