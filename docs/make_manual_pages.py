"""Write the manual pages, from the same source as --help: `python -m docs.make_manual_pages FOLDER`.

Section 1 has the commands of users, 8 those of administrators, 5 the configuration and the directives.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

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
_SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def pages() -> dict[str, str]:
    """The text of each page, in roff(7) with the macros of man(7), by its file's name."""
    found = {"slurmplug.1": _overview()}
    found |= {f"slurmplug-{name}.{section(name)}": _of_command(name) for name in COMMANDS}
    return {**found, f"{CONFIGURATION}.5": _configuration(), f"{DIRECTIVES}.5": _directives()}


def section(command: str) -> int:
    """Of the manual, in which the page of a command is."""
    return 8 if command in FOR_ADMINISTRATORS else 1


def _overview() -> str:
    about = [(f"slurmplug-{name}({section(name)})", text) for name, text in COMMANDS.items()]
    files = [
        (str(DEFAULT_PATH), "The configuration."),
        (str(Config().ledger.path), "The ledger, the daemon's database."),
        (str(Config().spool.path), "The spool: reports of jobs, and requests to jobs."),
    ]
    environment = [
        (CONFIG_VARIABLE, "Another configuration file."),
        (LEDGER_VARIABLE, "Another ledger for reports."),
    ]
    return _page(
        "slurmplug",
        1,
        _without_period(main.help or ""),
        {
            "SYNOPSIS": [_bold("slurmplug"), " ", _italic("COMMAND"), " [", _italic("OPTIONS"), "]"],
            "DESCRIPTION": _paragraphs(
                "slurmplug is a daemon that runs beside slurmctld, and the commands to ask it and to steer it. Batch "
                f"scripts say in directives what a training has to reach: {DIRECTIVES}(5)."
            ),
            "COMMANDS": _items(about),
            "FILES": _items(files),
            "ENVIRONMENT": _items(environment),
        },
        [f"{CONFIGURATION}(5)", f"{DIRECTIVES}(5)", "slurmctld(8)", "squeue(1)", "sacct(1)"],
    )


def _of_command(name: str) -> str:
    context = click.Context(main, info_name="slurmplug", **main.context_settings)
    command = main.get_command(context, name)
    assert command is not None
    related = [f"{CONFIGURATION}(5)"] if section(name) == 8 else [f"{DIRECTIVES}(5)"]
    parts = _of_forwarded(name) if isinstance(command, Forwarded) else _of_click(command, context)
    return _page(f"slurmplug-{name}", section(name), _without_period(COMMANDS[name]), parts, ["slurmplug(1)", *related])


def _of_click(command: click.Command, parent: click.Context) -> dict[str, list[str]]:
    context = click.Context(command, parent=parent, info_name=command.name)
    parts = {
        "SYNOPSIS": [_bold(context.command_path), " ", _text(" ".join(command.collect_usage_pieces(context)))],
        "DESCRIPTION": _paragraphs(command.help or ""),
        "OPTIONS": _items(_records(command, context)),
    }
    if isinstance(command, click.Group):
        del parts["OPTIONS"]
        parts["COMMANDS"] = []
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            own = click.Context(inner, parent=context, info_name=name)
            usage = f"{own.command_path} {' '.join(inner.collect_usage_pieces(own))}"
            parts["COMMANDS"] += [".SS ", _text(usage), *_paragraphs(inner.help or ""), *_items(_records(inner, own))]
    return parts


