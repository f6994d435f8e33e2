"""Slurm through pyslurm, for what it does better than the command line: setting a SiteFactor without a process.

Everything else goes through the command line: squeue takes half the time of `Jobs.load()`, and pyslurm can neither set
a SiteFactor to 0 (it takes 0 for not set) nor address an element of an array.

`import pyslurm` ends the interpreter where it finds no slurm.conf, or one of another release. So it is imported only
where it is configured, and after another process has imported it.
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
from slurmplug.config.schema import SlurmSettings

IMPORT_TEST_TIMEOUT = 30.0
_ATTRIBUTES = {"SiteFactor": "site_factor"}
"""The fields of updates that pyslurm sends, with their attributes in its JobSubmitDescription."""
_LARGEST = 2_147_483_645
_MESSAGE_LENGTH = 500
_NO_ANSWER_ERRORS = (range(-1, 2_000), range(5_000, 6_000))
"""slurm_errno.h: system errors and communication errors; all others are answers of slurmctld."""
_STANDBY = re.compile("standby", re.IGNORECASE)
"""An answer of a slurmctld that is not in charge."""

log = logging.getLogger(__name__)


def make_client(settings: SlurmSettings) -> CliClient:
    """The client that the configuration names; the command line, with an error logged, where pyslurm cannot be had."""
    if settings.client == "pyslurm":
        module = import_pyslurm(settings.conf)
        if module is not None:
            return ApiClient(module, settings.conf, settings.bin, settings.timeout)
        log.error("slurm.client is pyslurm, which cannot be imported here; the command line is used")
    return CliClient(settings.conf, settings.bin, settings.timeout)


def import_pyslurm(
    conf: Path | None, load: Callable[[str], ModuleType] = import_module, python: str = sys.executable
) -> ModuleType | None:
    """The module pyslurm, imported first by another process; None where that fails, which is logged.

    `load` and `python` are replaced by tests.
    """
    env = {**os.environ, **({"SLURM_CONF": str(conf)} if conf else {})}
    try:
        trial = subprocess.run(
            [python, "-c", "import pyslurm; pyslurm.Job, pyslurm.JobSubmitDescription, pyslurm.RPCError"],
            env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=IMPORT_TEST_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("whether pyslurm can be imported is not known: %s", error)
        return None
    if trial.returncode:
        output = trial.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"]
        log.warning("import pyslurm ends with %d: %s", trial.returncode, output[-1][:_MESSAGE_LENGTH])
        return None
    if conf:
        os.environ["SLURM_CONF"] = str(conf)
    return load("pyslurm")


class ApiClient(CliClient):
    """The command-line client, with SiteFactors set through pyslurm."""

    def __init__(self, pyslurm: Any, conf: Path | None, folder: Path | None, timeout: float) -> None:
        super().__init__(conf, folder, timeout)
        self._pyslurm = pyslurm

    def write(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """As `CliClient.write`, in order: through pyslurm where it can, and through one scontrol for those in between.

        A slurmctld that does not answer blocks each call of pyslurm for Slurm's MessageTimeout. So after the first call
        without an answer, scontrol sends the rest, within its timeout.
        """
        outcomes: list[Outcome] = []
        later: list[int] = []
        answering = True
        for at, (command, address) in enumerate(zip(commands, addresses, strict=True)):
            attributes = _attributes(command, address) if answering else None
            if attributes is None:
                later.append(at)
                continue
            outcomes += self._write_by_scontrol(commands, addresses, later)
            later = []
            outcomes.append(self._modify(command, int(address), attributes))
            answering = outcomes[-1].status != "unknown"
        return outcomes + self._write_by_scontrol(commands, addresses, later)

    def _write_by_scontrol(
        self, commands: Sequence[Command], addresses: Sequence[str], rows: Sequence[int]
    ) -> list[Outcome]:
        return super().write([commands[at] for at in rows], [addresses[at] for at in rows]) if rows else []

    def _modify(self, command: Command, job_id: int, attributes: Mapping[str, int]) -> Outcome:
        try:
            self._pyslurm.Job(job_id).modify(self._pyslurm.JobSubmitDescription(**attributes))
        except self._pyslurm.RPCError as error:
            no_answer = any(error.errno in each for each in _NO_ANSWER_ERRORS) or _STANDBY.search(str(error))
            return Outcome(command.id, "unknown" if no_answer else "refused", str(error)[:_MESSAGE_LENGTH])
        return Outcome(command.id, "done")


def _attributes(command: Command, address: str) -> dict[str, int] | None:
    """The attributes that pyslurm sets for a command, None where the command line has to do or refuse it."""
    if command.verb != "update" or not (address.isascii() and address.isdecimal()) or len(command.fields) != 1:
        return None
    name, value = next(iter(command.fields.items()))
    number = value.removeprefix("-")
    if name not in _ATTRIBUTES or not (number.isascii() and number.isdecimal()) or len(number) > 10:
        return None
    return {_ATTRIBUTES[name]: int(value)} if 0 < abs(int(value)) <= _LARGEST else None
