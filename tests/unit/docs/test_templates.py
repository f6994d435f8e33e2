"""Each template says in a comment what every directive does."""

import re
from pathlib import Path

import pytest

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
