"""Options and helpers that the commands share: the configuration, the ledger, the reports, and the output."""

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

from slurmplug.config import schema
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


def split_list(listed: str) -> tuple[str, ...]:
    """The items of a comma-separated list."""
    return tuple(filter(None, (word.strip() for word in listed.split(","))))


def job_option(help_text: str) -> Callable[[Command], Command]:
    """--job with one job, as `wanted`: a JobId, or None."""
    return click.option(
        "--job",
        "wanted",
        metavar="JOBID",
        callback=lambda _context, _option, text: None if text is None else JobId.parse(text),
        help=help_text,
    )


users_option = click.option(
    "-u",
    "--user",
    "users",
    default="",
    metavar="NAMES",
    callback=lambda _context, _option, listed: split_list(listed),
    help="Only these users' jobs.",
)
jobs_option = click.option(
    "-j",
    "--jobs",
    "jobs",
    default="",
    metavar="IDS",
    callback=lambda _context, _option, listed: tuple(map(JobId.parse, split_list(listed))),
    help="Only these jobs: 12, or 12_3 of an array, or several.",
)


def ledger_options(command: Command) -> Command:
    """Adds --config and --ledger, as `config_path` and `ledger_path`."""
    ledger = click.option(
        "--ledger",
        "ledger_path",
        type=click.Path(path_type=Path),
        envvar=LEDGER_VARIABLE,
        help=f"The ledger, if not the configuration's; also {LEDGER_VARIABLE}.",
    )
    return config_option(ledger(command))


def existing_config(path: Path) -> Path:
    """The configuration's path. Raises ConfigError, which says what to do, if it cannot be accessed."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"there is no configuration {path}: name one with --config or {CONFIG_VARIABLE}") from error
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from error
    return path


def load_config(path: Path) -> Config:
    """The configuration. Raises ConfigError, which says what to do, if there is none or it is not valid."""
    return schema.load(existing_config(path))


@contextmanager
def open_ledger(config_path: Path, ledger_path: Path | None, *, readonly: bool = True) -> Iterator[Ledger]:
    """The ledger, open within the context.

    Raises:
        ConfigError, LedgerError
        UsageError: it is to be written, and another controller's daemon is active, with a ledger of its own.
    """
    if not readonly and ledger_path is None:
        require_active_controller(load_config(config_path))
    path = ledger_path or load_config(config_path).ledger.path
    if problem := _read_problem(path):
        raise LedgerError(f"the ledger {path} cannot be opened: {problem}")
    ledger = Ledger(path, readonly=readonly)
    try:
        yield ledger
    finally:
        ledger.close()


def require_active_controller(config: Config) -> None:
    """Raises UsageError if another controller's daemon is active; prints a warning if that cannot be checked."""
    if config.takeover.folder is None:
        return
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
    config = load_config(config_path) if ledger_path is None or config_path.exists() else Config()
    path = ledger_path or config.ledger.path
    if ledger_path is None and config.endpoint.url and _read_problem(path):
        yield EndpointReports(config.endpoint)
        return
    with open_ledger(config_path, ledger_path) as ledger:
        yield LedgerReports(ledger, path, config)


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


def queue_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a report of the live queue; the command gets the selected `entries`, `noheader` and
    `wants_json`."""

    @functools.wraps(command)
    def with_entries(
        *, config_path: Path, ledger_path: Path | None, jobs: tuple[JobId, ...], users: tuple[str, ...], **others: Any
    ) -> None:
        with open_reports(config_path, ledger_path) as reports:
            require_known_users(reports, users)
            entries = reports.queue(Selection(jobs=jobs, users=users, live=True))
            warn_of_dead_daemon(reports)
        command(entries=entries, **others)

    return ledger_options(jobs_option(users_option(noheader_option(json_option(with_entries)))))


def require_known_users(reports: Reports, users: Iterable[str]) -> None:
    """Raises UsageError if one of the users is not known."""
    for user in users:
        if not reports.knows_user(user):
            raise UsageError(f"Invalid user id: {printable(user)}")


def warn_of_dead_daemon(reports: Reports) -> None:
    """On a terminal, print how old the reports are if the daemon is not alive; the endpoint's daemon is alive."""
    if not isinstance(reports, LedgerReports) or not _stderr_is_terminal():
        return
    if (since := reports.dead_since(time.time())) is not None:
        click.echo(f"The daemon is not alive (slurmplug status); this is as of {times.format_time(since)}.", err=True)


def _stderr_is_terminal() -> bool:
    return sys.stderr.isatty()


def emit(lines: Iterable[str]) -> None:
    """Print lines; what the terminal's encoding lacks is escaped. click exits quietly on a closed pipe (EPIPE)."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines:
        try:
            click.echo(line.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            _discard_unwritten_output()
            raise click.ClickException(f"the output cannot be written: {error.strerror}") from error


def _discard_unwritten_output() -> None:
    """Send what stdout still buffers to /dev/null: at exit Python flushes it again, and would end with status 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def terminal_width() -> int | None:
    """The terminal's width in columns; None if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def user_and_time() -> str:
    """The user and the time, added to a reason that others will read: `(root, 2026-11-30T18:00:00)`."""
    return f"({getpass.getuser()}, {times.format_time(time.time())})"


def own_uid() -> str:
    """This process' uid in digits."""
    return str(os.getuid())


_WHERE_REPORTS_RUN = (
    "reports run on the controller, as root or in the daemon's group, or on any host with endpoint.url configured"
)
