"""Commands whose arguments `slurmplug-report` reads, so that both do the same."""

import sys

import click


class Forwarded(click.Command):
    """Passes all its arguments on as they are, `--` and `--help` among them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep them for `invoke`."""
        ctx.args = args
        return args

    def invoke(self, ctx: click.Context) -> None:
        """Run `slurmplug-report` and end with its status."""
        from slurmplug_report.__main__ import main  # noqa: PLC0415 argparse is not needed elsewhere

        program = ctx.parent.command_path if ctx.parent else "slurmplug"
        sys.exit(main([str(self.name), *ctx.args], program=program))
