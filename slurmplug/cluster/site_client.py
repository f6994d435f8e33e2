"""What Slurm says of itself rather than of its jobs: its settings, who may do what, which controllers answer.

Asked by `doctor`, the endpoint and the standby, each seldom.
"""

import re
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from slurmplug.cluster.cli_client import CliClient
from slurmplug.errors import ReadFailed

_SETTING = re.compile(r"^([A-Za-z_]\w*(?:\[\d+\])?)\s*=\s*(.*?)\s*$", re.MULTILINE)
_AS_OF = re.compile(r"^Configuration data as of (\d+)$", re.MULTILINE)
_CONTROLLER = re.compile(r"^Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)", re.MULTILINE)
_PRIVATE = re.compile(r"^PrivateData\s*=\s*(\S+)", re.MULTILINE)
_LEVELS = frozenset({"None", "Operator", "Administrator"})


class Settings(NamedTuple):
    """slurm.conf as slurmctld has it; `as_of`: its clock when it said so, seconds since the epoch, None if untold."""

    values: Mapping[str, str]
    as_of: float | None


class Controller(NamedTuple):
    """One of SlurmctldHost, in their order; `role`: primary, backup, backup1, ..."""

    role: str
    host: str
    up: bool


class SiteClient(CliClient):
    """scontrol, sacctmgr and sinfo, asked about the site."""

    def settings(self) -> Settings:
        """Raises ReadFailed."""
        return settings(self._ask("scontrol", "show", "config"))

    def admin_levels(self) -> Mapping[str, str]:
        """By user: None, Operator or Administrator; of those users whom this one may see. Raises ReadFailed."""
        return admin_levels(
            self._ask("sacctmgr", "--noheader", "--parsable2", "show", "user", "format=User,AdminLevel")
        )

    def private_data(self) -> frozenset[str]:
        """What PrivateData of slurm.conf and of slurmdbd.conf hides, together. Raises ReadFailed."""
        told = self.settings().values.get("PrivateData", "none")
        answer = self._ask("sacctmgr", "show", "configuration")
        return private_data([told, *_PRIVATE.findall(answer)])

    def controllers(self) -> tuple[Controller, ...]:
        """Which answer, the primary first. Raises ReadFailed where scontrol tells of none."""
        told = self._answered(["scontrol", "ping"], subprocess.PIPE)  # it exits 1 where one is down
        found = controllers(told.stdout.decode("utf-8", "replace"))
        if not found:
            raise ReadFailed("scontrol ping tells of no controller")
        return found

    def node_hosts(self) -> frozenset[str]:
        """The machines of the nodes. Raises ReadFailed."""
        answer = self._ask("sinfo", "--noheader", "--all", "--Node", "-O", "NodeHost:|")
        return frozenset(host.strip() for host in answer.split("|")) - {""}


def settings(text: str) -> Settings:
    """Of `scontrol show config` with SLURM_TIME_FORMAT=%s. The first of two lines with one name counts."""
    as_of = _AS_OF.search(text)
    return Settings(dict(reversed(_SETTING.findall(text))), float(as_of[1]) if as_of else None)


def admin_levels(text: str) -> dict[str, str]:
    """Of `sacctmgr --noheader --parsable2 show user format=User,AdminLevel`."""
    rows = (line.rpartition("|") for line in text.splitlines())
    return {user: level for user, bar, level in rows if bar and level in _LEVELS}


def private_data(told: list[str]) -> frozenset[str]:
    """The words of several PrivateData values; `all` stands for each."""
    return frozenset(word for value in told for word in value.lower().split(",")) - {"none", "(null)", ""}


def controllers(text: str) -> tuple[Controller, ...]:
    """Of `scontrol ping`."""
    return tuple(Controller(role, host, state == "UP") for role, host, state in _CONTROLLER.findall(text))
