"""The metrics of frameworks as quantities: by their own names, and the validation's loss and accuracy by these two."""

from typing import Any

import pytest

from slurmplug_report.logged_metrics import quantities


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ({"val_loss": 0.5, "train_loss": 0.3}, {"loss": 0.5, "val_loss": 0.5, "train_loss": 0.3}),
        ({"val/acc": 0.9}, {"accuracy": 0.9, "val_acc": 0.9}),
        ({"eval_accuracy": 0.8, "acc": 0.9}, {"accuracy": 0.8, "eval_accuracy": 0.8, "acc": 0.9}),
        ({"train_loss": 0.3}, {"loss": 0.3, "train_loss": 0.3}),
        ({"loss": 1.0, "val_loss": 2.0}, {"loss": 1.0, "val_loss": 2.0}),
        ({"1st": 1.0, "": 2.0, "f1 score": 3.0}, {"f1_score": 3.0}),
        ({"Loss/train": 0.3, "Loss/test": 0.5}, {"loss": 0.5, "Loss_train": 0.3, "Loss_test": 0.5}),
        ({"Accuracy": 0.9}, {"accuracy": 0.9, "Accuracy": 0.9}),
        ({}, {}),
    ],
)
def test_quantities(logged: dict[str, Any], expected: dict[str, Any]) -> None:
    assert quantities(logged) == expected
