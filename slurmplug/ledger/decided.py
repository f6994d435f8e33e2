"""What a policy decided in a cycle, as it is kept with its inputs: decided again, and compared. Pure.

Kept are the scores, actions and notes, and of the terms and the memory only that they are the same: with a digest of
their bits, as the next cycle keeps the memory itself.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey
from slurmplug.ledger.facts import stored_facts


class Difference(NamedTuple):
    """Where a decision is not as recorded: of which job, if it is one job's; both values as text."""

    job: JobKey | None
    field: str
    recorded: str
    again: str


def as_kept(plan: Plan) -> dict[str, Any]:
    """A plan as a tree for `ledger.codec`."""
    return {
        "score": np.asarray(plan.score),
        "terms": [[name, _digest(column)] for name, column in plan.terms.items()],
        "actions": [_action(each) for each in plan.actions],
        "notes": [[[*job], _reason(reason)] for job, reason in plan.notes.items()],
        "memory": [[name, _digest(array)] for name, array in sorted(plan.memory.items())],
    }


def first_difference(
    recorded: Mapping[str, Any], again: Mapping[str, Any], jobs: Sequence[JobKey]
) -> Difference | None:
    """Where two decisions on these jobs differ first, both as `codec.loads` returns both; None if all bits are equal.

    Raises:
        KeyError, TypeError, ValueError: what is recorded is not a decision on so many jobs
    """
    return (
        _of_score(np.asarray(recorded["score"]), np.asarray(again["score"]), jobs)
        or _of_actions(recorded["actions"], again["actions"])
        or _of_notes(recorded["notes"], again["notes"])
        or _of_named("term", recorded["terms"], again["terms"])
        or _of_named("memory", recorded["memory"], again["memory"])
    )


def _of_score(recorded: Any, again: Any, jobs: Sequence[JobKey]) -> Difference | None:
    if recorded.shape != (len(jobs),):
        raise ValueError(f"a score of {recorded.shape} for {len(jobs)} jobs")
    if recorded.dtype != again.dtype:
        return Difference(None, "score", f"of type {recorded.dtype}", f"of type {again.dtype}")
    for row, (one, other) in enumerate(zip(recorded, again, strict=True)):
        if one.tobytes() != other.tobytes():
            return Difference(jobs[row], "score", str(one), str(other))
    return None


def _of_actions(recorded: Sequence[Any], again: Sequence[Any]) -> Difference | None:
    """The first action that is another one, or that only one of the decisions has."""
    pair = _first_unequal(recorded, again)
    if pair is None:
        return None
    one, other = pair
    job = JobKey(*(one or other)["job"])
    if one and other and (one["job"], one["kind"]) == (other["job"], other["kind"]):
        name = next(name for name in one if _text(one[name]) != _text(other[name]))
        return Difference(job, f"{name} of the action {one['kind']}", _text(one[name]), _text(other[name]))
    return Difference(job, "action", *(_named(each) for each in pair))


def _named(action: Mapping[str, Any] | None) -> str:
    return f"{action['kind']} of job {action['job'][1]}" if action else "none"


def _of_notes(recorded: Sequence[Any], again: Sequence[Any]) -> Difference | None:
    pair = _first_unequal(recorded, again)
    if pair is None:
        return None
    one, other = pair
    return Difference(JobKey(*(one or other)[0]), "note", *(_text(each[1]) if each else "none" for each in pair))


def _of_named(what: str, recorded: Iterable[Any], again: Iterable[Any]) -> Difference | None:
    """The first array of which there is another digest, or only one decision has it."""
    one, other = dict(recorded), dict(again)
    for name in [*one, *(name for name in other if name not in one)]:
        if one.get(name) != other.get(name):
            return Difference(None, f"{what} {name}", one.get(name, "none"), other.get(name, "none"))
    return None


def _first_unequal(recorded: Sequence[Any], again: Sequence[Any]) -> tuple[Any, Any] | None:
    """The first pair that is not equal as text, NaN being equal to NaN; with None where one has no more."""
    for at in range(max(len(recorded), len(again))):
        one, other = (each[at] if at < len(each) else None for each in (recorded, again))
        if _text(one) != _text(other):
            return one, other
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _action(action: Action) -> dict[str, Any]:
    """Without parameter servers where there are none, as what was recorded before there were any."""
    kept = {**vars(action), "job": [*action.job], "reason": _reason(action.reason)}
    return kept if action.servers else {name: value for name, value in kept.items() if name != "servers"}


def _reason(reason: Reason) -> list[Any]:
    """With its facts as pairs: a site's own policy names them as it likes."""
    return [reason.rule, [[*each] for each in stored_facts(reason.facts).items()]]


def _digest(array: Any) -> str:
    """The type, the shape and the first digits of the SHA-256 of an array; of texts however wide they are stored."""
    values = np.asarray(array)
    text = values.dtype.kind == "U"
    data = json.dumps(values.tolist()).encode() if text else np.ascontiguousarray(values).tobytes()
    return f"{'text' if text else values.dtype.str} {values.shape} {sha256(data).hexdigest()[:32]}"
