"""Write what the documentation site is made of, in Markdown: `python -m docs.make_site FOLDER`; `make docs` does both.

That is each page of docs/, with the navigation that docs/index.md lists, the changelog, the manual pages, and a page
for each other file or folder that a page links to.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from pygments.lexers import find_lexer_class_for_filename, guess_lexer

from docs.manual_markdown import file, markdown
from docs.manual_pages import pages as manual_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MANUAL = {1: "Commands for users", 8: "Commands for administrators", 5: "Configuration and directives"}
_TARGET = re.compile(r"(?<=\]\()[^)#:\s]+(?=[#)])")


def pages() -> dict[Path, Path]:
    """Where on the site each page of the repository is."""
    return {page: page.relative_to(DOCS) for page in DOCS.rglob("*.md")} | {ROOT / "CHANGELOG.md": Path("changelog.md")}


def navigation(index: str) -> dict[str, list[tuple[str, str]]]:
    """The titles and targets that each part of the index lists."""
    parts = re.split(r"^## (.+)$", index, flags=re.MULTILINE)[1:]
    listed = [re.findall(r"^- \[([^]]+)\]\(([^)]+)\)", text, re.MULTILINE) for text in parts[1::2]]
    return dict(zip(parts[::2], listed, strict=True))


def make(folder: Path) -> None:
    """Write all pages into `folder`, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "figures", folder / "figures")
    shown: set[Path] = set()
    for page, place in pages().items():
        text = _relinked(page, place, shown)
        if page == DOCS / "index.md":
            text += "".join(
                _toctree([f"{title} <{target}>" for title, target in listed], caption)
                for caption, listed in navigation(text).items()
            )
        elif page == DOCS / "decisions/README.md":
            text += _toctree(sorted(other.name for other in page.parent.glob("*.md") if other != page))
        elif page == DOCS / "manual.md":
            text += _manual(folder / "manual")
        _write(folder / place, text)
    _show(shown, folder)


def _relinked(page: Path, place: Path, shown: set[Path]) -> str:
    """Its text with links to where the site has their targets; to `shown` those are added that are no pages."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / found[0]))
        if not target.exists() or target.is_relative_to(DOCS / "figures"):
            return found[0]
        if target not in pages():
            shown.add(target)
        return os.path.relpath(pages().get(target) or _place(target), place.parent)

    return _TARGET.sub(link, page.read_text(encoding="utf-8"))


def _place(file: Path) -> Path:
    return Path(f"files/{file.relative_to(ROOT)}.md")


def _manual(folder: Path) -> str:
    """Writes the manual pages, and lists them."""
    found = manual_pages()
    references = {page.reference for page in found}
    for page in found:
        _write(folder / file(page.reference), markdown(page, references))
    text = ""
    for section, heading in MANUAL.items():
        of_section = [page for page in found if page.section == section]
        lines = [f"- [{page.reference}](manual/{file(page.reference)}): {page.about}" for page in of_section]
        text += "\n".join(["", f"## {heading}", "", *lines, ""])
        text += _toctree([f"manual/{file(page.reference)}" for page in of_section])
    return text


def _show(shown: set[Path], folder: Path) -> None:
    """A page for each file or folder, and for each file in a folder."""
    for path in sorted(shown):
        name = path.relative_to(ROOT)
        title = f"---\norphan: true\nnosearch: true\n---\n# {name}\n\n"
        page = folder / _place(path)
        if path.is_dir():
            inner = sorted(other for other in path.rglob("*") if other.is_file() and "__pycache__" not in other.parts)
            links = [
                f"- [{other.relative_to(path)}]({os.path.relpath(_place(other), _place(path).parent)})"
                for other in inner
            ]
            _write(page, title + "\n".join(links) + "\n")
            _show(set(inner), folder)
        else:
            source = os.path.relpath(path, page.parent)
            _write(page, f"{title}```{{literalinclude}} {source}\n:language: {_language(path)}\n:force:\n```\n")


def _language(path: Path) -> str:
    lexer = find_lexer_class_for_filename(path.name) or guess_lexer(path.read_text(encoding="utf-8"))
    return str(lexer.aliases[0])


def _toctree(entries: list[str], caption: str = "") -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *entries, "```", ""])


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
