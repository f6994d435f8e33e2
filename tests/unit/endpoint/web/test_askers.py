"""Who asks: believed of a service on this host only."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmplug.config.schema import parse
from slurmplug.endpoint.viewers import Viewers
from slurmplug.endpoint.web import askers, peers
from slurmplug.endpoint.web.askers import Asker, Askers
from slurmplug.errors import ConfigError
from tests.web_site import ACCOUNTS, ADA, FakeSlurm

ENVIRON = {"REMOTE_ADDR": "127.0.0.1", "REMOTE_PORT": "40000", "SERVER_PORT": "6832", "HTTP_X_REMOTE_USER": "ada"}


@pytest.fixture(autouse=True)
def _accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = SimpleNamespace(getpwnam=lambda name: SimpleNamespace(pw_uid=ACCOUNTS[name]))
    monkeypatch.setattr(askers, "pwd", accounts)


def asked(header: str = "X-Remote-User", **environ: str) -> Asker:
    return Askers(Viewers(FakeSlurm("jobs")), header).asker({**ENVIRON, **environ})


@pytest.mark.parametrize("uids", [{0}, {33}, {askers.LAST_SYSTEM_UID}, {os.geteuid()}])
def test_a_service_on_this_host_is_believed(monkeypatch: pytest.MonkeyPatch, uids: set[int]) -> None:
    monkeypatch.setattr(peers, "owners", lambda *_: uids)
    asker = asked()
    assert (asker.name, asker.viewer.uid, asker.viewer.sees_all) == ("ada", ADA, False)


@pytest.mark.parametrize("uids", [set(), {ADA}, {65_534}, {0, ADA}])
def test_nobody_else_is_believed(monkeypatch: pytest.MonkeyPatch, uids: set[int]) -> None:
    monkeypatch.setattr(peers, "owners", lambda *_: uids)
    asker = asked()
    assert (asker.name, asker.viewer.uid, asker.viewer.sees_all) == ("", askers.NOBODY, False)


@pytest.mark.parametrize("environ", [{"REMOTE_ADDR": "10.0.0.9"}, {"REMOTE_ADDR": "x"}, {"REMOTE_PORT": "None"}])
def test_a_connection_that_is_not_of_this_host_is_not_believed(environ: dict[str, str]) -> None:
    assert asked(**environ).name == ""


def test_without_a_configured_header_none_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "owners", lambda *_: {0})
    assert asked("").name == ""
    assert asked("X-Other").name == ""


@pytest.fixture(params=["127.0.0.1", "::1"])
def listening(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as server:
        try:
            server.bind((request.param, 0))
        except OSError:
            pytest.skip("this machine has no IPv6 on loopback")
        server.listen()
        yield server


def test_the_kernel_says_whose_connection_it_is(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with closing(socket.create_connection(listening.getsockname()[:2])) as client:
        address, own = client.getsockname()[:2]
        assert peers.owners(address, own, port) == {os.geteuid()}
        assert peers.owners(address, own, port + 1) == set()
        accepted = listening.accept()[0]
    with closing(accepted):  # what its process has closed is listed as root's
        assert peers.owners(address, own, port) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_kernel_says_it_of_another_users_too(listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(ADA, ADA, ADA)
        with closing(socket.create_connection((host, port))) as client:
            os.write(ready[1], f"{client.getsockname()[1]}\n".encode())
            os.read(done[0], 1)
        os._exit(0)
    own = int(os.read(ready[0], 10))
    try:
        assert peers.owners(host, own, port) == {ADA}
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        for descriptor in (*ready, *done):
            os.close(descriptor)


def test_without_the_kernels_tables_nobody_is_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "TABLES", (tmp_path / "none",))
    assert peers.owners("127.0.0.1", 40_000, 6_832) == set()


@pytest.mark.parametrize("listen", ["0.0.0.0:6832", "10.0.0.1:6832", "[::]:6832", "cluster.example:6832", ""])
def test_pages_are_on_loopback_only(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.listen"):
        parse(f'[web]\nlisten = "{listen}"\n')


@pytest.mark.parametrize("listen", ["127.0.0.1:6832", "127.8.0.1:80", "[::1]:6832", "localhost:6832"])
def test_any_address_of_loopback_will_do(listen: str) -> None:
    assert parse(f'[web]\nlisten = "{listen}"\n').web.listen == listen


@pytest.mark.parametrize("header", ["X_Remote_User", "X Remote", "-", "a" * 200, "é"])
def test_a_header_has_the_name_of_one(header: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.user_header"):
        parse(f'[web]\nuser_header = "{header}"\n')
