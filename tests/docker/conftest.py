"""The cluster in containers, for `make test-docker`: brought up once, and gone afterwards, whatever happens."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.docker.site import ROOT, Site


class Containers(Site):
    """docker-compose on docker/compose.yml, in a project of its own, with two controllers."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}
        self.release = os.environ.get("RELEASE", "bookworm")
        subprocess.run(["docker/prepare", self.release], cwd=ROOT, check=True, timeout=1800)
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
        self._program = ["docker", "compose"] if second else ["docker-compose"]

    def compose(self, *arguments: str, timeout: float = 900.0, check: bool = True) -> str:
        argv = [*self._program, "-f", "docker/compose.yml", "--profile", "backup", "--profile", "demo", *arguments]
        result = subprocess.run(
            argv, cwd=ROOT, env=self._env, text=True, capture_output=True, timeout=timeout, check=False
        )
        assert not check or result.returncode == 0, (
            f"{' '.join(arguments)}: {result.stdout[-3000:]}{result.stderr[-3000:]}"
        )
        return result.stdout

    def ids(self, service: str) -> list[str]:
        """The containers of a service; none is made anew meanwhile."""
        if service not in self._ids:
            self._ids[service] = self.compose("ps", "-q", service).split()
        return self._ids[service]

    def container(self, service: str) -> str:
        return self.ids(service)[0]

    def logs(self) -> str:
        return self.compose("logs", "--tail=40", "controller")


@pytest.fixture(scope="session")
def containers() -> Iterator[Containers]:
    one = Containers()
    one.compose("down", "-v", "--remove-orphans", check=False)
    try:
        one.compose("build", "database", timeout=1800)
        one.compose("up", "-d", "--scale", "compute=3", "--scale", "demo=0")
        one.wait(lambda: one.run("login", "sinfo -h -N -t idle", check=False).count("\n") == 3, "three idle nodes")
        yield one
    finally:
        one.compose("down", "-v", "--remove-orphans", check=False)