def _records(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Each option and its help, as --help shows them."""
    found = (each.get_help_record(context) for each in command.get_params(context) if isinstance(each, click.Option))
    return [record for record in found if record is not None]


def _of_forwarded(name: str) -> dict[str, list[str]]:
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
        "SYNOPSIS": [_bold(" ".join(usage[:2])), " ", _text(re.sub(r"\s+", " ", usage[2]).strip())],
        "DESCRIPTION": _paragraphs(command.description or ""),
        "OPTIONS": _items(options),
    }


def _configuration() -> str:
    keys: dict[str, list[tuple[str, str]]] = {}
    for name, kind, default, text in documented():
        table, _, key = name.rpartition(".")
        value = f"Default: {default}" if default else "Not set by default"
        keys.setdefault(table, []).append((f"{key} ({kind})", f"{text[:1].upper()}{text[1:]}. {value}."))
    parts = [*_items(keys.pop(""))]
    for table, found in keys.items():
        inner = Config.model_fields[table].annotation
        assert isinstance(inner, type)
        assert issubclass(inner, Section)
        parts += [".SS ", _text(f"[{table}]"), *_paragraphs(inner.__doc__ or ""), *_items(found)]
    return _page(
        CONFIGURATION,
        5,
        "configuration of slurmplug",
        {
            "SYNOPSIS": [_bold(str(DEFAULT_PATH))],
            "DESCRIPTION": _paragraphs(
                "One file in TOML. A missing key has its default. `slurmplug check-config` names every mistake, "
                "`slurmplug show-config` prints the settings in force, with `--defaults` the defaults. "
                "The daemon reads the file again on SIGHUP, as from systemctl reload slurmplugd."
            ),
            "KEYS": parts,
        },
        ["slurmplug(1)", "slurmplug-check-config(8)", "slurmplug-show-config(8)"],
    )


def _directives() -> str:
    found = []
    for row in TABLE:
        facts = [f"Value: {row.expected}.", f"Default: {row.default}." if row.default else ""]
        facts.append(f"It cannot change after the submission: {row.fixed}." if row.fixed else "")
        found.append((f"--{row.name}={row.example}", " ".join([row.help, *filter(None, facts)])))
    return _page(
        DIRECTIVES,
        5,
        "what a batch script states of its training",
        {
            "SYNOPSIS": [_bold(PREFIX), " ", _text("--NAME=VALUE ...")],
            "DESCRIPTION": _paragraphs(
                f"Lines of a batch script that begin with {PREFIX} and stand before its first command, as those of "
                f"sbatch do; or sbatch --comment='{COMMENT_PREFIX} --NAME=VALUE ...'. slurmplug-why(1) shows those "
                "that are ignored, and why. slurmplug-set(1) changes them later."
            ),
            "DIRECTIVES": _items(found),
            "EXAMPLE": [".nf\n", *(_text(line) + "\n" for line in _EXAMPLE), ".fi"],
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


def _page(name: str, of_section: int, about: str, parts: Mapping[str, Sequence[str]], related: Sequence[str]) -> str:
    title = f'.TH "{_text(name.upper())}" "{of_section}" "" "slurmplug {_text(version("slurmplug"))}" "slurmplug"'
    lines = [title, ".SH NAME", f"{_text(name)} \\- {_text(about)}"]
    for heading, part in parts.items():
        lines += [f".SH {heading}", "".join(part).strip("\n")]
    return "\n".join([*lines, ".SH SEE ALSO", ", ".join(map(_text, related))]) + "\n"


def _paragraphs(text: str) -> list[str]:
    found = re.split(r"\n\s*\n", text.strip())
    return [f"\n.PP\n{_text(' '.join(paragraph.split()))}\n" for paragraph in found if paragraph]


def _items(records: Iterable[tuple[str, str]]) -> list[str]:
    return [f"\n.TP\n{_bold(term)}\n{_text(' '.join(text.split()))}\n" for term, text in records]


def _text(text: str) -> str:
    """With what roff would take for its own escaped; what is in backquotes is bold."""
    plain = [_escaped(part) for part in text.split("`")]
    if len(plain) % 2 == 0:
        return _line("\\(ga".join(plain))
    return _line("".join(f"\\fB{part}\\fP" if place % 2 else part for place, part in enumerate(plain)))


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def _line(text: str) -> str:
    """A line that begins with a full stop would be a request."""
    return f"\\&{text}" if text.startswith(".") else text


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fP"


def _italic(text: str) -> str:
    return f"\\fI{_text(text)}\\fP"


def _without_period(text: str) -> str:
    return text.removesuffix(".")


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    for name, text in pages().items():
        yield folder / f"man{name[-1]}" / name, text


if __name__ == "__main__":
    for file, text in _files(Path(sys.argv[1])):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
