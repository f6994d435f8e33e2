"""A machine on which systemd runs, and what docker/machine makes of it: a small Slurm site, without slurmplug."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.docker.site import ROOT, Site, docker

NAME = "slurmplug-test-machine"
ALLOWED = (
    "--cap-add=SYS_ADMIN --security-opt=seccomp=unconfined --security-opt=apparmor=unconfined --cgroupns=host "
    "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw --tmpfs=/run --tmpfs=/tmp"
).split()
"""What systemd needs to run units in a container: mounts, namespaces and cgroups. Not --privileged: no devices."""


class Machine(Site):
    """Controller, login node and compute node in one."""

    def container(self, service: str) -> str:
        return NAME

    def logs(self) -> str:
        return self.sh("journalctl --no-pager -n 60", check=False)

    def sh(self, command: str, *, user: str = "root", check: bool = True) -> str:
        """What a shell command answers."""
        return self.run("controller", command, user=user, check=check).strip()

    def unit(self, name: str, what: str) -> str:
        """A property of a unit, as `systemctl show` has it."""
        return self.sh(f"systemctl show --value --property={what} {name}")

    def site_factors(self) -> dict[int, int]:
        """Of each job that waits and is not held, as Slurm itself says (sprio)."""
        lines = self.sh("sprio -h -o '%i %S'").splitlines()
        return {int(job_id): int(factor) for job_id, factor in map(str.split, lines)}


@contextmanager
def booted() -> Iterator[Machine]:
    """The machine, gone afterwards whatever happens."""
    release, base = os.environ.get("RELEASE", "bookworm"), os.environ.get("BASE", "debian")
    image = f"slurmplug-machine:{release}"
    subprocess.run(["docker/prepare", release], cwd=ROOT, check=True, timeout=1800)
    arguments = {"BASE": base, "RELEASE": release, "APT_OPTIONS": os.environ.get("APT_OPTIONS", "")}
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    docker("build", "--quiet", "--tag", image, "--file", "docker/Dockerfile.package", *words, ".", timeout=1800)
    docker("rm", "--force", "--volumes", NAME)
    machine = Machine()
    hosts = ["--hostname=controller", "--add-host=slurmdbd:127.0.0.1"]
    docker("run", "--detach", f"--name={NAME}", *ALLOWED, *hosts, image)
    try:
        machine.wait(
            lambda: machine.sh("systemctl is-system-running", check=False) in ("running", "degraded"), "systemd"
        )
        machine.sh("/usr/local/lib/slurmplug/machine")
        yield machine
    finally:
        docker("rm", "--force", "--volumes", NAME)
