"""The options that name files on how a site's Slurm is set up: its slurm.conf and its limits."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from slurmplug.commands.options import with_options
from slurmplug.sim.slurm import site_conf, site_limits
from slurmplug.sim.slurm.settings import LauncherSettings
from slurmplug.sim.slurm.site_conf import SiteConf

NO_CONF = SiteConf(LauncherSettings(), "", ("all settings of slurm.conf (name it with --slurm-conf)",))
_FILE = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--slurm-conf",
        "conf_path",
        type=_FILE,
        metavar="FILE",
        help="Take nodes, priorities and backfill from this slurm.conf.",
    ),
    click.option(
        "--sacctmgr",
        "dump_path",
        type=_FILE,
        metavar="FILE",
        help="Follow the limits and shares in this file of `sacctmgr dump`.",
    ),
    click.option(
        "--qos",
        "qos_path",
        type=_FILE,
        metavar="FILE",
        help="Follow the QOS in this output of `sacctmgr --parsable2 show qos`.",
    ),
)


@dataclass(frozen=True)
class SiteFiles:
    """The files, None for one that is not named."""

    conf_path: Path | None
    dump_path: Path | None
    qos_path: Path | None

    @property
    def have_limits(self) -> bool:
        """Whether they say anything of limits of QOS or associations."""
        return bool(self.dump_path or self.qos_path)

    def read(self) -> SiteConf:
        """What they set. Raises DataError."""
        conf = site_conf.read(self.conf_path) if self.conf_path else NO_CONF
        if not self.have_limits:
            return conf
        return site_limits.with_limits(conf, site_limits.read(self.dump_path, self.qos_path))


def site_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that name the files; the command gets `site`."""

    @functools.wraps(command)
    def with_site(*, conf_path: Path | None, dump_path: Path | None, qos_path: Path | None, **others: Any) -> None:
        command(site=SiteFiles(conf_path, dump_path, qos_path), **others)

    return with_options(with_site, _OPTIONS)
