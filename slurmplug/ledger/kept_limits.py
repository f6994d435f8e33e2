"""The limits of QOS and associations as the daemon read them last, by which starts are forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurmplug.cluster.limits import Assoc, AssocLimits, Limits, QosLimits
from slurmplug.ledger import codec, cycle_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.ledger import Ledger

LIMITS = "limits"
"""the name under which the ledger has them, among the models"""
VERSION = "limits-2"


@dataclass(frozen=True)
class _Stored:
    """`Limits` with lists in place of sets, and of mappings whose keys are no texts."""

    qos: Mapping[str, QosLimits]
    assocs: tuple[tuple[Assoc, AssocLimits], ...]
    partition_qos: Mapping[str, str]
    partition_wall: Mapping[str, float]
    default_account: Mapping[str, str]
    whole_nodes: tuple[str, ...]


def keep(ledger: Ledger, limits: Limits, at: float) -> None:
    """Keep them in place of the last ones. at: when they were read. Raises LedgerError."""
    ledger.save_model(LIMITS, VERSION, _stored(limits), at)


def last(ledger: LedgerFile) -> Limits | None:
    """None where none of this release are kept. Raises LedgerError."""
    found = cycle_queries.model(ledger, LIMITS)
    if found is None or found[0] != VERSION:
        return None
    try:
        stored: _Stored = codec.rebuild(_Stored, found[2])
    except ValueError as error:
        raise ledger.damaged(error) from error
    return Limits(**{**vars(stored), "assocs": dict(stored.assocs), "whole_nodes": frozenset(stored.whole_nodes)})


def _stored(limits: Limits) -> dict[str, object]:
    lists = {"assocs": list(limits.assocs.items()), "whole_nodes": sorted(limits.whole_nodes)}
    return {**vars(limits), **lists}
