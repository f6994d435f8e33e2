"""What one user who asks for everything, on eight connections, costs others' reports and the daemon's cycles.

Each is measured alone and beside that user, in turns. Beside is not to be above 1.05 times alone:

    pytest tests/bench/test_bench_endpoint.py --benchmark-only --benchmark-columns=median,iqr,rounds
"""

import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from slurmplug.commands import queue_table
from slurmplug.config.schema import Config
from slurmplug.endpoint import wire
from slurmplug.endpoint.process import EndpointProcess
from tests.ledgers import Site

JOBS = int(os.environ.get("JOBS", "4000"))
OPERATOR, ADA = 0, 1001
CONNECTIONS = 8
FIELDS = list(queue_table.FIELDS_SHOWN)
UNMUNGE = """#!/bin/sh
read credential
said=$(printf %s "$credential" | cut -d: -f2 | base64 -d)
printf 'STATUS: 0\\nUID: %s\\n\\n%s' "${said%%:*}" "${said#*:}"
"""
"""Believes whoever writes a credential."""


def ask(port: int, uid: int, report: str, **parameters: object) -> bytes:
    body = json.dumps(parameters).encode()
    said = base64.b64encode(f"{uid}:".encode() + wire.payload(report, body)).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", f"/v1/{report}", body, {"Authorization": f"Munge MUNGE:{said}:"})
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as one:
        for number in range(JOBS):
            uid = ADA if number % 100 == 0 else 3000 + number % 40
            one.cluster.submit(uid=uid, user=str(uid))
        one.cycle()
        yield one


@contextmanager
def serving(site: Site, **programs: str) -> Iterator[int]:
    """The port of the site's endpoint once it answers; these programs, and `unmunge`, are scripts beside the ledger."""
    folder = site.path.parent
    for name, script in {"unmunge": UNMUNGE, **programs}.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    endpoint = {"listen": f"127.0.0.1:{number}", "requests_per_minute": 1_000_000}
    config = Config.from_table(
        {"endpoint": endpoint, "ledger": {"path": str(site.path)}, "slurm": {"bin": str(folder)}}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        served = EndpointProcess(config, lambda: None)
        try:
            while True:
                try:
                    ask(number, ADA, "status")
                    break
                except OSError:
                    time.sleep(0.1)
            yield number
        finally:
            served.close()


@pytest.fixture(scope="module")
def port(site: Site) -> Iterator[int]:
    with serving(site) as number:
        yield number


@contextmanager
def one_who_asks_for_everything(port: int) -> Iterator[None]:
    code = f"""
import os, threading
os.nice(19)
from tests.bench.test_bench_endpoint import ask
def again():
    while True:
        ask({port}, {OPERATOR}, "queue", live=True, fields={FIELDS})
for _ in range({CONNECTIONS}):
    threading.Thread(target=again).start()
"""
    with subprocess.Popen([sys.executable, "-c", code]) as asking:
        try:
            time.sleep(20.0)  # past what a user has of the first lane
            yield
        finally:
            asking.kill()


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
@pytest.mark.parametrize("what", ["anothers queue", "a cycle"])
def test_beside_one_who_asks_for_everything(
    benchmark: BenchmarkFixture, site: Site, port: int, what: str, beside: bool
) -> None:
    def report() -> None:
        assert b'"columns"' in ask(port, ADA, "queue", live=True, users=[str(ADA)], fields=FIELDS)

    def cycle() -> None:
        site.cycle()

    measured = report if what == "anothers queue" else cycle
    if not beside:
        benchmark.pedantic(measured, rounds=10, warmup_rounds=2)
        return
    with one_who_asks_for_everything(port):
        benchmark.pedantic(measured, rounds=10, warmup_rounds=2)
