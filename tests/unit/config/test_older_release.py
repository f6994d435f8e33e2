"""What a site wrote for 0.1.0 is used by this release: its whole configuration, and a policy of its own.

`tests/data/release-0.1.0` has the configuration with every setting that the release came with, and the policy that its
documentation had as an example. A ledger of that release, with open operations, is in
`tests/unit/operations/test_older_operations.py`.
"""

import shutil
from pathlib import Path

from slurmplug.config import policy_registry, schema
from slurmplug.config.schema import Config
from tests.ledgers import Site

OLD = Path(__file__).parents[2] / "data" / "release-0.1.0"


def test_the_whole_configuration_is_read() -> None:
    config = schema.load(OLD / "slurmplug.toml")
    assert config.mode.of("rank") == "observe"


def test_a_policy_of_the_sites_own_decides(tmp_path: Path) -> None:
    shutil.copy(OLD / "ours.py.txt", tmp_path / "ours.py")
    settings = {"policy": f"{tmp_path}/ours.py:EarliestDeadline", "policies": {"earliest-deadline": {"preempt": True}}}
    policy = policy_registry.policy(Config.from_table(settings))
    with Site(tmp_path, policy) as site:
        for hours in (9, 2, 5):
            site.cluster.submit(f"#!/bin/sh\n#PLUG --deadline={hours}h\n".encode())
        record = site.cycle()
    assert record.error == ""
    assert record.policy == "earliest-deadline"
    assert record.plan.score.argsort()[::-1].tolist() == [1, 2, 0]
