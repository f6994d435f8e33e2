"""`slurmplug set`: changes directives of a job after its submission."""

import os
import pwd
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import click

from slurmplug.cluster.site_client import SiteClient
from slurmplug.commands.opened import open_ledger_to_write
from slurmplug.commands.options import emit, ledger_options, load_config
from slurmplug.config.schema import Config
from slurmplug.directives.grammar import TABLE
from slurmplug.endpoint.client import EndpointReports
from slurmplug.errors import ConfigError, UsageError
from slurmplug.ledger.directive_changes import Author, ChangeRequest, make_change
from slurmplug.ledger.selection import JobId
from slurmplug.reports import requested


def _directive_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds an option for each directive; those that cannot change are hidden, as they are refused with the reason."""
    for row in reversed(TABLE):
        option = click.option(
            f"--{row.name}", row.name.replace("-", "_"), metavar="VALUE", help=row.expected, hidden=bool(row.fixed)
        )
        command = option(command)
    return command


@click.command(short_help="Change directives of a job that waits or runs.")
@click.argument("job", metavar="JOBID")
@_directive_options
@ledger_options
def set(*, job: str, config_path: Path, ledger_path: Path | None, **directives: str | None) -> None:
    """Change directives of JOBID (12, or 12_3 of an array) that waits or runs, from the next cycle on.

    An empty value, as in --deadline=, takes a directive back to what the script says. A span counts from now. Users
    change their own jobs; operators, and root on the controller, all jobs.
    """
    written = tuple(f"--{name.replace('_', '-')}={value}" for name, value in directives.items() if value is not None)
    request = ChangeRequest(JobId.parse(job), written, secrets.token_hex(16))
    emit(_change(request, config_path, ledger_path))


def _change(request: ChangeRequest, config_path: Path, ledger_path: Path | None) -> list[str]:
    """Make the change, in the ledger if this process may write it, else through the daemon's endpoint."""
    config = load_config(config_path) if ledger_path is None or config_path.exists() else Config()
    path = ledger_path or config.ledger.path
    directly = ledger_path is not None or os.access(path, os.W_OK, effective_ids=True)
    if directly or (os.geteuid() == 0 and not config.endpoint.url):
        with open_ledger_to_write(config_path, ledger_path) as ledger:
            return requested.changed_sentences(make_change(ledger, request, _operator(), time.time()), config.interval)
    if not config.endpoint.url:
        raise UsageError(
            "directives change through the daemon's endpoint, and endpoint.url is not set in the configuration "
            f"{config_path}: ask an operator, who can change them as root on the controller"
        )
    named = ChangeRequest(request.job, request.written, request.id, _cluster(config))
    return EndpointReports(config.endpoint).change_directives(named)


def _operator() -> Author:
    """This process' user, who may write the ledger."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Author(uid, user, operator=True, sees_all=True)


def _cluster(config: Config) -> str:
    """The cluster's name. Raises ConfigError, ReadFailed."""
    slurm = config.slurm
    name = config.cluster or SiteClient(slurm.conf, slurm.bin, slurm.timeout).slurm_conf().values.get("ClusterName", "")
    if not name:
        raise ConfigError("slurm.conf names no cluster: set `cluster` in the configuration")
    return name
