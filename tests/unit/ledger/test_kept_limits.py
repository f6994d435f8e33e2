"""The limits in the ledger come back as they were."""

from pathlib import Path

import pytest

from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, Limits, QosLimits
from slurmplug.errors import LedgerError
from slurmplug.ledger import kept_limits
from tests.ledgers import Site

LIMITS = Limits(
    qos={"normal": QosLimits(), "few": QosLimits({JOBS: 1.0}, user={"gres/gpu": 2.0}, wall=60.0, over_partition=True)},
    assocs={
        Assoc("lab", "", ""): AssocLimits({"cpu": 4.0}, parent="root"),
        Assoc("lab", "ada", "gpu"): AssocLimits(job={"mem": 1024.0}, jobs=2.0, default_qos="few"),
    },
    partition_qos={"gpu": "few"},
    partition_wall={"gpu": 3600.0},
    default_account={"ada": "lab"},
    whole_nodes=frozenset({"wide", "long"}),
)


def test_limits_come_back_as_they_were_kept_last(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        assert kept_limits.last(site.ledger) is None
        kept_limits.keep(site.ledger, Limits(), 1.0)
        kept_limits.keep(site.ledger, LIMITS, 2.0)
        assert kept_limits.last(site.ledger) == LIMITS


def test_those_of_another_release_are_none_and_damaged_ones_an_error(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.ledger.save_model(kept_limits.LIMITS, "limits-0", {"qos": {}}, 1.0)
        assert kept_limits.last(site.ledger) is None
        site.ledger.save_model(kept_limits.LIMITS, kept_limits.VERSION, {"qos": {"normal": 7}}, 1.0)
        with pytest.raises(LedgerError):
            kept_limits.last(site.ledger)
