"""/metrics of the endpoint: for operators only, each request with a credential of its own."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.config.schema import Config
from slurmplug.endpoint import munge, wire
from slurmplug.endpoint.exporter import http as metrics_http
from slurmplug.endpoint.fair_queue import FairQueue
from slurmplug.endpoint.report_makers import LocalReportMaker
from slurmplug.endpoint.server import EndpointServer, EndpointThread, RequestHandler
from slurmplug.endpoint.viewers import Viewers
from tests.ledgers import Site
from tests.unit.endpoint.test_endpoint import ADA, FakeMunge, Slurm


class Served:
    def __init__(self, config: Config, munged: FakeMunge) -> None:
        self._munged = munged
        viewers = Viewers(Slurm())
        handler = RequestHandler(lambda: config, viewers, FairQueue([LocalReportMaker()]), lambda request, author: [])
        self._server = EndpointServer("127.0.0.1:0", handler)
        self.thread = EndpointThread(self._server, poll=0.01)

    def get(self, uid: int | None, path: str = "/metrics", of: str = wire.METRICS_NAME) -> tuple[int, str, str]:
        headers = {}
        if uid is not None:
            self._munged.uid = uid
            headers["Authorization"] = f"Munge {self._munged.encode(wire.payload(of, b''), None)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.thread.port, timeout=60)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers["Content-Type"], response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def munged(monkeypatch: pytest.MonkeyPatch) -> FakeMunge:
    fake = FakeMunge()
    monkeypatch.setattr(munge, "encode", fake.encode)
    monkeypatch.setattr(munge, "decode", fake.decode)
    return fake


def config_of(site: Site, listen: str) -> Config:
    return Config.from_table({"metrics": {"listen": listen}, "ledger": {"path": str(site.path)}})


@pytest.fixture
def served(tmp_path: Path, munged: FakeMunge) -> Iterator[Served]:
    with Site(tmp_path) as site:
        site.cluster.submit()
        site.cycle()
        config = config_of(site, "127.0.0.1:0")
        server, thread = metrics_http.serve("127.0.0.1:0", lambda: config)
        one = Served(config_of(site, f"127.0.0.1:{server.server_port}"), munged)
        try:
            yield one
        finally:
            one.thread.close()
            server.shutdown()
            server.server_close()
            thread.join()


def test_an_operator_gets_what_the_port_of_the_metrics_has(served: Served) -> None:
    status, kind, text = served.get(0)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'slurmplug_gpus{account="lab",state="pending",user="ada"} 1.0' in text


def test_nobody_else_does(served: Served) -> None:
    status, kind, text = served.get(ADA)
    assert (status, kind) == (403, "application/json")
    assert "ada" not in text
    assert served.get(None)[0] == 401
    assert served.get(0, of="status")[0] == 401
    assert served.get(0, path="/metrics/../status")[0] == 501


def test_where_there_are_none_the_answer_says_why(tmp_path: Path, munged: FakeMunge) -> None:
    with Site(tmp_path) as site:
        for listen, why in (("", "metrics.listen is not set"), ("127.0.0.1:9", "cannot be had at the moment")):
            one = Served(config_of(site, listen), munged)
            try:
                status, _, text = one.get(0)
            finally:
                one.thread.close()
            assert (status, why in text) == (503, True)
