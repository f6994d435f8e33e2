"""The command line: one file a subcommand, loaded when it is called."""

from importlib import import_module

import click

from slurmplug.errors import SlurmplugError

COMMANDS = {
    "acct": "Jobs that wait, run and ended, as sacct shows them.",
    "backup": "Copy the ledger to a file.",
    "check-config": "Is the configuration valid?",
    "compare": "By how much simulated policies differ.",
    "daemon": "Serve the cluster, in the foreground.",
    "doctor": "What a site lacks, and how to fix it.",
    "evaluate": "How good the predictors are.",
    "pause": "Let the daemon observe only.",
    "prio": "The rank of pending jobs, and each term of their score.",
    "queue": "The queue as slurmplug sees it.",
    "reset": "Give back to Slurm what slurmplug set.",
    "restore": "Put a backup in the ledger's place.",
    "resume": "Let the daemon act again.",
    "run": "Run a program and report what it prints.",
    "sandbox": "A throwaway Slurm cluster on this machine.",
    "show-config": "The settings in force.",
    "simulate": "What policies would make of a workload.",
    "status": "Is the daemon alive, and what does it do?",
    "why": "Why a job has its rank, and what was done to it.",
}
"""What there is, and what it is for."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"slurmplug.commands.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SlurmplugError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slurmplug")
def main() -> None:
    """Schedule machine-learning training on Slurm by what it learns."""
