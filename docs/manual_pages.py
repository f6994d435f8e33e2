"""What the manual pages say, from the same source as --help; for whoever writes them in roff or for the site."""

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from slurmplug.commands import COMMANDS, main
from slurmplug.commands.forwarded import Forwarded
from slurmplug.config.render import documented
from slurmplug.config.schema import CONFIG_VARIABLE, DEFAULT_PATH, LEDGER_VARIABLE, Config
from slurmplug.config.section import Section
from slurmplug.directives.grammar import COMMENT_PREFIX, PREFIX, TABLE
from slurmplug_report.__main__ import parser

FOR_ADMINISTRATORS = frozenset(
    (
        "audit backup check-config daemon doctor forget pause policy reset restore resume savings show-config usage web"
    ).split()
)
CONFIGURATION, DIRECTIVES = "slurmplug.toml", "slurmplug-directives"


@dataclass(frozen=True)
class Usage:
    """What is typed as it stands, and what follows it."""

    typed: str
    rest: str = ""


@dataclass(frozen=True)
class Heading:
    """Of a part of a part."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """What is in backquotes is a word of the command line or the configuration."""

    text: str


@dataclass(frozen=True)
class Item:
    """A term, such as an option, and what it means."""

    term: str
    text: str


@dataclass(frozen=True)
class Example:
    """Lines that are shown as they are."""

    lines: Sequence[str]


Block = Usage | Heading | Paragraph | Item | Example


@dataclass(frozen=True)
class Page:
    """A page of the manual; ``related`` are references, as ``squeue(1)``."""

    name: str
    section: int
    about: str
    parts: dict[str, list[Block]]
    related: Sequence[str]

    @property
    def reference(self) -> str:
        """As other pages name it."""
        return f"{self.name}({self.section})"


def pages() -> list[Page]:
    """Section 1 has the commands of users, 8 those of administrators, 5 the configuration and the directives."""
    return [_overview(), *(_of_command(name) for name in COMMANDS), _configuration(), _directives()]


def section(command: str) -> int:
    """Of the manual, in which the page of a command is."""
    return 8 if command in FOR_ADMINISTRATORS else 1


def _overview() -> Page:
    files = [
        Item(str(DEFAULT_PATH), "The configuration."),
        Item(str(Config().ledger.path), "The ledger, the daemon's database."),
        Item(str(Config().spool.path), "The spool: reports of jobs, and requests to jobs."),
    ]
    environment = [
        Item(CONFIG_VARIABLE, "Another configuration file."),
        Item(LEDGER_VARIABLE, "Another ledger for reports."),
    ]
    return Page(
        "slurmplug",
        1,
        _without_period(main.help or ""),
        {
            "SYNOPSIS": [Usage("slurmplug", "COMMAND [OPTIONS]")],
            "DESCRIPTION": _paragraphs(
                "slurmplug is a daemon that runs beside slurmctld, and the commands to ask it and to steer it. Batch "
                f"scripts say in directives what a training has to reach: {DIRECTIVES}(5)."
            ),
            "COMMANDS": [Item(f"slurmplug-{name}({section(name)})", text) for name, text in COMMANDS.items()],
            "FILES": [*files],
            "ENVIRONMENT": [*environment],
        },
        [f"{CONFIGURATION}(5)", f"{DIRECTIVES}(5)", "slurmctld(8)", "squeue(1)", "sacct(1)"],
    )


def _of_command(name: str) -> Page:
    context = click.Context(main, info_name="slurmplug", **main.context_settings)
    command = main.get_command(context, name)
    assert command is not None
    related = [f"{CONFIGURATION}(5)"] if section(name) == 8 else [f"{DIRECTIVES}(5)"]
    parts = _of_forwarded(name) if isinstance(command, Forwarded) else _of_click(command, context)
    return Page(f"slurmplug-{name}", section(name), _without_period(COMMANDS[name]), parts, ["slurmplug(1)", *related])


def _of_click(command: click.Command, parent: click.Context) -> dict[str, list[Block]]:
    context = click.Context(command, parent=parent, info_name=command.name)
    parts: dict[str, list[Block]] = {
        "SYNOPSIS": [Usage(context.command_path, " ".join(command.collect_usage_pieces(context)))],
        "DESCRIPTION": _paragraphs(command.help or ""),
    }
    if not isinstance(command, click.Group):
        return {**parts, "OPTIONS": _options(command, context)}
    parts["COMMANDS"] = []
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        own = click.Context(inner, parent=context, info_name=name)
        usage = f"{own.command_path} {' '.join(inner.collect_usage_pieces(own))}"
        parts["COMMANDS"] += [Heading(usage), *_paragraphs(inner.help or ""), *_options(inner, own)]
    return parts


def _options(command: click.Command, context: click.Context) -> list[Block]:
    """Each option and its help, as --help shows them."""
    found = (each.get_help_record(context) for each in command.get_params(context) if isinstance(each, click.Option))
    return [*_items(record for record in found if record is not None)]


def _of_forwarded(name: str) -> dict[str, list[Block]]:
    own = parser("slurmplug")
    [actions] = [action for action in own._actions if isinstance(action, argparse._SubParsersAction)]
    command: argparse.ArgumentParser = actions.choices[name]
    options = []
    for action in command._actions:
        names = ", ".join(action.option_strings)
        metavar = action.metavar if action.nargs != 0 else ""
        if names or action.help:
            options.append((f"{names} {metavar or ''}".strip(), (action.help or "") % {"default": action.default}))
    usage = command.format_usage().removeprefix("usage: ").split(maxsplit=2)
    return {
        "SYNOPSIS": [Usage(" ".join(usage[:2]), " ".join(usage[2].split()))],
        "DESCRIPTION": _paragraphs(command.description or ""),
        "OPTIONS": _items(options),
    }


def _configuration() -> Page:
    keys: dict[str, list[tuple[str, str]]] = {}
    for name, kind, default, text in documented():
        table, _, key = name.rpartition(".")
        value = f"Default: {default}" if default else "Not set by default"
        is_file = "." in text.partition(" ")[0]
        sentence = text if is_file else f"{text[:1].upper()}{text[1:]}"
        keys.setdefault(table, []).append((f"{key} ({kind})", f"{sentence}. {value}."))
    parts = _items(keys.pop(""))
    for table, found in keys.items():
        inner = Config.settings[table].kind
        assert isinstance(inner, type)
        assert issubclass(inner, Section)
        parts += [Heading(f"[{table}]"), *_paragraphs(inner.__doc__ or ""), *_items(found)]
    return Page(
        CONFIGURATION,
        5,
        "configuration of slurmplug",
        {
            "SYNOPSIS": [Usage(str(DEFAULT_PATH))],
            "DESCRIPTION": _paragraphs(
                "One file in TOML. A missing key has its default. `slurmplug check-config` names every mistake, "
                "`slurmplug show-config` prints the settings in force, with `--defaults` the defaults. "
                "The daemon reads the file again on SIGHUP, as from systemctl reload slurmplugd."
            ),
            "KEYS": parts,
        },
        ["slurmplug(1)", "slurmplug-check-config(8)", "slurmplug-show-config(8)"],
    )


def _directives() -> Page:
    found = []
    for row in TABLE:
        facts = [f"Value: {row.expected}.", f"Default: {row.default}." if row.default else ""]
        facts.append(f"It cannot change after the submission: {row.fixed}." if row.fixed else "")
        found.append((f"--{row.name}={row.example}", " ".join([row.help, *filter(None, facts)])))
    return Page(
        DIRECTIVES,
        5,
        "what a batch script states of its training",
        {
            "SYNOPSIS": [Usage(PREFIX, "--NAME=VALUE ...")],
            "DESCRIPTION": _paragraphs(
                f"Lines of a batch script that begin with {PREFIX} and stand before its first command, as those of "
                f"sbatch do; or sbatch --comment='{COMMENT_PREFIX} --NAME=VALUE ...'. slurmplug-why(1) shows those "
                "that are ignored, and why. slurmplug-set(1) changes them later."
            ),
            "DIRECTIVES": _items(found),
            "EXAMPLE": [Example(_EXAMPLE)],
        },
        ["slurmplug(1)", "slurmplug-set(1)", "slurmplug-why(1)", "sbatch(1)"],
    )


_EXAMPLE = (
    "#!/bin/bash",
    "#SBATCH --gres=gpu:4 --time=12:00:00",
    f"{PREFIX} --target=accuracy>=0.92 --max-iterations=90",
    f"{PREFIX} --stop=target --deadline=tomorrow 18:00",
    "srun python train.py",
)


def _paragraphs(text: str) -> list[Block]:
    found = re.split(r"\n\s*\n", text.strip())
    return [Paragraph(" ".join(paragraph.split())) for paragraph in found if paragraph]


def _items(records: Iterable[tuple[str, str]]) -> list[Block]:
    return [Item(term, " ".join(text.split())) for term, text in records]


def _without_period(text: str) -> str:
    return text.removesuffix(".")
