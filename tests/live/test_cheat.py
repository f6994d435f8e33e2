"""The cheaters that need a real Slurm; `make cheat` has all."""

import pytest

from slurmplug.sandbox import Sandbox
from tests.cheat.harness import Row, Stage, judge, rows, table


@pytest.mark.parametrize("row", [row for row in rows() if row.live], ids=lambda row: row.name)
def test_no_claim_gains_more_than_its_bound_on_a_real_slurm(cluster: Sandbox, row: Row) -> None:
    verdict = judge(row, [Stage(cluster=cluster)])
    assert verdict.ok, table([verdict])
