"""A site with pages, which a module's own `fill` gives its jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web_site import WebSite, visited


@pytest.fixture
def web(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WebSite]:
    with visited(tmp_path) as one:
        request.module.fill(one)
        yield one


@pytest.fixture
def private(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WebSite]:
    """Slurm shows jobs to their users only."""
    with visited(tmp_path, "jobs") as one:
        request.module.fill(one)
        yield one
