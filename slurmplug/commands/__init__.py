"""The command line: one module per subcommand, loaded when it is called."""

import click

from slurmplug.commands.loading import load
from slurmplug.errors import SlurmplugError

COMMANDS = {
    "acct": "Pending, running and ended jobs, as sacct shows them.",
    "audit": "Decide recorded cycles again, and compare the plans.",
    "backup": "Copy the ledger to a file.",
    "bound": "The least mean JCT that a policy can reach on a workload.",
    "check-config": "Check the configuration.",
    "compare": "Compare simulated policies.",
    "daemon": "Run the daemon in the foreground.",
    "doctor": "Check the installation, and show how to fix it.",
    "estimate": "When a script would start and end, before it is submitted.",
    "evaluate": "Evaluate the predictors.",
    "pause": "Make the daemon observe only.",
    "forget": "Delete what is kept of a user's ended jobs.",
    "policy": "Models of learnt policies: keep, evaluate, promote, demote.",
    "prio": "Ranks of pending jobs, and the terms of their scores.",
    "queue": "Running and pending jobs, with ranks and progress.",
    "replay": "Replay the site's own past under Slurm alone and under a policy.",
    "report": "Report progress from a shell script.",
    "reset": "Undo what slurmplug set in Slurm.",
    "restore": "Replace the ledger by a backup.",
    "resume": "Let the daemon act again.",
    "run": "Run a program and report its progress.",
    "sandbox": "A throwaway Slurm cluster on this machine.",
    "savings": "GPU hours that stops saved, or would have saved.",
    "set": "Change directives of a job that waits or runs.",
    "show-config": "Print the configuration in force.",
    "simulate": "Simulate policies on a workload.",
    "status": "Whether the daemon is alive, and what it did.",
    "submit": "Check a script's directives, then submit it by sbatch.",
    "suggest": "What to ask for instead, by how earlier jobs ended.",
    "top": "The queue on a full screen: filter, sort, open and change jobs.",
    "train": "Train a model of a learnt policy.",
    "usage": "GPU hours, charge and urgency by month, account and user.",
    "web": "Web pages of the queue, of jobs, and of what stops saved.",
    "why": "Explain a job's rank and what was done to it.",
}
"""Each subcommand with its one line of help."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(load(f"slurmplug.commands.{name}"), name)
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
