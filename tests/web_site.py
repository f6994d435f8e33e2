"""The web pages of a made site, without a server: who asks is what a proxy says, whom the pages believe."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from werkzeug.test import TestResponse

from slurmplug.config.schema import Config
from slurmplug.endpoint import viewers
from slurmplug.endpoint.viewers import Viewers
from slurmplug.endpoint.web import app, askers, peers
from slurmplug.endpoint.web.app import make_app
from tests.ledgers import Site

ADA, BOB, OPERATOR = 1001, 1002, 1003
ACCOUNTS = {"root": 0, "ada": ADA, "bob": BOB, "op": OPERATOR}
HOSTILE = "<script>alert('1')</script>\"&{{7*7}}\x1b\u202e"
"""A name of a job."""
HEADER = "X-Remote-User"
_SVG = "{http://www.w3.org/2000/svg}"


class FakeSlurm:
    """Says who may see all jobs."""

    def __init__(self, private: str = "none") -> None:
        self.private = private

    def private_data(self) -> frozenset[str]:
        return frozenset({self.private})

    def admin_levels(self) -> Mapping[str, str]:
        return {"op": "Operator"}


class WebSite:
    """A site and its pages."""

    def __init__(self, site: Site, private: str = "none", **web: Any) -> None:
        self.site = site
        self.config = Config.from_table({"ledger": {"path": str(site.path)}, "web": {"user_header": HEADER, **web}})
        self.app = make_app(self.config, Viewers(FakeSlurm(private)))
        self.client = self.app.test_client()

    def ask(self, path: str, user: str = "", **headers: str) -> TestResponse:
        named = {HEADER: user} if user else {}
        address = {"REMOTE_ADDR": "127.0.0.1", "REMOTE_PORT": "40000", "SERVER_PORT": "6832"}
        return self.client.get(path, headers={**named, **headers}, environ_overrides=address, buffered=True)

    def page(self, path: str, user: str = "") -> str:
        """The page; it has to be shown."""
        response = self.ask(path, user)
        assert response.status_code == 200, response.text
        return response.text

    def charts(self, path: str, user: str = "") -> list[ElementTree.Element]:
        """The SVG elements of a page; they have to be well-formed."""
        return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", self.page(path, user), re.DOTALL)]


def marks(chart: ElementTree.Element, element: str, kind: str) -> list[str]:
    """The texts of the marks of a kind in a chart."""
    found = [each for each in chart.iter(f"{_SVG}{element}") if each.get("class") == kind]
    return [title.text or "" for each in found for title in each.iter(f"{_SVG}title")]


def places(chart: ElementTree.Element, element: str, kind: str) -> list[tuple[float, float]]:
    """The corners of the only line or area of a kind in a chart."""
    [points] = [each.get("points") for each in chart.iter(f"{_SVG}{element}") if each.get("class") == kind]
    pairs = (pair.split(",") for pair in (points or "").split())
    return [(float(x), float(y)) for x, y in pairs]


@contextmanager
def visited(folder: Path, private: str = "none", **settings: Any) -> Iterator[WebSite]:
    """Pages of a new site. private: a value of PrivateData."""
    with pytest.MonkeyPatch.context() as patch, Site(folder, **settings) as site:
        patch.setattr(askers, "pwd", SimpleNamespace(getpwnam=_account))
        patch.setattr(viewers, "account_name", lambda uid: {at: name for name, at in ACCOUNTS.items()}.get(uid, ""))
        patch.setattr(peers, "owners", lambda *_: {0})
        patch.setattr(app, "time", SimpleNamespace(time=lambda: site.cluster.time, monotonic=lambda: site.cluster.time))
        yield WebSite(site, private)


def _account(name: str) -> SimpleNamespace:
    return SimpleNamespace(pw_uid=ACCOUNTS[name])
