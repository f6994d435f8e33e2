"""The command line as a whole."""

import pytest

from slurmplug.commands import COMMANDS
from tests.ledgers import run


def test_each_command_is_named_with_what_it_is_for_in_full() -> None:
    told = run("--help").output
    for name, about in COMMANDS.items():
        assert f"  {name:<12}  {about}\n" in told


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_says_how_it_is_used(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {name} ")


def test_a_command_that_is_not_there_is_refused() -> None:
    result = run("que")
    assert result.exit_code == 2
    assert "No such command 'que'" in result.output
