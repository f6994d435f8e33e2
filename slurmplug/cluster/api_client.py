"""Slurm through pyslurm, for what it does better than the command line: setting SiteFactors without a process for it.

Everything else goes through the command line: squeue reads a queue in less time, and pyslurm cannot address an element
of an array.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Command, Outcome, Site
from slurmplug.cluster.pyslurm_process import PyslurmProcess, SiteFactorWrite
from slurmplug.config.schema import SlurmSettings

_LARGEST = 2_147_483_645


def make_client(settings: SlurmSettings) -> CliClient:
    """The client that the configuration names."""
    kind = ApiClient if settings.client == "pyslurm" else CliClient
    return kind(settings.conf, settings.bin, settings.timeout)


class ApiClient(CliClient):
    """The command-line client, with SiteFactors set through pyslurm while that works."""

    def __init__(self, conf: Path | None, folder: Path | None, timeout: float) -> None:
        super().__init__(conf, folder, timeout)
        self.pyslurm = PyslurmProcess(conf)
        self._last_site: Site | None = None

    def site(self) -> Site:
        """As `CliClient.site`; pyslurm has to work with what this returned last."""
        self._last_site = super().site()
        return self._last_site

    def ready(self, timeout: float = 0.0) -> bool:
        """Whether pyslurm is proven to work; `timeout`: seconds to wait for that. Raises ReadFailed."""
        return self.pyslurm.ready(self._last_site or self.site(), timeout)

    def prepare(self) -> None:
        """Start pyslurm and look for its proof, so that the log says whether it works before anything is written."""
        if self._last_site is not None:
            self.ready()

    def write(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """As `CliClient.write`, in order: SiteFactors alone by pyslurm, and what that did not do by scontrol.

        A batch with anything else goes whole through the one scontrol that this takes anyway.
        """
        changes = [_site_factor_write(command, address) for command, address in zip(commands, addresses, strict=True)]
        ours = [change for change in changes if change is not None]
        outcomes: list[Outcome] = []
        if self._last_site is not None and ours and len(ours) == len(changes) and self.ready():
            answers = self.pyslurm.write(ours, lambda: time.monotonic() < self._until)
            outcomes = [Outcome(each.id, *answer) for each, answer in zip(commands, answers, strict=False)]
        done = len(outcomes)
        return outcomes + (super().write(commands[done:], addresses[done:]) if done < len(commands) else [])


def _site_factor_write(command: Command, address: str) -> SiteFactorWrite | None:
    """The change that pyslurm makes for a command; None where the command line has to do or refuse it."""
    if command.verb != "update" or not _is_number(address) or command.fields.keys() != {"SiteFactor"}:
        return None
    value = command.fields["SiteFactor"]
    if not _is_number(value.removeprefix("-")) or abs(int(value)) > _LARGEST:
        return None
    return SiteFactorWrite(int(address), int(value))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
