"""A ledger that stays open to be read from one report to the next, so that what was made of it can be used again."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol

from slurmplug.errors import LedgerError
from slurmplug.ledger.database import LedgerFile


class OpensLedger(Protocol):
    """Opens a ledger to be read within a context. Raises LedgerError."""

    def __call__(self, path: Path) -> AbstractContextManager[LedgerFile]:
        """The ledger at this path."""
        ...


@contextmanager
def opened_anew(path: Path) -> Iterator[LedgerFile]:
    """The ledger, closed afterwards. Raises LedgerError."""
    with closing(LedgerFile(path, readonly=True)) as ledger:
        yield ledger


class KeptOpen:
    """Opens a ledger and leaves it open, for one thread."""

    def __init__(self) -> None:
        self._ledger: LedgerFile | None = None

    @contextmanager
    def __call__(self, path: Path) -> Iterator[LedgerFile]:
        """The ledger, open from the time before, unless that was another one, or other files are in its place now.

        Raises:
            LedgerError
        """
        if self._ledger is None or self._ledger.path != path or not self._ledger.is_in_place():
            self.close()
            self._ledger = LedgerFile(path, readonly=True)
        try:
            yield self._ledger
        except LedgerError:
            self.close()
            raise

    def close(self) -> None:
        """Close what is open."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = None
