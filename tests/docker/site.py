"""What a test asks of a Slurm site in containers: commands, jobs, the daemon's status, and patience."""

import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT = 300.0


def docker(*arguments: str, timeout: float = 300.0) -> str:
    """What docker answers; an error where it fails."""
    return subprocess.run(
        ["docker", *arguments], cwd=ROOT, text=True, capture_output=True, timeout=timeout, check=True
    ).stdout.strip()


class Site(ABC):
    """Containers that are called by what they are for."""

    @abstractmethod
    def container(self, service: str) -> str:
        """The name or id of the service's first container."""

    @abstractmethod
    def logs(self) -> str:
        """What tells why the site does not do what it should."""

    def run(self, service: str, command: str, *, user: str = "root", check: bool = True) -> str:
        """What a shell command answers in a service's first container."""
        argv = ["docker", "exec", "-u", user, self.container(service), "bash", "-c", command]
        result = subprocess.run(argv, text=True, capture_output=True, timeout=900, check=False)
        assert not check or result.returncode == 0, f"{service}: {command}: {result.stdout}{result.stderr}"
        return result.stdout + ("" if check else result.stderr)

    def submit(self, user: str, script: str, *options: str) -> int:
        words = " ".join(options)
        command = f"cd ~{user} && sbatch --parsable {words} <<'SCRIPT'\n{script}\nSCRIPT"
        return int(self.run("login", command, user=user).strip().split(";")[0])

    def job(self, job_id: int) -> dict[str, str]:
        result = self.run("login", f"scontrol -o show job {job_id}").split()
        return dict(word.split("=", 1) for word in result if "=" in word)

    def status(self, service: str = "controller") -> dict[str, Any]:
        result = self.run(
            service,
            "runuser -u slurmplug -- slurmplug status --json --ledger /var/lib/slurmplug/ledger.db",
            check=False,
        )
        return json.loads(result[: result.rindex("}") + 1]) if "}" in result else {"alive": False, "cycle": {"id": 0}}

    def wait(self, true: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
        until = time.monotonic() + limit
        while time.monotonic() < until:
            if found := true():
                return found
            time.sleep(1)
        raise AssertionError(f"waited {limit:g} s for {what}\n{self.logs()}")

    def wait_state(self, job_id: int, *states: str) -> dict[str, str]:
        self.wait(lambda: self.job(job_id).get("JobState") in states, f"job {job_id} to be {' or '.join(states)}")
        return self.job(job_id)

    def cycles(self, service: str = "controller") -> int:
        return self.status(service)["cycle"]["id"] or 0

    def goes_on(self, service: str = "controller") -> bool:
        """Whether the daemon finishes two more cycles."""
        before = self.cycles(service)
        return bool(self.wait(lambda: self.cycles(service) >= before + 2, "two cycles"))
