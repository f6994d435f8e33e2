"""A training beside the cycles: what it leaves in the ledger, and what happens when it fails."""

import logging
import select
import time
from pathlib import Path

import pytest

from slurmplug.daemon import predictor_training
from slurmplug.daemon.predictor_training import PredictorTraining
from slurmplug.errors import LedgerError
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.learning import training
from slurmplug.ledger.ledger import Ledger

NOW = 1_800_000_000.0


def fails(*_: object) -> None:
    raise ValueError("no training")


def full(*_: object) -> None:
    raise LedgerError("the disk is full")


def ended(trained: PredictorTraining) -> bool:
    until = time.monotonic() + 60
    while trained.running and time.monotonic() < until:
        if trained.has_ended():
            return True
        time.sleep(0.05)
    return False


def test_what_was_learnt_is_in_the_ledger_when_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    trained = PredictorTraining(ledger, path)
    assert not trained.has_ended()
    trained.begin("stack", NOW, SeenSpeeds())
    assert ended(trained)
    assert not trained.running
    assert not trained.has_ended()
    assert training.last_trained(ledger) == NOW
    assert training.load_saved(ledger, "stack") is not None
    ledger.close()


def test_one_that_fails_is_told_and_another_can_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    trained = PredictorTraining(ledger, tmp_path / "ledger.db")
    with monkeypatch.context() as patched:
        patched.setattr(predictor_training, "train", fails)
        trained.begin("stack", NOW, SeenSpeeds())
        with caplog.at_level(logging.ERROR):
            assert not ended(trained)
    assert "training failed; the earlier predictors stay in use" in caplog.text
    assert not trained.running
    trained.begin("stack", NOW, SeenSpeeds())
    assert ended(trained)
    ledger.close()


def test_it_writes_nothing_to_the_ledger_itself(tmp_path: Path) -> None:
    """It would go on with files beside the ledger that were removed meanwhile, and damage it."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    trained = PredictorTraining(ledger, path)
    trained.begin("stack", NOW, SeenSpeeds())
    assert trained._child is not None
    select.select([trained._child.channel], [], [], 60)
    assert training.last_trained(ledger) == 0
    assert ended(trained)
    ledger.close()


def test_what_cannot_be_saved_is_saved_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    trained = PredictorTraining(ledger, path)
    trained.begin("stack", NOW, SeenSpeeds())
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "save_model", full)
        with pytest.raises(LedgerError):
            ended(trained)
    assert ended(trained)
    assert training.load_saved(ledger, "stack") is not None
    ledger.close()
