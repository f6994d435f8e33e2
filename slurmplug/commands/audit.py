"""`slurmplug audit`: whether what was decided follows from what is kept of it."""

import time
from pathlib import Path

import click

from slurmplug.commands.opened import open_ledger
from slurmplug.commands.options import config_of, emit, json_option, ledger_options
from slurmplug.console import progress, table, times
from slurmplug.errors import UsageError


@click.command()
@click.argument("numbers", metavar="[CYCLE]...", nargs=-1, type=click.IntRange(1))
@click.option("-S", "--starttime", default="", metavar="TIME", help="Cycles from then on. Default: all that are kept.")
@ledger_options
@json_option
@click.pass_context
def audit(
    context: click.Context,
    *,
    numbers: tuple[int, ...],
    starttime: str,
    config_path: Path,
    ledger_path: Path | None,
    wants_json: bool,
) -> None:
    """Decide the cycles again whose inputs the ledger keeps, and compare the plans, to the last bit.

    With CYCLE only these. TIME is as for acct. The exit status is 1 if a plan differs, or if what is kept is damaged.
    """
    from slurmplug.ledger import inputs  # noqa: PLC0415  the policies take a second to load
    from slurmplug.reports import audit as report  # noqa: PLC0415

    since = times.parse_time(starttime, time.time()) if starttime else 0.0
    with open_ledger(config_path, ledger_path) as ledger:
        kept = inputs.kept(ledger, since)
        if missing := set(numbers) - {each.id for each in kept}:
            raise UsageError(
                f"no inputs of cycle {min(missing)} are kept: `slurmplug audit` lists from when to when they are"
            )
        cycles = [each for each in kept if not numbers or each.id in numbers]
        with progress.bar("deciding again", "cycles") as show:
            found = report.audit(ledger, cycles, config_of(config_path, ledger_path).policy, show)
    emit([table.to_json(report.as_json(found))] if wants_json else report.lines(found))
    context.exit(0 if report.passed(found) else 1)
