"""The command line: one file a subcommand, loaded when it is called."""

from importlib import import_module

import click

from slurmplug.errors import SlurmplugError

COMMANDS = (
    "acct", "backup", "check-config", "compare", "daemon", "doctor", "evaluate", "pause", "prio", "queue",
    "reset", "restore", "resume", "run", "sandbox", "show-config", "simulate", "status", "why",
)  # fmt: skip


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"slurmplug.commands.{name}"), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SlurmplugError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slurmplug")
def main() -> None:
    """Schedule machine-learning training on Slurm by what it learns."""
