"""The package runs in whatever Python a training job uses, from 3.8 on, with nothing installed beside it."""

import ast
import builtins
import sys
from pathlib import Path

import pytest
import vermin

FILES = sorted((Path(__file__).parents[3] / "slurmplug_report").rglob("*.py"))
OLDEST = (3, 8)
FRAMEWORKS = {
    "lightning.py": {"lightning", "pytorch_lightning"},
    "huggingface.py": {"accelerate", "transformers"},
    "tensorboard_log.py": {"tensorboard"},
}
"""What the reporters of frameworks import, which is there where they are imported."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
class TestFile:
    def test_has_no_syntax_that_python_3_8_lacks(self, file: Path) -> None:
        ast.parse(file.read_text(), feature_version=OLDEST)

    def test_uses_nothing_of_the_standard_library_that_python_3_8_lacks(self, file: Path) -> None:
        assert needed_by(file.read_text()) <= OLDEST

    def test_evaluates_no_annotation(self, file: Path) -> None:
        annotated = any(isinstance(node, ast.FunctionDef | ast.AnnAssign) for node in ast.walk(parsed(file)))
        assert not annotated or "from __future__ import annotations" in file.read_text()

    def test_names_no_type_by_a_built_in_generic(self, file: Path) -> None:
        values = [node.value for node in ast.walk(parsed(file)) if isinstance(node, ast.Assign)]
        subscripted = [each.value for value in values for each in ast.walk(value) if isinstance(each, ast.Subscript)]
        assert not [each.id for each in subscripted if isinstance(each, ast.Name) and each.id in vars(builtins)]

    def test_imports_only_the_standard_library_and_itself(self, file: Path) -> None:
        found = {name.partition(".")[0] for node in ast.walk(parsed(file)) for name in imported_by(node)}
        assert found <= set(sys.stdlib_module_names) | {"slurmplug_report"} | FRAMEWORKS.get(file.name, set())

    def test_no_other_file_imports_one_of_a_framework_when_it_is_imported(self, file: Path) -> None:
        found = {name for node in parsed(file).body for name in imported_by(node)}
        assert not found & {f"slurmplug_report.{name.removesuffix('.py')}" for name in FRAMEWORKS}


@pytest.mark.parametrize("text", ["zip([1], strict=True)", "{} | {}", "'a'.removeprefix('a')"])
def test_what_came_after_3_8_is_found(text: str) -> None:
    assert needed_by(text) > OLDEST


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["slurmplug_report" if node.level else node.module or ""]
    return []


def needed_by(text: str) -> tuple[int, ...]:
    """The oldest Python 3 that runs the text, annotations aside."""
    _, python_3 = vermin.detect(text)
    assert python_3, f"for no Python 3: {text}"
    return tuple(python_3)
