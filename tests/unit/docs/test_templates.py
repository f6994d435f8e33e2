"""Each template says in a comment what every directive does, and its directives are valid."""

import ast
import math
import re
from pathlib import Path

import pytest

from slurmplug.directives.parser import parse

TEMPLATES = Path(__file__).parents[3] / "sbatch_templates"


def template_scripts() -> list[Path]:
    return sorted(path for path in TEMPLATES.iterdir() if path.suffix in (".sbatch", ".sh"))


@pytest.mark.parametrize("path", template_scripts(), ids=lambda path: str(path.name))
def test_a_comment_above_says_what_each_directive_does(path: Path) -> None:
    """One comment is enough for those that an earlier line of the same file has explained."""
    explained: set[str] = set()
    before = ""
    for line in path.read_text().splitlines():
        if re.match(r"#(SBATCH|PLUG) ", line):
            named = set(re.findall(r"--([a-z-]+)", line))
            assert before.startswith("# ") or named <= explained, f"{path.name}: {line}"
            explained |= named
        before = line


@pytest.mark.parametrize("path", template_scripts(), ids=lambda path: str(path.name))
def test_every_directive_takes_effect(path: Path) -> None:
    directives = parse(path.read_bytes(), submitted=0.0)
    assert (directives.problems, directives.warnings) == ((), ())


def test_the_page_of_templates_lists_every_file() -> None:
    page = (TEMPLATES.parent / "docs/templates.md").read_text()
    listed = re.findall(r"\[`([\w.]+)`\]\(\.\./sbatch_templates/\1\)", page)
    assert sorted(listed) == sorted(path.name for path in TEMPLATES.iterdir() if path.is_file())


def test_the_sweep_has_an_element_for_each_trial() -> None:
    program = ast.parse((TEMPLATES / "sweep.py").read_text())
    [values] = [
        node.args for node in ast.walk(program) if isinstance(node, ast.Call) and ast.unparse(node.func) == "product"
    ]
    trials = math.prod(len(ast.literal_eval(each)) for each in values)
    assert f"#SBATCH --array=0-{trials - 1}%" in (TEMPLATES / "sweep.sbatch").read_text()
