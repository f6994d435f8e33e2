"""What Slurm reports about the site rather than its jobs: slurm.conf, who may do what, which controllers answer.

For `doctor`, the endpoint and the standby, which read it seldom.
"""

import re
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.parse.site import identity
from slurmplug.errors import ReadFailed

_SETTING = re.compile(r"^([A-Za-z_]\w*(?:\[\d+\])?)\s*=\s*(.*?)\s*$", re.MULTILINE)
_AS_OF = re.compile(r"^Configuration data as of (\d+)$", re.MULTILINE)
_CONTROLLER = re.compile(r"^Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)", re.MULTILINE)
_SIBLING = re.compile(r"^Sibling:\s+([^\s:]+)", re.MULTILINE)
_PRIVATE = re.compile(r"^PrivateData\s*=\s*(\S+)", re.MULTILINE)
_LEVELS = frozenset({"None", "Operator", "Administrator"})

PROGRAMS = ("squeue", "sinfo", "scontrol", "scancel", "sprio", "sacct", "sacctmgr")
"""of Slurm, that the daemon calls"""


class SlurmConf(NamedTuple):
    """slurm.conf as slurmctld has it, and its time then: seconds since the epoch, None where it reports none.

    identity: as `Site.identity`.
    """

    values: Mapping[str, str]
    as_of: float | None
    identity: str


class Controller(NamedTuple):
    """A controller of SlurmctldHost; `role` is primary, backup, backup1, ..."""

    role: str
    host: str
    up: bool


class SiteClient(CliClient):
    """What scontrol, sacctmgr and sinfo report about the site."""

    def slurm_conf(self) -> SlurmConf:
        """The configuration that slurmctld runs with. Raises ReadFailed."""
        return parse_slurm_conf(self._config())

    def admin_levels(self) -> Mapping[str, str]:
        """By user: None, Operator or Administrator; of the users that this one may see. Raises ReadFailed."""
        return parse_admin_levels(
            self._query("sacctmgr", "--noheader", "--parsable2", "show", "user", "format=User,AdminLevel")
        )

    def private_data(self) -> frozenset[str]:
        """The words of PrivateData in slurm.conf and in slurmdbd.conf together. Raises ReadFailed."""
        slurmctld = self.slurm_conf().values.get("PrivateData", "none")
        slurmdbd = self._query("sacctmgr", "show", "configuration")
        return parse_private_data([slurmctld, *_PRIVATE.findall(slurmdbd)])

    def controllers(self) -> tuple[Controller, ...]:
        """The controllers, the primary first. Raises ReadFailed where scontrol lists none."""
        answer = self._run_to_end(["scontrol", "ping"], subprocess.PIPE)  # it exits 1 where one is down
        found = parse_controllers(answer.stdout.decode("utf-8", "replace"))
        if not found:
            raise ReadFailed("scontrol ping lists no controller")
        return found

    def node_hosts(self) -> frozenset[str]:
        """The host names of the nodes. Raises ReadFailed."""
        answer = self._query("sinfo", "--noheader", "--all", "--Node", "-O", "NodeHost:|")
        return frozenset(host.strip() for host in answer.split("|")) - {""}

    def federation_siblings(self) -> tuple[str, ...]:
        """The other clusters of the federation that this one is a member of; none without one. Raises ReadFailed."""
        return parse_federation_siblings(self._query("scontrol", "show", "federation"))


def parse_federation_siblings(text: str) -> tuple[str, ...]:
    """The other members in the output of `scontrol show federation`."""
    return tuple(_SIBLING.findall(text))


def parse_slurm_conf(text: str) -> SlurmConf:
    """The output of `scontrol show config` with SLURM_TIME_FORMAT=%s. The first of two lines with one name counts."""
    as_of = _AS_OF.search(text)
    return SlurmConf(dict(reversed(_SETTING.findall(text))), float(as_of[1]) if as_of else None, identity(text))


def parse_admin_levels(text: str) -> dict[str, str]:
    """By user, of the output of `sacctmgr --noheader --parsable2 show user format=User,AdminLevel`."""
    rows = (line.rpartition("|") for line in text.splitlines())
    return {user: level for user, bar, level in rows if bar and level in _LEVELS}


def parse_private_data(values: list[str]) -> frozenset[str]:
    """The words in several values of PrivateData; one may be `all`."""
    return frozenset(word for value in values for word in value.lower().split(",")) - {"none", "(null)", ""}


def parse_controllers(text: str) -> tuple[Controller, ...]:
    """The controllers in the output of `scontrol ping`."""
    return tuple(Controller(role, host, state == "UP") for role, host, state in _CONTROLLER.findall(text))
