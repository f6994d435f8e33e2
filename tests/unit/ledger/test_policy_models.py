"""Models of learnt policies in the ledger: their roles, what happened to them, and ledgers from before them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policies.dl2 import DL2
from policies.model import Model
from slurmplug.config import model_files
from slurmplug.errors import UsageError
from slurmplug.ledger import database, policy_models
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.policy_models import Decided, KeptModel, ModelEvaluation
from slurmplug.ledger.schema import MIGRATIONS
from tests.learnt_models import like_shipped, shipped

ADA = Decided("ada", 100.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


def added(ledger: Ledger, model: Model) -> KeptModel:
    policy_models.add(ledger, model, model_files.encode(model), ADA)
    return policy_models.find(ledger, model.digest)


def test_a_model_is_kept_as_its_file_and_read_again(ledger: Ledger) -> None:
    model = shipped()
    kept = added(ledger, model)
    assert (kept.policy, kept.version, kept.role, kept.added, kept.added_by) == (
        "dl2",
        DL2.version,
        "candidate",
        100.0,
        "ada",
    )
    assert kept.facts == model.facts
    again = model_files.parse(policy_models.content(ledger, kept.digest), "from the ledger")
    assert again.digest == model.digest
    assert not policy_models.add(ledger, model, b"", ADA)
    assert len(policy_models.events(ledger, kept.digest)) == 1


def test_one_model_acts_and_one_is_in_shadow_and_each_change_says_by_whom(ledger: Ledger) -> None:
    first, second = (added(ledger, like_shipped(note)) for note in ("first", "second"))
    assert policy_models.set_role(ledger, first, "shadow", ADA)
    assert policy_models.set_role(ledger, first, "acting", Decided("bob", 200.0, "it is better", {"gain": 0.1}))
    assert policy_models.in_role(ledger, "shadow") is None
    assert not policy_models.set_role(ledger, first, "acting", ADA)
    assert policy_models.set_role(ledger, second, "acting", Decided("eve", 300.0))
    assert [each.role for each in policy_models.models(ledger)].count("acting") == 1
    told = [(event, by, reason) for event, (by, _, reason, _) in policy_models.events(ledger, first.digest)]
    assert told == [
        ("added", "ada", ""),
        ("shadow", "ada", ""),
        ("promoted", "bob", "it is better"),
        ("demoted", "eve", f"{second.name} takes its place"),
    ]
    assert policy_models.events(ledger, first.digest)[2].decided.evidence == {"gain": 0.1}


def test_a_model_is_found_by_the_beginning_of_its_digest(ledger: Ledger) -> None:
    kept = added(ledger, shipped())
    assert policy_models.find(ledger, kept.digest[:6].upper()) == kept
    for unknown in ("", kept.digest[:3], "zzzz", "%"):
        with pytest.raises(UsageError, match="slurmplug policy list"):
            policy_models.find(ledger, unknown)


def test_of_each_workload_and_rival_the_last_evaluation_counts(ledger: Ledger) -> None:
    kept = added(ledger, shipped())
    for at, workload in ((1.0, "gen:dl2"), (2.0, "gen:mlfs"), (3.0, "gen:dl2")):
        figures = {"jct_mean": {"change": -at}}
        made = ModelEvaluation(at, "ada", "mlfs", workload, "16x4", [0, 1], figures)
        policy_models.keep_evaluation(ledger, kept.digest, made)
    found = policy_models.evaluations(ledger, kept.digest)
    assert [(each.workload, each.at) for each in found] == [("gen:mlfs", 2.0), ("gen:dl2", 3.0)]
    assert found[1].figures == {"jct_mean": {"change": -3.0}}
    assert found[1].seeds == [0, 1]


def test_a_ledger_of_the_seventh_version_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "older.db"
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:7])
        with closing(Ledger(path)) as older:
            older.set_control("paused", "since before")
            older.save_model("runtime", "1", {}, 5.0)
    with closing(Ledger(path)) as ledger:
        assert ledger.control("paused") == "since before"
        assert ledger.model("runtime") == ("1", 5.0, {})
        assert policy_models.models(ledger) == []
        added(ledger, shipped())
    with closing(sqlite3.connect(path.with_name(f"{path.name}.version-7"))) as kept:
        assert kept.execute("PRAGMA user_version").fetchone() == (7,)
