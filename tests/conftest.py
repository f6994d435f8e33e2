"""What holds for every test.

Property tests draw the same examples for the same code, so that a commit that passed passes again;
`pytest tests/property --hypothesis-profile=search` draws others, and more.
"""

import os
import signal
import sqlite3
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

MOST_WORKERS = 8
"""Each has a Slurm cluster of its own while live tests run, of some 300 MB."""

hypothesis.settings.register_profile("patient", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1_000)
hypothesis.settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Children start as they would at a terminal.

    They take signals also where a background job or nohup has them ignored, and buffer their output also in a container
    whose image sets PYTHONUNBUFFERED.
    """
    os.environ.pop("PYTHONUNBUFFERED", None)
    if "PYTEST_XDIST_WORKER" in os.environ:  # beside others, threads that wait for each other take most of the time
        os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`: one more than there are processors, for a live test waits more than it computes."""
    return min((os.cpu_count() or 1) + 1, MOST_WORKERS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of training is skipped where torch is not: `make test` installs none, `make test-rl` does."""
    if item.get_closest_marker("rl"):
        pytest.importorskip("torch")


class WatchedConnection(sqlite3.Connection):
    """A connection that knows whether it was closed."""

    closed = False

    def close(self) -> None:
        super().close()
        self.closed = True


@pytest.fixture(autouse=True)
def _every_ledger_is_closed() -> Iterator[None]:
    """Fails the test that leaves a connection to SQLite open.

    Python 3.13 warns of one when it is collected, in whichever test that happens; before, no Python does.
    """
    opened: list[WatchedConnection] = []
    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> WatchedConnection:
        connection = connect(*arguments, factory=WatchedConnection, **options)
        opened.append(connection)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", watched)
        yield
    left = [
        str(row[2] or "in memory") for each in opened if not each.closed for row in each.execute("PRAGMA database_list")
    ]
    assert not left, f"connections to SQLite that were not closed: {left}"
