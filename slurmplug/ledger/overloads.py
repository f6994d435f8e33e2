"""When the policy took the cluster for overloaded: spans, as its memory has only whether it does now."""

from slurmplug.cycle.record import CycleRecord
from slurmplug.ledger.database import LedgerFile


def write(ledger: LedgerFile, record: CycleRecord) -> None:
    """Add a cycle, within a transaction: to the last span, if the cycle before was of it."""
    found = record.plan.memory.get("overloaded")
    if found is None or not found[0]:
        return
    if not ledger.db.execute(_STILL, [record.started, record.snapshot.cycle]).rowcount:
        ledger.db.execute("INSERT OR IGNORE INTO overloads VALUES (?, ?)", [record.started, record.started])


def delete(ledger: LedgerFile, before: float) -> None:
    """Delete the spans that ended before that time, within a transaction."""
    ledger.db.execute("DELETE FROM overloads WHERE last < ?", [before])


def between(ledger: LedgerFile, start: float, end: float) -> list[tuple[float, float]]:
    """The spans in a time, from the first to the last of the cycles in a row. Raises LedgerError."""
    return ledger.tuples("SELECT began, last FROM overloads WHERE began <= ? AND last >= ? ORDER BY began", end, start)


_STILL = """
UPDATE overloads SET last = ? WHERE began = (SELECT max(began) FROM overloads)
    AND last = (SELECT started FROM cycles WHERE id < ? ORDER BY id DESC LIMIT 1)
"""
