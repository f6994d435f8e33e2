"""`slurmplug submit`: checks a script's directives, shows what is known of the job, and hands it to sbatch."""

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from slurmplug.cluster.submission import become_sbatch
from slurmplug.commands.expected import Expected, expected, head_of
from slurmplug.commands.opened import open_reports
from slurmplug.commands.options import config_of, ledger_options
from slurmplug.config.schema import Config
from slurmplug.console.table import counted, printable
from slurmplug.directives.parser import Directives, parse
from slurmplug.errors import ConfigError, SlurmplugError, UsageError
from slurmplug.reports.interface import Reports


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("rest", metavar="[SBATCH OPTIONS]... [-- SCRIPT ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
@ledger_options
def submit(*, script: Path, rest: tuple[str, ...], config_path: Path, ledger_path: Path | None) -> None:
    """Check the directives of SCRIPT, show what is known of the job, and submit it by sbatch with these options.

    A mistake in a directive is named with its line, and nothing is submitted. What is shown goes to stderr; output and
    exit status are sbatch's. Options of this command stand before SCRIPT.
    """
    options, arguments = _divided(rest)
    head, slurm = head_of(script), _config(config_path, ledger_path).slurm
    words = _sbatch_words(head)
    comment = _comment(options) or _comment(words) or ""
    given = parse(head, comment, submitted=time.time())
    if given.problems:
        _say(f"{printable(str(script))}: {problem}" for problem in given.problems)
        mistakes = counted(len(given.problems), "directive")
        raise UsageError(f"{mistakes} would be ignored, so nothing was submitted: correct the script, or use sbatch")
    tell = partial(_told, given, requeues=_requeues([*words, *options]))
    _say(_known(tell, partial(expected, script, head, options, slurm), config_path, ledger_path))
    become_sbatch(slurm.conf, slurm.bin, [*options, str(script), *arguments])


def _divided(rest: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The options of sbatch, and the arguments of the script."""
    end = rest.index("--") if "--" in rest else len(rest)
    return rest[:end], rest[end + 1 :]


def _sbatch_words(head: bytes) -> list[str]:
    """The words of its #SBATCH lines, which end at the first command."""
    words: list[str] = []
    for line in head.decode("utf-8", "replace").splitlines():
        if line.startswith("#SBATCH"):
            try:
                words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:  # of an open quotation mark sbatch complains
                continue
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return words


def _comment(words: Sequence[str]) -> str | None:
    """The last --comment, as sbatch reads it."""
    found = None
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--comment":
            found = value if equals else "".join(words[number + 1 : number + 2])
    return found


def _requeues(words: Sequence[str]) -> bool:
    """Whether sbatch's last option on it does not keep Slurm from requeueing the job."""
    return next((word == "--requeue" for word in reversed(words) if word in ("--requeue", "--no-requeue")), True)


def _told(given: Directives, modes: Mapping[str, str], config: Config, *, requeues: bool) -> Iterator[str]:
    from slurmplug.reports import submission  # noqa: PLC0415  a mistake is named without

    yield from submission.sentences(given, modes, config, requeues=requeues)


def _known(
    tell: Callable[[Mapping[str, str], Config], Iterator[str]],
    expect: Callable[[Reports], Expected],
    config_path: Path,
    ledger_path: Path | None,
) -> Iterator[str]:
    """What is known of the job; why it is not, where the daemon, its ledger or sbatch cannot be asked."""
    config, told = _config(config_path, ledger_path), False
    try:
        with open_reports(config_path, ledger_path) as reports:
            modes = reports.status(time.time())["modes"]
            told = True
            yield from tell(modes, config)
            yield from expect(reports).lines()
    except SlurmplugError as error:
        if not told:
            yield from tell({}, config)
        yield f"slurmplug: nothing more is known of the job: {error}"


def _config(config_path: Path, ledger_path: Path | None) -> Config:
    """The configuration; its defaults where there is none, as on a host that only submits."""
    try:
        return config_of(config_path, ledger_path)
    except ConfigError:
        if config_path.exists():
            raise
        return Config()


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)
