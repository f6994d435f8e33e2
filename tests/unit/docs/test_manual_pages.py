"""The manual pages: complete, and formatted by groff and man without a warning."""

import re
import subprocess
from pathlib import Path

import click
import pytest

from docs.make_manual_pages import pages
from docs.manual_pages import FOR_ADMINISTRATORS, section
from slurmplug.commands import COMMANDS, main
from slurmplug.config.render import documented
from slurmplug.directives.grammar import TABLE

PAGES = pages()
CONTEXT = click.Context(main, info_name="slurmplug", **main.context_settings)


def formatted(name: str) -> str:
    """As a reader sees it, without highlights."""
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-Kutf8", "-rLL=400n", "-P-c", "-P-b", "-P-u"],
        input=PAGES[name], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r"\s+", " ", done.stdout)


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("`", ""))


@pytest.mark.parametrize("name", PAGES)
def test_groff_and_man_have_nothing_to_complain_of(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(PAGES[name])
    for command in (
        ["groff", "-ww", "-man", "-Tutf8", "-Kutf8", "-z", str(file)],
        ["man", "--warnings", "-l", str(file)],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_of_a_command_has_what_its_help_has(command: str) -> None:
    found = formatted(f"slurmplug-{command}.{section(command)}")
    shown = main.get_command(CONTEXT, command)
    assert shown is not None
    context = click.Context(shown, parent=CONTEXT, info_name=command)
    inner = [shown.get_command(context, name) for name in shown.list_commands(context)] if isinstance(
        shown, click.Group
    ) else [shown]  # fmt: skip
    for each in inner:
        assert each is not None
        for option in each.params:
            record = option.get_help_record(click.Context(each)) if isinstance(option, click.Option) else None
            for text in record or ():
                assert words(text) in found
        for paragraph in re.split(r"\n\s*\n", each.help or ""):
            assert words(paragraph.strip()) in found


def test_those_who_run_programs_read_the_same_of_slurmplug_report() -> None:
    found = formatted("slurmplug-run.1")
    usage = (
        "slurmplug run [--pattern REGEX]... [--csv FILE]... [--tensorboard FOLDER]... [--stop-signal NAME] -- COMMAND"
    )
    assert usage in found
    assert "(default: TERM)" in found
    assert "NAME=VALUE [NAME=VALUE ...]" in formatted("slurmplug-report.1")


def test_every_key_of_the_configuration_and_every_directive_is_there() -> None:
    configuration, directives = formatted("slurmplug.toml.5"), formatted("slurmplug-directives.5")
    for name, kind, _, text in documented():
        assert f" {name.rpartition('.')[2]} ({kind}) " in configuration
        assert words(text)[1:] in configuration
    for row in TABLE:
        assert f" --{row.name}={row.example} " in directives
        assert words(row.help) in directives


def test_pages_refer_to_pages_that_there_are() -> None:
    referred = set(re.findall(r"(slurmplug[\w.-]*)\((\d)\)", "".join(PAGES.values()).replace("\\-", "-")))
    assert referred <= {(name[:-2], name[-1]) for name in PAGES}
    assert referred >= {(f"slurmplug-{name}", str(section(name))) for name in COMMANDS}
    assert COMMANDS.keys() >= FOR_ADMINISTRATORS


def test_a_package_installs_them() -> None:
    root = Path(__file__).parents[3]
    assert '-Bm docs.make_manual_pages "$root/usr/share/man"' in (root / "packaging/install").read_text()
    assert "\n/usr/share/man/man*/slurmplug*\n" in (root / "packaging/slurmplug.spec").read_text()


def test_text_that_roff_takes_for_its_own_is_shown_as_it_is() -> None:
    from docs.make_manual_pages import _text

    for text in (".1 of it", "'tis", "a\\fBb", "--option", 'say "so"', "~/.x^2", "an odd ` mark"):
        done = subprocess.run(
            ["groff", "-ww", "-man", "-Tascii", "-P-c"], input=f".TH A 1\n.SH B\n{_text(text)}\n",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        assert text in done.stdout
