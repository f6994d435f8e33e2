"""Whether a target and the reports are in one unit."""

import numpy as np
import pytest

from slurmplug.directives.parser import Target, parse
from slurmplug.intake.target_unit import unit_mismatch


def target(written: str) -> Target:
    found = parse(f"#PLUG --target={written}\n", submitted=0.0).target
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("written", "values", "mismatch"),
    [
        # at least a share, and a value above 1 would meet it
        ("accuracy>=0.92", [80, 86], "percent"),
        ("accuracy>=1", [0.5, 86], "percent"),
        ("accuracy>=92%", [86], "percent"),
        ("purity>=0.9", [1.01], "percent"),
        ("accuracy>=0.92", [0.8, 0.86, 1.0], ""),
        ("accuracy>=92%", [0.8, 0.93], ""),
        ("accuracy>=0", [86], ""),
        ("accuracy>=-1", [86], ""),
        # at least a percentage, and only shares were reported
        ("accuracy>=92", [0.8, 0.86], "share"),
        ("accuracy>=92", [0.0, 1.0], "share"),
        ("accuracy>=92", [0.8, 86], ""),
        ("accuracy>=92", [0.8, -0.1], ""),
        ("accuracy>=101", [0.8], ""),
        # at most a percentage, which a share would meet
        ("error<=5", [0.8], "share"),
        ("val_top1_error<=1.5", [0.8], "share"),
        ("error<=5", [80, 0.9], ""),
        ("error<=0.05", [80], ""),
        # no shares
        ("loss<=0.1", [2.3], ""),
        ("loss<=2", [0.8], ""),
        ("perplexity<=12", [0.9], ""),
        ("val_dice_loss<=5", [0.4], ""),
        ("reward>=0.5", [3.0], ""),
        ("reward>=90", [0.2], ""),
        ("accuracy>=0.92", [], ""),
    ],
)
def test_a_share_and_a_percentage_are_told_apart(written: str, values: list[float], mismatch: str) -> None:
    assert unit_mismatch(target(written), np.array(values, dtype=float)) == mismatch
