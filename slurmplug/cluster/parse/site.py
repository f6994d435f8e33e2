"""What decisions depend on in the output of `scontrol show config`. Pure."""

import hashlib
import re

from slurmplug.cluster.parse.table import timestamp
from slurmplug.cluster.port import Site
from slurmplug.errors import ReadFailed

_SETTING = re.compile(r"^(\w+)\s*= (.*?)\s*$", re.MULTILINE)


_CHANGING = re.compile(r"^(?:Configuration data as of|NEXT_JOB_ID|Slurmctld\().*", re.MULTILINE)
"""Lines that are another time's without another start or configuration of slurmctld."""


def identity(text: str) -> str:
    """What `scontrol show config` prints, as long as slurmctld has neither been started again nor reconfigured."""
    return hashlib.sha256(_CHANGING.sub("", text).encode()).hexdigest()


def enforces_limits(text: str) -> bool:
    """Whether what `scontrol show config` prints says that limits are enforced, or does not say."""
    enforced = dict(reversed(_SETTING.findall(text))).get("AccountingStorageEnforce")
    return enforced is None or bool({"limits", "safe", "all"} & set(enforced.lower().split(",")))


def site(text: str) -> Site:
    """What `scontrol show config` prints of the site. Raises ReadFailed where it lacks a setting."""
    settings = dict(reversed(_SETTING.findall(text)))
    try:
        return Site(
            cluster=settings["ClusterName"],
            version=settings["SLURM_VERSION"],
            booted=timestamp(settings["BOOT_TIME"]),
            identity=identity(text),
        )
    except (KeyError, ValueError, OverflowError) as error:
        raise ReadFailed(f"scontrol show config prints no {error}") from error
