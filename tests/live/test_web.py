"""The web pages beside a real Slurm and the daemon: what Slurm hides from users is hidden there too."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import SLURMPLUG, DaemonProcess, daemon_beside, training
from tests.live.login_node import free_port

SOMEBODY = 64_001
"""a uid that is no service's, as those of the sandbox's users may be"""
VISIT = """
import sys, urllib.error, urllib.request
try:
    request = urllib.request.Request(sys.argv[1], headers={"X-Remote-User": sys.argv[2]})
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


class Visited:
    """The pages, by `slurmplug web` as the daemon's account."""

    def __init__(self, cluster: Sandbox, port: int) -> None:
        self._cluster, self._port = cluster, port

    def visit(self, uid: int, named: str, path: str) -> str:
        """The status and the page that a process of this uid gets that names this user."""
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        url = f"http://127.0.0.1:{self._port}/{path}"
        return self._cluster.run("root", [*become, sys.executable, "-c", VISIT, url, named]).stdout

    def page(self, user: str, path: str = "") -> str:
        """The page as a proxy gets it, which is root's here."""
        status, _, text = self.visit(0, user, path).partition(" ")
        assert status == "200", text
        return text


@pytest.fixture
def web(cluster: Sandbox, daemon: DaemonProcess) -> Iterator[Visited]:
    port = free_port()
    daemon.start(f'[web]\nlisten = "127.0.0.1:{port}"\nuser_header = "X-Remote-User"\n', policy="fifo")
    operator = cluster.operator
    become = ["setpriv", f"--reuid={operator}", f"--regid={operator}", "--clear-groups"]
    command = [*become, SLURMPLUG, "web", "--config", str(daemon.config)]
    process = subprocess.Popen(command, env=cluster.env(operator), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "pages are served on" in line, line
    try:
        yield Visited(cluster, port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.close()
        assert process.wait(60) == 0


def test_pages_have_the_jobs_that_slurm_shows_to_who_asks(
    cluster: Sandbox, daemon: DaemonProcess, web: Visited
) -> None:
    ada, bob = cluster.researchers[:2]
    lines = "#PLUG --target=accuracy>=0.999 --stop=target --max-iterations=4000"
    hers = cluster.sbatch(ada, training(lines, gpus=1), "--job-name=<b>hers</b>")
    cluster.wait_job(hers, "RUNNING")
    full = cluster.sbatch(bob, "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\n#PLUG --urgency=3\nsleep 600\n", "-Jsecret")
    daemon.pass_cycles(3)
    cluster.wait(lambda: "<svg" in web.page(ada, f"job?id={hers}"), what="a report")
    page = web.page(ada, f"job?id={hers}")
    assert "--target=accuracy&gt;=0.999" in page
    assert "iteration 1: 0.5</title>" in page
    assert "&lt;b&gt;hers&lt;/b&gt;" in web.page(ada)
    assert f'"job?id={hers}"' in web.page(ada, "nodes?last=hour")
    for path in ("", f"job?id={hers}", "nodes", "load", "savings", "forecasts"):
        assert "secret" not in web.page(ada, path)
        assert f"job?id={full}" not in web.page(ada, path)
    assert web.visit(0, ada, f"job?id={full}").startswith("404 ")
    assert "secret" in web.page(bob, f"job?id={full}")
    assert "polyline" in web.page(bob, "load?last=hour")
    assert web.visit(0, cluster.operator, "").startswith("403 ")  # the daemon's account


def test_users_of_the_host_gain_nothing_by_naming_somebody_else(
    cluster: Sandbox, daemon: DaemonProcess, web: Visited
) -> None:
    bob = cluster.researchers[1]
    his = cluster.sbatch(bob, "#!/bin/sh\n#SBATCH --gres=gpu:4\n#PLUG --urgency=3\nsleep 600\n", "-Jsecret")
    daemon.pass_cycles()
    assert "secret" in web.page(bob)
    for name in (bob, cluster.operator, "root"):
        told = web.visit(SOMEBODY, name, "")
        assert told.startswith("200 ")
        assert "nobody has signed in" in told
        assert "secret" not in told
        assert web.visit(SOMEBODY, name, f"job?id={his}").startswith("404 ")
