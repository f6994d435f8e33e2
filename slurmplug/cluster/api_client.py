"""Slurm by pyslurm, for what it does better than the command line: writing a priority, without a process.

Everything else is the command line's, which it is: reading the queue takes squeue half the time of `Jobs.load()`, and
pyslurm cannot send SiteFactor=0 (it takes 0 for not set), nor address an element of an array.

`import pyslurm` ends the interpreter where no slurm.conf is found, or one of another release. So it is imported only
where it is configured and another process has just shown that it can be.
"""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Command, Outcome
from slurmplug.config.schema import Slurm

PROOF_TIMEOUT = 30.0
_WRITES = {"SiteFactor": "site_factor"}
"""What is sent by pyslurm, and the attribute of its JobSubmitDescription."""
_LIMIT = 2_147_483_645
_MESSAGE = 500
_UNANSWERED = (range(-1, 2_000), range(5_000, 6_000))
"""slurm_errno.h: the system's errors and those of the way to slurmctld; all others are answers."""
_STANDBY = re.compile("standby", re.IGNORECASE)
"""An answer of a slurmctld that is not in charge."""

log = logging.getLogger(__name__)


def client(settings: Slurm) -> CliClient:
    """The client that the configuration names; the command line where pyslurm is not to be had, which is logged."""
    if settings.client == "pyslurm":
        module = imported(settings.conf)
        if module is not None:
            return ApiClient(module, settings.conf, settings.bin, settings.timeout)
        log.error("slurm.client is pyslurm, which cannot be imported here; the command line is used")
    return CliClient(settings.conf, settings.bin, settings.timeout)


def imported(
    conf: Path | None, load: Callable[[str], ModuleType] = import_module, python: str = sys.executable
) -> ModuleType | None:
    """pyslurm, proven in another process first; None where it cannot be imported."""
    env = {**os.environ, **({"SLURM_CONF": str(conf)} if conf else {})}
    try:
        proof = subprocess.run(
            [python, "-c", "import pyslurm; pyslurm.Job, pyslurm.JobSubmitDescription, pyslurm.RPCError"],
            env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROOF_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("whether pyslurm can be imported is not known: %s", error)
        return None
    if proof.returncode:
        said = proof.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        log.warning("import pyslurm ends with %d: %s", proof.returncode, said[-1][:_MESSAGE])
        return None
    if conf:
        os.environ["SLURM_CONF"] = str(conf)
    return load("pyslurm")


class ApiClient(CliClient):
    """The command line, with priorities written by pyslurm."""

    def __init__(self, pyslurm: Any, conf: Path | None, folder: Path | None, timeout: float) -> None:
        super().__init__(conf, folder, timeout)
        self._pyslurm = pyslurm

    def write(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """As `CliClient.write`, in order: runs of what pyslurm can do by it, and those between by one scontrol each.

        A slurmctld that does not answer holds each call for Slurm's MessageTimeout. So after the first one that is not
        answered the others go by scontrol, whose time has a limit.
        """
        outcomes: list[Outcome] = []
        rest: list[int] = []
        answers = True
        for at, (command, address) in enumerate(zip(commands, addresses, strict=True)):
            changes = _changes(command, address) if answers else None
            if changes is None:
                rest.append(at)
                continue
            outcomes += self._by_scontrol(commands, addresses, rest)
            rest = []
            outcomes.append(self._modify(command, int(address), changes))
            answers = outcomes[-1].status != "unknown"
        return outcomes + self._by_scontrol(commands, addresses, rest)

    def _by_scontrol(self, commands: Sequence[Command], addresses: Sequence[str], rows: Sequence[int]) -> list[Outcome]:
        return super().write([commands[at] for at in rows], [addresses[at] for at in rows]) if rows else []

    def _modify(self, command: Command, job_id: int, changes: Mapping[str, int]) -> Outcome:
        try:
            self._pyslurm.Job(job_id).modify(self._pyslurm.JobSubmitDescription(**changes))
        except self._pyslurm.RPCError as error:
            unanswered = any(error.errno in each for each in _UNANSWERED) or _STANDBY.search(str(error))
            return Outcome(command.id, "unknown" if unanswered else "refused", str(error)[:_MESSAGE])
        return Outcome(command.id, "done")


def _changes(command: Command, address: str) -> dict[str, int] | None:
    """What pyslurm is to set, None where that is the command line's to do or to refuse."""
    if command.verb != "update" or not (address.isascii() and address.isdecimal()) or len(command.fields) != 1:
        return None
    name, value = next(iter(command.fields.items()))
    number = value.removeprefix("-")
    if name not in _WRITES or not (number.isascii() and number.isdecimal()) or len(number) > 10:
        return None
    return {_WRITES[name]: int(value)} if 0 < abs(int(value)) <= _LIMIT else None
