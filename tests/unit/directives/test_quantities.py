"""What the names of quantities say."""

import pytest

from slurmplug.directives import quantities
from slurmplug.directives.quantities import known, validation_quantity


@pytest.mark.parametrize(
    ("quantity", "sign", "share"),
    [
        ("accuracy", 1.0, True),
        ("val_accuracy", 1.0, True),
        ("eval_mask_iou", 1.0, True),
        ("val_top1_error", -1.0, True),
        ("VAL_LOSS", -1.0, False),
        ("dice_loss", -1.0, False),
        ("val_perplexity", -1.0, False),
        ("episode_reward", 1.0, False),
    ],
)
def test_names_and_last_words_say_what_is_better(quantity: str, sign: float, share: bool) -> None:
    assert known(quantity) == (sign, share)


@pytest.mark.parametrize("quantity", ["purity", "lossy", "accuracy_", "", "val_"])
def test_other_names_say_nothing(quantity: str) -> None:
    assert known(quantity) is None


def test_each_name_is_in_the_table_once() -> None:
    assert len(set(quantities.NAMES)) == len(quantities.NAMES)


def test_a_validation_quantity_is_one_of_known_direction_measured_on_other_data() -> None:
    assert validation_quantity({"loss", "train_loss", "accuracy", "val_purity"}) is None
    assert validation_quantity({"val_loss", "val_accuracy", "test_f1"}) == "val_accuracy"
    assert validation_quantity({"val_loss", "val_accuracy"}, sign=-1.0) == "val_loss"
    assert validation_quantity({"val_aux_loss", "eval_loss"}) == "eval_loss"
