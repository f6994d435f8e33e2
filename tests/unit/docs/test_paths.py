"""The pages name files of the repository that exist."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from docs.make_site import DOCS, ROOT

PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def named(page: Path) -> set[str]:
    """The relative paths in backticks, and names of test files; other names without a folder may be a user's files."""
    tokens = MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))
    codes = [each.content for token in tokens for each in token.children or () if each.type == "code_inline"]
    words = [word for code in codes for word in re.split(r"[\s:,]", code)]
    files = [word for word in words if re.fullmatch(r"[\w.-][\w./-]*\.(py|sh|toml|service|md)", word)]
    return {file for file in files if "/" in file or re.fullmatch(r"test_\w+\.py", file)}


def exists(path: str) -> bool:
    """Paths are written from the root of the repository or from the package slurmplug."""
    if "/" not in path:
        return any((ROOT / "tests").rglob(path))
    return (ROOT / path).exists() or (ROOT / "slurmplug" / path).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    assert sorted(path for path in named(page) if not exists(path)) == []
