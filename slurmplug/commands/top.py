"""`slurmplug top`: the queue on a full screen, with what can be asked and done about its jobs."""

import sys
from importlib.util import find_spec
from pathlib import Path

import click

from slurmplug.commands import curve_plot
from slurmplug.commands.options import config_of, ledger_options
from slurmplug.errors import UsageError


@click.command()
@ledger_options
def top(*, config_path: Path, ledger_path: Path | None) -> None:
    """Show the queue on a full screen, refreshed every few seconds: filter it, sort it, open a job.

    A job's story is what `slurmplug why --plot` shows, and the end of its output file. Jobs are held, released and
    cancelled by Slurm's own commands, with the rights of who calls this. `?` shows the keys.
    """
    if find_spec("textual") is None:
        raise UsageError("slurmplug top needs Textual: pip install 'slurmplug[top]'")
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("slurmplug top needs a terminal: slurmplug queue prints the same, and slurmplug why JOBID")
    from slurmplug.commands.screen import app  # noqa: PLC0415  its library may be missing
    from slurmplug.commands.screen.source import Source  # noqa: PLC0415

    config_of(config_path, ledger_path)
    status = app.run(Source(config_path, ledger_path, unicode=curve_plot.shows_unicode()))
    sys.exit(status)
