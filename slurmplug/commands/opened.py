"""The ledger and the reports, opened for a command. What takes long to load is loaded where it is needed."""

import errno
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmplug.commands.loading import load
from slurmplug.commands.options import config_of, load_config
from slurmplug.config.schema import LEDGER_VARIABLE, Config
from slurmplug.console import times
from slurmplug.console.table import printable
from slurmplug.errors import LedgerError, NotConfirmed, UsageError
from slurmplug.ledger.owner import as_owner_of
from slurmplug.reports.interface import Reports

if TYPE_CHECKING:
    from slurmplug.cluster.user_client import UserClient
    from slurmplug.ledger.database import LedgerFile
    from slurmplug.ledger.ledger import Ledger

NOT_YOURS = (
    "that is not yours to do, as it changes what slurmplug does for everybody: root and the daemon's account can, on "
    "the controller; directives of your own jobs change with `slurmplug set`"
)
_WHERE_REPORTS_RUN = (
    "reports run on the controller, as root or in the daemon's group, or on any host with endpoint.url configured"
)
_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def open_ledger(config_path: Path, ledger_path: Path | None) -> Iterator["LedgerFile"]:
    """The ledger, open for reading within the context. Raises ConfigError, LedgerError."""
    with _read(ledger_path or load_config(config_path).ledger.path) as ledger:
        yield ledger


@contextmanager
def open_ledger_to_write(config_path: Path, ledger_path: Path | None) -> Iterator["Ledger"]:
    """The ledger, open for writing within the context.

    Raises:
        ConfigError, LedgerError
        UsageError: that is not this user's to do, or another controller's daemon is active, with a ledger of its own.
    """
    from slurmplug.ledger.ledger import Ledger  # noqa: PLC0415  what the daemon writes takes long to load

    if ledger_path is None:
        require_active_controller(load_config(config_path))
    path = ledger_path or load_config(config_path).ledger.path
    if not may_write(path):
        raise UsageError(NOT_YOURS)
    _require_readable(path)
    with as_owner_of(path.parent):
        ledger = Ledger(path)
    with closing(ledger):
        yield ledger


def require_active_controller(config: Config) -> None:
    """Raises UsageError if another controller's daemon is active; prints a warning if that cannot be checked."""
    if config.takeover.folder is None:
        return
    from slurmplug.daemon import lease  # noqa: PLC0415  it loads the client of Slurm

    try:
        host = lease.other_active_host(config.takeover.folder, socket.gethostname(), config.takeover.patience)
    except NotConfirmed as error:
        click.echo(f"cannot check whether another controller's daemon is active: {error}", err=True)
        return
    if host:
        raise UsageError(f"the daemon on {host} is active, with a ledger of its own: run this command there")


@contextmanager
def open_reports(config_path: Path, ledger_path: Path | None) -> Iterator[Reports]:
    """The reports, from the ledger, or from the daemon's endpoint if that is configured and the ledger is not here.

    Raises:
        ConfigError, LedgerError, EndpointError
    """
    with _reports(config_of(config_path, ledger_path), ledger_path) as reports:
        yield reports


def each_cluster(config_path: Path, ledger_path: Path | None, clusters: Sequence[str]) -> Iterator[tuple[str, Reports]]:
    """The reports of each of these clusters with its name; of this one, without a name, where none is given.

    Raises:
        ConfigError, LedgerError, EndpointError
        UsageError: the configuration does not have one of them.
    """
    config = config_of(config_path, ledger_path)
    if not clusters:
        with _reports(config, ledger_path) as reports:
            yield "", reports
        return
    urls = config.endpoint.clusters
    names = list(urls) if "all" in clusters else clusters
    if unknown := [name for name in names if name not in urls]:
        raise UsageError(
            f"No cluster {printable(unknown[0])!r} known: endpoint.clusters in the configuration has "
            f"{', '.join(urls) or 'none'}"
        )
    from slurmplug.endpoint.client import EndpointReports  # noqa: PLC0415

    for name in names:
        yield name, EndpointReports(config.endpoint.replaced(url=urls[name]))


def user_client(config_path: Path, ledger_path: Path | None, cluster: str) -> "UserClient":
    """Slurm's own reports, by the rights of this process' user. `cluster`: empty for the one of slurm.conf."""
    from slurmplug.cluster.user_client import UserClient  # noqa: PLC0415  most reports do without

    slurm = config_of(config_path, ledger_path).slurm
    client = UserClient(slurm.conf, slurm.bin, slurm.timeout)
    client.cluster = cluster
    return client


@contextmanager
def _reports(config: Config, ledger_path: Path | None) -> Iterator[Reports]:
    path = ledger_path or config.ledger.path
    if ledger_path is None and config.endpoint.url and _read_problem(path):
        from slurmplug.endpoint.client import EndpointReports  # noqa: PLC0415  one of the two is needed

        yield EndpointReports(config.endpoint)
        return
    with _no_threads_of_numpy():
        load("slurmplug.reports.service")
        from slurmplug.reports.service import LedgerReports  # noqa: PLC0415

    with _read(path) as ledger:
        yield LedgerReports(ledger, path, config)


@contextmanager
def _read(path: Path) -> Iterator["LedgerFile"]:
    with _no_threads_of_numpy():
        load("slurmplug.ledger.database")
        from slurmplug.ledger.database import LedgerFile  # noqa: PLC0415

    _require_readable(path)
    with as_owner_of(path.parent):
        ledger = LedgerFile(path, readonly=True)
    with closing(ledger):
        yield ledger


def _require_readable(path: Path) -> None:
    if problem := _read_problem(path):
        raise LedgerError(f"the ledger {path} cannot be opened: {problem}")


@contextmanager
def _no_threads_of_numpy() -> Iterator[None]:
    """NumPy that is loaded within starts no threads for linear algebra, of which reports have no use: 0.1 s.

    OpenBLAS reads the variable when it is loaded; no program that the command starts gets it.
    """
    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_THREADS]


def may_write(path: Path) -> bool:
    """Whether this process' user may write the ledger, or make it where there is none."""
    return os.geteuid() == 0 or any(os.access(each, os.W_OK, effective_ids=True) for each in (path, path.parent))


def _read_problem(path: Path) -> str:
    """Why the ledger cannot be read, and what to do; empty if it can."""
    try:
        path.stat()
    except PermissionError as error:
        return f"{error.strerror}; {_WHERE_REPORTS_RUN}"
    except OSError as error:
        return f"{error.strerror}; has the daemon run? Name another ledger with --ledger or {LEDGER_VARIABLE}"
    may = os.access(path, os.R_OK, effective_ids=True)
    return "" if may else f"{os.strerror(errno.EACCES)}; {_WHERE_REPORTS_RUN}"


def require_known_users(reports: Reports, users: Iterable[str]) -> None:
    """Raises UsageError if one of the users is not known."""
    for user in users:
        if not reports.knows_user(user):
            raise UsageError(f"Invalid user id: {printable(user)}")


def warn_of_dead_daemon(reports: Reports) -> None:
    """On a terminal, print how old the reports are if the daemon is not alive."""
    if stderr_is_terminal() and (warning := dead_daemon(reports)):
        click.echo(warning, err=True)


def dead_daemon(reports: Reports) -> str:
    """How old the reports are, if the daemon is not alive; else empty. The endpoint's daemon is alive."""
    since = reports.dead_since(time.time())
    if since is None:
        return ""
    return f"The daemon is not alive (slurmplug status); this is as of {times.format_time(since)}."


def stderr_is_terminal() -> bool:
    """Whether somebody reads what is not part of the report."""
    return sys.stderr.isatty()
