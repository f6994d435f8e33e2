"""Models of learnt policies in the ledger: what each is and may do, who decided that, and how it was evaluated.

A model's role is `candidate`, `shadow` or `acting`. At most one model is in shadow, and at most one acts.
All functions raise `LedgerError` where the ledger cannot be read or written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from policies.model import Model
from slurmplug.errors import UsageError
from slurmplug.ledger import cycle_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.sqlite import Row

Role: TypeAlias = Literal["candidate", "shadow", "acting"]
Event: TypeAlias = Literal["added", "shadow", "promoted", "demoted"]
FOLLOWED = "followed"
"""the figure of an evaluation that is the share of the cycles with managed jobs that followed the policy"""
SHORTEST = 4
"""digits of a digest by which a model may be named"""
_EVENT_OF: Mapping[Role, Event] = {"candidate": "demoted", "shadow": "shadow", "acting": "promoted"}


@dataclass(frozen=True)
class KeptModel:
    """A model in the ledger. version: of its policy's features; facts: how it was trained; added: when."""

    digest: str
    policy: str
    version: int
    facts: Mapping[str, str]
    added: float
    added_by: str
    role: Role

    @property
    def name(self) -> str:
        """Its policy and the beginning of its digest."""
        return f"{self.policy} {self.digest[:12]}"


class Decided(NamedTuple):
    """Who gave a model its role, when and why; `evidence`: the figures behind that."""

    by: str
    at: float
    reason: str = ""
    evidence: Mapping[str, Any] = {}


class ModelEvent(NamedTuple):
    """What happened to a model."""

    event: Event
    decided: Decided


@dataclass(frozen=True)
class ModelEvaluation:
    """A model on one workload, beside a policy. seeds: of a recorded workload, its parts.

    figures: by name, the mapping of a `FigureComparison`, of which `before` is the policy's.
    """

    at: float
    by: str
    against: str
    workload: str
    cluster: str
    seeds: Sequence[int]
    figures: Mapping[str, Mapping[str, Any]]


def models(ledger: LedgerFile) -> list[KeptModel]:
    """All models, the first added first."""
    return [_kept(row) for row in ledger.query(f"{_MODELS} ORDER BY added, digest")]


def in_role(ledger: LedgerFile, role: Literal["shadow", "acting"]) -> KeptModel | None:
    """The model in shadow, or the one that acts; None where there is none."""
    found = ledger.query(f"{_MODELS} WHERE role = ?", role)
    return _kept(found[0]) if found else None


def find(ledger: LedgerFile, digits: str) -> KeptModel:
    """The model whose digest begins so.

    Raises:
        UsageError: there is none, or there are several
    """
    wanted = digits.strip().lower()
    found = [each for each in models(ledger) if each.digest.startswith(wanted)] if len(wanted) >= SHORTEST else []
    if not found:
        raise UsageError(
            f"no model begins with {digits!r}: give {SHORTEST} or more digits of one that `slurmplug policy list` shows"
        )
    if len(found) > 1:
        raise UsageError(f"{len(found)} models begin with {digits!r}: give more digits")
    return found[0]


def content(ledger: LedgerFile, digest: str) -> bytes:
    """The bytes of a model's file."""
    return bytes(ledger.value("SELECT file FROM policy_models WHERE digest = ?", digest))


def add(ledger: Ledger, model: Model, data: bytes, decided: Decided) -> bool:
    """Keep a model and the bytes of its file, as a candidate; False if it is there already."""
    if ledger.query("SELECT 1 FROM policy_models WHERE digest = ?", model.digest):
        return False
    row = {
        "digest": model.digest,
        "policy": model.policy,
        "version": model.version,
        "facts": json.dumps(dict(model.facts)),
        "file": data,
        "added": decided.at,
        "added_by": decided.by,
    }
    with ledger._transaction():
        ledger._put("policy_models", [row])
        _note(ledger, model.digest, "added", decided)
    return True


def set_role(ledger: Ledger, model: KeptModel, role: Role, decided: Decided) -> bool:
    """Give a model another role, and take that role from the model that has it; False if it has it already.

    Where another model acts from now on, or none does, the outcomes of jobs that have not ended are nobody's.
    """
    with ledger._transaction():
        before = next(each.role for each in models(ledger) if each.digest == model.digest)
        if before == role:
            return False
        replaced = in_role(ledger, role) if role != "candidate" else None
        if replaced:
            ledger.db.execute(_SET_ROLE, ["candidate", replaced.digest])
            _note(ledger, replaced.digest, "demoted", decided._replace(reason=f"{model.name} takes its place"))
        ledger.db.execute(_SET_ROLE, [role, model.digest])
        _note(ledger, model.digest, _EVENT_OF[role], decided)
        if "acting" in (before, role):
            ledger.db.execute(_FORGET_WAITS_OF_LIVE_JOBS)
    return True


def events(ledger: LedgerFile, digest: str) -> list[ModelEvent]:
    """What happened to a model, the first first."""
    return [
        ModelEvent(row["event"], Decided(row["by"], row["at"], row["reason"], json.loads(row["evidence"])))
        for row in ledger.query("SELECT * FROM model_events WHERE model = ? ORDER BY id", digest)
    ]


def keep_evaluation(ledger: Ledger, digest: str, made: ModelEvaluation) -> None:
    """Keep an evaluation of a model."""
    row = {**vars(made), "model": digest, "seeds": json.dumps(list(made.seeds)), "figures": json.dumps(made.figures)}
    with ledger._transaction():
        ledger._put("model_evaluations", [row])


def evaluations(ledger: LedgerFile, digest: str) -> list[ModelEvaluation]:
    """The evaluations of a model: of each workload and policy that it was compared with, the last one."""
    return [
        ModelEvaluation(
            **{name: row[name] for name in ("at", "by", "against", "workload", "cluster")},
            seeds=json.loads(row["seeds"]),
            figures=json.loads(row["figures"]),
        )
        for row in ledger.query(_EVALUATIONS, digest)
    ]


def _note(ledger: Ledger, digest: str, event: Event, decided: Decided) -> None:
    evidence, cycle = json.dumps(dict(decided.evidence)), cycle_queries.next_cycle(ledger) - 1
    row = {**decided._asdict(), "model": digest, "event": event, "evidence": evidence, "cycle": cycle}
    ledger._put("model_events", [row])


def _kept(row: Row) -> KeptModel:
    return KeptModel(**{**row, "facts": json.loads(row["facts"])})


_MODELS = "SELECT digest, policy, version, facts, added, added_by, role FROM policy_models"
_SET_ROLE = "UPDATE policy_models SET role = ? WHERE digest = ?"
_FORGET_WAITS_OF_LIVE_JOBS = "DELETE FROM foreseen_waits WHERE job IN (SELECT id FROM jobs WHERE ended = 0)"
_EVALUATIONS = """
SELECT * FROM model_evaluations WHERE model = ?1 AND id IN (
    SELECT max(id) FROM model_evaluations WHERE model = ?1 GROUP BY against, workload, cluster
) ORDER BY id
"""
