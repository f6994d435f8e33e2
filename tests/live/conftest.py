"""A real Slurm for the live tests: one cluster for the whole session, handed to each test with a clean queue.

Of a session that pytest-xdist distributes, each worker has a cluster of its own.

Nothing is skipped: where Slurm is not installed, the tests fail with the message that says what to install.
"""

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.sandbox import ClusterSpec, Sandbox
from tests.live import chosen
from tests.live.operated import operated

_HERE = Path(__file__).parent
_running = pytest.StashKey[list[Sandbox]]()
_failed = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_running] = []
    config.stash[_failed] = False
    os.environ["PATH"] = os.pathsep.join([*chosen.PATH, os.environ["PATH"]])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
    if hasattr(config, "workerinput"):  # by pytest-xdist: the long ones first, and what is short fills the end
        items.sort(key=lambda item: _HERE not in item.path.parents)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.config.stash[_failed] = True
        folders = "\n".join(str(sandbox.logs) for sandbox in item.config.stash[_running])
        report.sections.append(("Logs of the sandboxes", folders or "none was running"))
    return report


@contextmanager
def _running_sandbox(config: pytest.Config, spec: ClusterSpec | None = None) -> Iterator[Sandbox]:
    """Up and down, with the logs left when a live test failed meanwhile."""
    sandbox = Sandbox(replace(spec or ClusterSpec(), slurm=chosen.SLURM))
    sandbox.up()
    config.stash[_running].append(sandbox)
    try:
        yield sandbox
    finally:
        config.stash[_running].remove(sandbox)
        sandbox.down(keep_logs=config.stash[_failed])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where slurmctld, which is not root, can read: not below a folder of pytest, which closes it to others."""
    with tempfile.TemporaryDirectory(prefix="slurmplug-site-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def session_cluster(pytestconfig: pytest.Config) -> Iterator[Sandbox]:
    """Ask for `cluster` instead, unless the state that other tests left does not matter."""
    with _running_sandbox(pytestconfig) as sandbox:
        yield sandbox


@pytest.fixture
def cluster(session_cluster: Sandbox) -> Sandbox:
    """Four nodes of four GPUs, all daemons running, an empty queue and an empty spool."""
    session_cluster.clear()
    return session_cluster


@pytest.fixture
def port(cluster: Sandbox, tmp_path: Path) -> SlurmCluster:
    """The daemon's way to that cluster, as its operator."""
    return operated(cluster, tmp_path)


@pytest.fixture(scope="module")
def special_cluster(pytestconfig: pytest.Config) -> Iterator[Callable[[ClusterSpec], Sandbox]]:
    """A function that gives the module's cluster of a spec, with a clean queue; started at its first use."""
    started: list[Sandbox] = []
    with ExitStack() as stack:

        def of(spec: ClusterSpec) -> Sandbox:
            for sandbox in started:
                if sandbox.spec == replace(spec, slurm=chosen.SLURM):
                    sandbox.clear()
                    return sandbox
            sandbox = stack.enter_context(_running_sandbox(pytestconfig, spec))
            started.append(sandbox)
            return sandbox

        yield of
