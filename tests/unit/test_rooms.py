"""The rules of the rooms in docs/architecture.md that the imports of a module do not show, and those that they do."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ROOT / "slurmplug"
SENTENCE = re.compile(r"[A-Z][a-z']* .*\.", re.DOTALL)
MAKES_SENTENCES = {"reports", "commands"}
"""`commands` for their --help."""


def texts(module: Path) -> Iterator[str]:
    """The string literals of a module that are no docstrings; of an f-string, {} for each value."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def sentences(module: Path) -> list[str]:
    return [text for text in map(str.strip, texts(module)) if SENTENCE.fullmatch(text) and len(text.split()) >= 4]


def test_the_contracts_on_imports_hold() -> None:
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(linter, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_only_reports_make_sentences() -> None:
    grammar = ROOMS / "directives" / "grammar.py"  # the help of each directive
    others = [
        module
        for module in ROOMS.rglob("*.py")
        if module.relative_to(ROOMS).parts[0] not in MAKES_SENTENCES and module != grammar
    ]
    assert {module.relative_to(ROOMS).as_posix(): found for module in others if (found := sentences(module))} == {}


def test_that_test_sees_a_sentence(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""A docstring is no message to users."""\nx = f"It waits for job {1} to end."\ny = "Its rank is 5."\n'
    )
    assert sentences(module) == ["It waits for job {} to end.", "Its rank is 5."]


def test_few_rooms() -> None:
    assert len([entry for entry in ROOMS.iterdir() if entry.name != "__pycache__"]) <= 25


@pytest.mark.parametrize("package", ["slurmplug", "policies", "predictors", "slurmplug_report"])
def test_every_room_says_what_it_is_for(package: str) -> None:
    for init in (ROOT / package).rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), f"{init} has no docstring"
