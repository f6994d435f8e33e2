"""The daemon killed at some places of a crowded cluster while all around it fails; `make chaos` has all of them."""

from collections.abc import Callable
from pathlib import Path

from slurmplug.sandbox import ClusterSpec, Sandbox
from tests.live.chaos import run


def test_whatever_fails_no_invariant_is_violated(
    special_cluster: Callable[[ClusterSpec], Sandbox], folder: Path
) -> None:
    summary, well = run.run(special_cluster(run.spec(folder)), folder, seed=5, seconds=60.0, kills=8)
    print(summary)
    assert well, summary
    assert "kills 0" not in summary
