"""`slurmplug estimate`: when a batch script would start and end, before it is submitted."""

from functools import partial
from pathlib import Path

import click

from slurmplug.commands.expected import expected, head_of, with_other_partitions
from slurmplug.commands.opened import open_reports, warn_of_dead_daemon
from slurmplug.commands.options import config_of, emit, json_option, ledger_options
from slurmplug.console import table


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("options", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@ledger_options
@json_option
def estimate(
    *, script: Path, options: tuple[str, ...], config_path: Path, ledger_path: Path | None, wants_json: bool
) -> None:
    """Say when SCRIPT would start and end if it were submitted now with these options of sbatch, and whether it would
    meet its deadline and target; what one GPU less or more, a shorter time limit and other partitions would change; and
    when Slurm expects to start it. Nothing is submitted. Options of this command stand before SCRIPT.
    """
    head, slurm = head_of(script), config_of(config_path, ledger_path).slurm
    with open_reports(config_path, ledger_path) as reports:
        ask = partial(expected, script, head, slurm=slurm, reports=reports)
        found = with_other_partitions(ask(options), options, slurm, ask)
        warn_of_dead_daemon(reports)
    if wants_json:
        emit([table.to_json({**found.estimate, "slurm": {"start": found.slurm_start}, "assumed": found.assumed})])
        return
    emit(found.lines())
