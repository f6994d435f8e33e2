"""Options and helpers that the commands share: the configuration, what is selected, and the output."""

import errno
import functools
import getpass
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from slurmplug.config import schema
from slurmplug.config.schema import CONFIG_VARIABLE, DEFAULT_PATH, LEDGER_VARIABLE, Config
from slurmplug.console import times
from slurmplug.errors import ConfigError
from slurmplug.ledger.selection import JobId

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


clusters_option = click.option(
    "-M",
    "--clusters",
    "--cluster",
    "clusters",
    default="",
    metavar="NAMES",
    callback=lambda _context, _option, listed: split_list(listed),
    help="These clusters, of endpoint.clusters in the configuration; all.",
)


def with_options(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """The command with these options and arguments, which --help lists in this order."""
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


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


def config_of(config_path: Path, ledger_path: Path | None) -> Config:
    """The configuration; its defaults, where a ledger is named and there is no file. Raises ConfigError."""
    return load_config(config_path) if ledger_path is None or config_path.exists() else Config()


def emit(lines: Iterable[str]) -> None:
    """Print lines; what the terminal's encoding lacks is escaped. click exits quietly on a closed pipe (EPIPE)."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in ["\n".join(lines)] if isinstance(lines, list) and lines else lines:
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
    return f"({user_name()}, {times.format_time(time.time())})"


def user_name() -> str:
    """The user's name; the uid in digits, where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return own_uid()


def own_uid() -> str:
    """This process' uid in digits."""
    return str(os.getuid())
