"""The real daemon beside a sandbox, as the operator's account, with a ledger of its own."""

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurmplug.ledger.ledger import Ledger
from slurmplug.sandbox import Sandbox
from slurmplug.sandbox.errors import WaitTimeout
from tests.live.chosen import CLIENT

SLURMPLUG = str(Path(sys.executable).with_name("slurmplug"))
TRAIN = """#!/bin/sh
#SBATCH --gres=gpu:{gpus}
{lines}
exec {python} -c '
import signal, sys, time
from slurmplug import report
for i in range(1, {iterations} + 1):
    time.sleep({seconds})
    told = report(iteration=i, loss=1 / i, accuracy=1 - 1 / (1 + i))
    if told and {obey}:
        sys.exit(0)
'
"""


def training(lines: str = "", *, gpus: int = 4, iterations: int = 400, seconds: float = 0.2, obey: bool = True) -> str:
    """A script whose accuracy is 1 - 1 / (1 + iteration); `lines` are its directives."""
    return TRAIN.format(
        lines=lines, gpus=gpus, iterations=iterations, seconds=seconds, obey=obey, python=sys.executable
    )


class DaemonProcess:
    """`slurmplug daemon` and what it wrote."""

    def __init__(self, cluster: Sandbox, folder: Path) -> None:
        self.cluster = cluster
        self.config, self.ledger_path, self.log = folder / "slurmplug.toml", folder / "ledger.db", folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._logged_before = 0
        """bytes of the log that are of an earlier start"""
        self.wrapper: Sequence[str] = ()
        """a command, run by root, that runs the daemon: its last words are the daemon's command line"""
        self.program: Sequence[str] = (SLURMPLUG, "daemon", "--config")
        """the daemon's command line, without the path of the configuration"""
        self.environment: Mapping[str, str] = {}
        """added to the operator's"""

    def configure(self, settings: str = "", policy: str = "mlfs") -> None:
        """Write the configuration: in act mode every second, with `settings` (TOML, tables) added."""
        conf = self.cluster.env(self.cluster.operator)["SLURM_CONF"]
        mode = "" if "[mode]" in settings else '[mode]\ndefault = "act"\n'
        self.config.write_text(
            f'interval = 1\npolicy = "{policy}"\n{mode}[slurm]\nconf = "{conf}"\nclient = "{CLIENT}"\n'
            f'[spool]\npath = "{self.cluster.spool}"\n[ledger]\npath = "{self.ledger_path}"\n{settings}\n'
        )

    def start(self, settings: str = "", policy: str = "mlfs") -> None:
        """Start it and wait for its first cycle."""
        self.configure(settings, policy)
        operator = self.cluster.operator
        become = ["setpriv", f"--reuid={operator}", f"--regid={operator}", "--clear-groups"]
        with self.log.open("ab") as log:
            self._logged_before = log.tell()
            self.process = subprocess.Popen(
                [*self.wrapper, *become, *self.program, str(self.config)],
                env={**self.cluster.env(operator), **self.environment}, stdout=log, stderr=log,
            )  # fmt: skip
        before = self.cycles() if self.ledger_path.exists() else 0
        try:
            self.cluster.wait(lambda: self._serves() and self.cycles() > before, 120, "a cycle")
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}; the daemon's log:\n{self.log.read_text()}") from None

    def _serves(self) -> bool:
        """Its first line is logged when the ledger has been made; the endpoint's when its process listens."""
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon has ended:\n{self.log.read_text()}"
        logged = self.log.read_bytes()[self._logged_before :]
        wants_endpoint = tomllib.loads(self.config.read_text()).get("endpoint", {}).get("listen")
        return (not wants_endpoint or b"reports are served on" in logged) and b"a cycle every" in logged

    def cycles(self) -> int:
        """How many were begun and finished."""
        return int(self.query("SELECT count(finished) AS n FROM cycles")[0]["n"])

    def pass_cycles(self, count: int = 2) -> None:
        """Wait until so many more cycles are finished: whatever holds now has been seen and acted on."""
        until = self.cycles() + count
        self.cluster.wait(lambda: self.cycles() >= until, what=f"{count} cycles")

    def query(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        ledger = Ledger(self.ledger_path, readonly=True)
        try:
            return ledger.query(sql, *parameters)
        finally:
            ledger.close()

    def operation(self, job_id: int) -> dict[str, Any]:
        """The operation on a job, empty before there is one."""
        found = self.query("SELECT operations.* FROM operations JOIN jobs ON jobs.id = job WHERE job_id = ?", job_id)
        return found[0] if found else {}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another subcommand as the operator."""
        return self.cluster.run(
            self.cluster.operator,
            [SLURMPLUG, *arguments],
            env={"SLURMPLUG_CONFIG": str(self.config), **self.environment},
            check=False,
        )

    def signal(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(30)
        self.process = None
        return status


@contextmanager
def daemon_beside(cluster: Sandbox) -> Iterator[DaemonProcess]:
    """A daemon, not yet started, in a folder that its account owns; ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="daemon-", dir="/tmp") as name:
        account = pwd.getpwnam(cluster.operator)
        os.chown(name, account.pw_uid, account.pw_gid)
        one = DaemonProcess(cluster, Path(name))
        try:
            yield one
        finally:
            if one.process is not None:
                one.signal(signal.SIGKILL)


def site_factors(cluster: Sandbox) -> dict[int, int]:
    """The SiteFactor of each pending job, as Slurm itself says (sprio)."""
    lines = cluster.run("root", ["sprio", "-h", "-o", "%i %S"]).stdout.splitlines()
    return {int(job_id): int(factor) for job_id, factor in map(str.split, lines)}
