"""The cluster in containers, for `make test-docker`: brought up once, and gone afterwards, whatever happens."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 300.0


class Containers:
    """docker-compose on docker/compose.yml, in a project of its own, with two controllers."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}
        self.release = os.environ.get("RELEASE", "bookworm")
        self._env = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": "slurmplug-test",
            "RELEASE": self.release,
            "BACKUP": "1",
            "SUBNET": os.environ.get("SUBNET", "172.30.72"),
            "DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0"),
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }
        second = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        first = shutil.which("docker-compose")
        assert second or first, "neither docker compose nor docker-compose is there: run docker/prepare"
        self._program = ["docker", "compose"] if second else [str(first)]

    def compose(self, *arguments: str, timeout: float = 900.0, check: bool = True) -> str:
        argv = [*self._program, "-f", "docker/compose.yml", "--profile", "backup", "--profile", "demo", *arguments]
        told = subprocess.run(
            argv, cwd=ROOT, env=self._env, text=True, capture_output=True, timeout=timeout, check=False
        )
        assert not check or told.returncode == 0, f"{' '.join(arguments)}: {told.stdout[-3000:]}{told.stderr[-3000:]}"
        return told.stdout

    def docker(self, *arguments: str) -> str:
        return subprocess.run(
            ["docker", *arguments], text=True, capture_output=True, timeout=300, check=True
        ).stdout.strip()

    def ids(self, service: str) -> list[str]:
        """The containers of a service; none is made anew meanwhile."""
        if service not in self._ids:
            self._ids[service] = self.compose("ps", "-q", service).split()
        return self._ids[service]

    def run(self, service: str, command: str, *, user: str = "root", check: bool = True) -> str:
        """What a shell command answers in a service's first container."""
        argv = ["docker", "exec", "-u", user, self.ids(service)[0], "bash", "-c", command]
        told = subprocess.run(argv, text=True, capture_output=True, timeout=300, check=False)
        assert not check or told.returncode == 0, f"{service}: {command}: {told.stdout}{told.stderr}"
        return told.stdout + ("" if check else told.stderr)

    def submit(self, user: str, script: str, *options: str) -> int:
        words = " ".join(options)
        command = f"cd ~{user} && sbatch --parsable {words} <<'SCRIPT'\n{script}\nSCRIPT"
        return int(self.run("login", command, user=user).strip().split(";")[0])

    def job(self, job_id: int) -> dict[str, str]:
        told = self.run("login", f"scontrol -o show job {job_id}").split()
        return dict(word.split("=", 1) for word in told if "=" in word)

    def status(self, service: str = "controller") -> dict[str, Any]:
        told = self.run(
            service,
            "runuser -u slurmplug -- slurmplug status --json --ledger /var/lib/slurmplug/ledger.db",
            check=False,
        )
        return json.loads(told[: told.rindex("}") + 1]) if "}" in told else {"alive": False, "cycle": {"id": 0}}

    def wait(self, true: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
        until = time.monotonic() + limit
        while time.monotonic() < until:
            if found := true():
                return found
            time.sleep(1)
        raise AssertionError(f"waited {limit:g} s for {what}\n{self.compose('logs', '--tail=40', 'controller')}")

    def wait_state(self, job_id: int, *states: str) -> dict[str, str]:
        self.wait(lambda: self.job(job_id).get("JobState") in states, f"job {job_id} to be {' or '.join(states)}")
        return self.job(job_id)


@pytest.fixture(scope="session")
def containers() -> Iterator[Containers]:
    one = Containers()
    subprocess.run(["docker/prepare", one.release], cwd=ROOT, check=True, timeout=1800)
    one.compose("down", "-v", "--remove-orphans", check=False)
    try:
        one.compose("build", "database", timeout=1800)
        one.compose("up", "-d", "--scale", "compute=3", "--scale", "demo=0")
        one.wait(lambda: one.run("login", "sinfo -h -N -t idle", check=False).count("\n") == 3, "three idle nodes")
        yield one
    finally:
        one.compose("down", "-v", "--remove-orphans", check=False)
