"""Trees of a quantile forest are fitted on parts of the data."""

import numpy as np
import pytest

from predictors.forest import QuantileForest


@pytest.mark.parametrize("share", [0.1, 0.7])
def test_a_tree_knows_the_targets_of_its_share_of_the_groups_alone(share: float) -> None:
    """Each group has one target, and leaves are small enough to keep all that fell into them."""
    groups = np.repeat(np.arange(400), 2)
    x = np.random.default_rng(4).random((800, 3))
    y = groups.astype(np.float64)

    forest = QuantileForest.fit(x, y, groups, trees=6, smallest_leaf=1, features=1.0, seed=0, share=share)
    leaves = forest.leaves(x)
    known = [len(np.unique(leaves[:, tree])) / 400 for tree in range(6)]

    np.testing.assert_allclose(known, share, atol=0.08)
    assert len({tuple(leaves[:, tree].ravel().tolist()) for tree in range(6)}) == 6
