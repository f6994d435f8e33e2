"""Debian's Chromium, which `make test-web` installs."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()
