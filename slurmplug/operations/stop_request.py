"""What a request to stop says to the job: why, with its figures, and with which status its program exits. Pure."""

import json
from collections.abc import Mapping

from policies.plan import Fact, Reason
from policies.snapshot import Jobs
from slurmplug_report.stop import VERSION

REASONS: Mapping[str, str] = {
    "reached": "target",
    "maximum": "no better likely",
    "misses": "out of reach",
    "diverged": "diverged",
    "idle": "idle",
}
"""By the `cause` of a reason, the word that `report()` gives for it; `other` for any other cause."""


def content(reason: Reason, jobs: Jobs, row: int) -> str:
    """The content of the request's file, which `slurmplug_report.stop` reads."""
    facts = reason.facts
    sign = float(jobs.sign[row])
    said: dict[str, float | str | None] = {
        "reason": REASONS.get(str(facts.get("cause", "")), "other"),
        "status": int(bool(jobs.requires_target[row]) and not _meets_target(facts)),
        "iteration": _number(facts, "iteration"),
        "quantity": str(jobs.quantity[row]) if "achieved" in facts else None,  # a training diverges in its loss
        "value": _number(facts, "achieved", sign),
        "value_iteration": _number(facts, "achieved_at"),
        "target": _number(facts, "target", sign),
    }
    return json.dumps({"version": VERSION, **{name: value for name, value in said.items() if value is not None}})


def _meets_target(facts: Mapping[str, Fact]) -> bool:
    """Whether the best value meets the target, both with the sign that makes higher better."""
    achieved, target = _number(facts, "achieved"), _number(facts, "target")
    met = achieved is not None and target is not None and achieved >= target
    return met or facts.get("cause") == "reached"


def _number(facts: Mapping[str, Fact], name: str, sign: float = 1.0) -> float | None:
    fact = facts.get(name)
    return sign * fact if isinstance(fact, int | float) else None
