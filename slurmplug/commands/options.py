"""What the reports' commands share: where the ledger is, and how lines leave."""

import errno
import functools
import getpass
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from slurmplug.config import schema as configuration
from slurmplug.config.schema import CONFIG_VARIABLE, DEFAULT_PATH, LEDGER_VARIABLE, Config
from slurmplug.console import times
from slurmplug.console.table import printable
from slurmplug.daemon import lease
from slurmplug.endpoint.client import EndpointReports
from slurmplug.errors import ConfigError, LedgerError, NotConfirmed, UsageError
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.service import LedgerReports, Reports

Command = TypeVar("Command", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar=CONFIG_VARIABLE,
    default=DEFAULT_PATH,
    show_default=True,
    help=f"The configuration file; also {CONFIG_VARIABLE}.",
)
noheader_option = click.option("-n", "--noheader", is_flag=True, help="No heading.")
json_option = click.option(
    "--json", "wants_json", is_flag=True, help="JSON: numbers as numbers, times in seconds since the epoch."
)


def words(listed: str) -> tuple[str, ...]:
    """The items of a comma-separated list."""
    return tuple(filter(None, (word.strip() for word in listed.split(","))))


users_option = click.option(
    "-u",
    "--user",
    "users",
    default="",
    metavar="NAMES",
    callback=lambda _context, _option, listed: words(listed),
    help="Only these users' jobs.",
)
jobs_option = click.option(
    "-j",
    "--jobs",
    "jobs",
    default="",
    metavar="IDS",
    callback=lambda _context, _option, listed: tuple(map(JobId.parse, words(listed))),
    help="Only these jobs: 12, or 12_3 of an array, or several.",
)


def ledger_options(command: Command) -> Command:
    """--config and --ledger, as `config_path` and `ledger_path`."""
    ledger = click.option(
        "--ledger",
        "ledger_path",
        type=click.Path(path_type=Path),
        envvar=LEDGER_VARIABLE,
        help=f"The ledger, where it is not the configuration's; also {LEDGER_VARIABLE}.",
    )
    return config_option(ledger(command))


def there(path: Path) -> Path:
    """The configuration's path, with a hint where there is no such file."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"there is no configuration {path}: name one with --config or {CONFIG_VARIABLE}") from error
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from error
    return path


def configured(path: Path) -> Config:
    """The configuration, with a hint where there is none."""
    return configuration.load(there(path))


@contextmanager
def opened(config_path: Path, ledger_path: Path | None, *, readonly: bool = True) -> Iterator[Ledger]:
    """The ledger, for as long as it is needed.

    Raises:
        ConfigError, LedgerError
        UsageError: it is to be written, and the daemon of another controller acts, by a ledger of its own.
    """
    if not readonly and ledger_path is None:
        require_here(configured(config_path))
    path = ledger_path or configured(config_path).ledger.path
    if problem := _unreadable(path):
        raise LedgerError(f"the ledger {path} cannot be opened: {problem}")
    ledger = Ledger(path, readonly=readonly)
    try:
        yield ledger
    finally:
        ledger.close()


def require_here(config: Config) -> None:
    """Raises UsageError where the daemon of another controller acts; that this cannot be told is only said."""
    if config.takeover.folder is None:
        return
    try:
        host = lease.elsewhere(config.takeover.folder, socket.gethostname(), config.takeover.patience)
    except NotConfirmed as error:
        click.echo(f"whether the daemon of another controller acts is not known: {error}", err=True)
        return
    if host:
        raise UsageError(f"the daemon on {host} acts, by a ledger of its own: say it there")


@contextmanager
def opened_reports(config_path: Path, ledger_path: Path | None) -> Iterator[Reports]:
    """The reports, from the ledger, or from the daemon's endpoint where that is configured and no ledger is here.

    Raises:
        ConfigError, LedgerError, EndpointError
    """
    config = configured(config_path) if ledger_path is None or config_path.exists() else Config()
    path = ledger_path or config.ledger.path
    if ledger_path is None and config.endpoint.url and _unreadable(path):
        yield EndpointReports(config.endpoint)
        return
    with opened(config_path, ledger_path) as ledger:
        yield LedgerReports(ledger, path, config)


def _unreadable(path: Path) -> str:
    """Why it cannot be read, and what to do; empty where it can."""
    try:
        path.stat()
    except PermissionError as error:
        return f"{error.strerror}; {_WHO_READS}"
    except OSError as error:
        return f"{error.strerror}; has the daemon run? --ledger or {LEDGER_VARIABLE} names another"
    may = os.access(path, os.R_OK, effective_ids=True)
    return "" if may else f"{os.strerror(errno.EACCES)}; {_WHO_READS}"


def of_the_queue(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a report of the live queue: it gets the `entries` selected, `noheader` and `wants_json`."""

    @functools.wraps(command)
    def with_entries(
        *, config_path: Path, ledger_path: Path | None, jobs: tuple[JobId, ...], users: tuple[str, ...], **others: Any
    ) -> None:
        with opened_reports(config_path, ledger_path) as reports:
            require_users(reports, users)
            entries = reports.queue(Selection(jobs=jobs, users=users, live=True))
            warn_of_dead_daemon(reports)
        command(entries=entries, **others)

    return ledger_options(jobs_option(users_option(noheader_option(json_option(with_entries)))))


def require_users(reports: Reports, users: Iterable[str]) -> None:
    """Raises UsageError where one of them is nobody."""
    for user in users:
        if not reports.knows_user(user):
            raise UsageError(f"Invalid user id: {printable(user)}")


def warn_of_dead_daemon(reports: Reports) -> None:
    """Say on a terminal how old the reports are, where the daemon is not alive; an endpoint is the daemon's own."""
    if not isinstance(reports, LedgerReports) or not _somebody_reads():
        return
    if (since := reports.dead_since(time.time())) is not None:
        click.echo(f"The daemon is not alive (slurmplug status); this is as of {times.shown(since)}.", err=True)


def _somebody_reads() -> bool:
    return sys.stderr.isatty()


def emit(lines: Iterable[str]) -> None:
    """Print; what the terminal's encoding cannot say is escaped. Where nobody reads on, click ends it quietly."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines:
        try:
            click.echo(line.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            _discard_unwritten_output()
            raise click.ClickException(f"the answer cannot be written: {error.strerror}") from error


def _discard_unwritten_output() -> None:
    """Send what stdout still buffers to /dev/null: at exit Python flushes it again, and would end with status 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def terminal_width() -> int | None:
    """In columns; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def by_whom() -> str:
    """Who runs this command, and when: for what others will read."""
    return f"({getpass.getuser()}, {times.shown(time.time())})"


def own_uid() -> str:
    """In digits."""
    return str(os.getuid())


_WHO_READS = (
    "reports run on the controller, as root or in the daemon's group, or anywhere where endpoint.url is configured"
)
