"""Fixtures of unit tests in several folders."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from slurmplug.ledger.ledger import Ledger
from tests.moving import MakeSite, MovingSite


@pytest.fixture
def ledger_in_memory() -> Iterator[Ledger]:
    with closing(Ledger(None)) as ledger:
        yield ledger


@pytest.fixture
def make_site() -> Iterator[MakeSite]:
    """`MovingSite`, whose ledger is closed at the end of the test."""
    with ExitStack() as made:

        def make(*arguments: Any, **settings: Any) -> MovingSite:
            site = MovingSite(*arguments, **settings)
            made.callback(site.ledger.close)
            return site

        yield make
