"""`slurmplug web` as a process: what it answers, and what it lets a client use."""

import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.endpoint.web.process import LIMITS
from tests.ledgers import Site, run

SLURMPLUG = [sys.executable, "-c", "from slurmplug.commands import main; main()"]


def configured(site: Site, port: int) -> Path:
    file = site.path.with_name("slurmplug.toml")
    file.write_text(
        f'[slurm]\nbin = "{site.path.parent}"\n[ledger]\npath = "{site.path}"\n'
        f'[web]\nlisten = "127.0.0.1:{port}"\nuser_header = "X-Remote-User"\n'
    )
    return file


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """That of a process with a ledger, that believes what is said here, as it is of the same account."""
    with Site(tmp_path_factory.mktemp("site")) as site:
        site.cluster.submit()
        site.cycle()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            number = int(free.getsockname()[1])
        command = [*SLURMPLUG, "web", "--config", str(configured(site, number))]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "pages are served on http://127.0.0.1:" in process.stderr.readline()
            try:
                yield number
            finally:
                process.send_signal(signal.SIGTERM)
                process.stderr.read()
            assert process.wait(60) == 0


def exchanged(port: int, request: bytes) -> bytes:
    """All that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


def status(port: int, *headers: str, start: str = "GET / HTTP/1.0", body: bytes = b"") -> int:
    head = "\r\n".join([start, "Host: x", *headers])
    return int(exchanged(port, f"{head}\r\n\r\n".encode() + body).split()[1])


def test_pages_are_answered(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/")
    response = connection.getresponse()
    page = response.read()
    assert (response.status, b"<h1>Queue</h1>" in page) == (200, True)
    assert response.headers["Server"] is None
    connection.request("HEAD", "/")
    response = connection.getresponse()
    assert (response.status, response.read(), response.headers["Content-Length"]) == (200, b"", str(len(page)))
    connection.close()


def test_who_asks_is_believed_of_the_header_that_is_configured_and_no_other(port: int) -> None:
    assert status(port, "X-Remote-User: root") == 403  # nobody is root here
    assert status(port, "x-remote-user: root") == 403
    assert status(port, "X_Remote_User: root") == 200
    assert status(port, "Remote-User: root") == 200


def test_a_user_who_adds_a_name_to_the_proxys_is_nobody(port: int) -> None:
    assert status(port, "X-Remote-User: nobody", "X-Remote-User: root") == 403
    assert status(port, "X-Remote-User: nobody") == 200


def refusal(port: int, *headers: str, start: str = "GET / HTTP/1.0", body: bytes = b"") -> int | None:
    """The status; None where the connection was reset before all was sent."""
    try:
        return status(port, *headers, start=start, body=body)
    except ConnectionError:
        return None


def test_a_large_request_is_refused(port: int) -> None:
    large, length = LIMITS["max_request_header_size"], LIMITS["max_request_body_size"] + 1
    assert status(port, f"X-Large: {'x' * (large - 200)}") == 200
    assert refusal(port, f"X-Large: {'x' * large}") in (431, None)
    assert refusal(port, start=f"GET /{'x' * large} HTTP/1.0") in (431, None)
    sent = [f"Content-Length: {length}"]
    assert refusal(port, *sent, start="POST / HTTP/1.0", body=b"x" * length) in (413, None)
    assert status(port, "Content-Length: 1", start="POST / HTTP/1.0", body=b"x") == 405


def test_what_is_no_http_is_refused(port: int) -> None:
    assert b" 400 " in exchanged(port, b"\x16\x03\x01 hello\r\n\r\n").split(b"\r\n")[0]


def test_a_port_that_is_taken_is_said_so(tmp_path: Path) -> None:
    with Site(tmp_path) as site, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [*SLURMPLUG, "web", "--config", str(configured(site, taken.getsockname()[1]))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "Address already in use: choose another port" in done.stderr


def test_without_its_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmplug.commands.web.find_spec", lambda _: None)
    done = run("web")
    assert (done.exit_code, "pip install 'slurmplug[web]'" in done.output) == (1, True)
