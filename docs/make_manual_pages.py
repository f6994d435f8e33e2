"""Write the manual pages in roff: `python -m docs.make_manual_pages FOLDER`."""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from docs import manual_pages
from docs.manual_pages import Block, Example, Heading, Item, Page, Paragraph, Usage

_SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def pages() -> dict[str, str]:
    """The text of each page, in roff(7) with the macros of man(7), by its file's name."""
    return {f"{page.name}.{page.section}": _page(page) for page in manual_pages.pages()}


def _page(page: Page) -> str:
    name = _text(page.name)
    lines = [
        f'.TH "{_text(page.name.upper())}" "{page.section}" "" "slurmplug {_text(version("slurmplug"))}" "slurmplug"',
        ".SH NAME",
        f"{name} \\- {_text(page.about)}",
    ]
    for heading, blocks in page.parts.items():
        lines += [f".SH {heading}", "".join(map(_block, blocks)).strip("\n")]
    return "\n".join([*lines, ".SH SEE ALSO", ", ".join(map(_text, page.related))]) + "\n"


def _block(block: Block) -> str:
    match block:
        case Usage():
            return f"{_bold(block.typed)} {_text(block.rest)}".rstrip()
        case Heading():
            return f".SS {_text(block.text)}"
        case Paragraph():
            return f"\n.PP\n{_text(block.text)}\n"
        case Item():
            return f"\n.TP\n{_bold(block.term)}\n{_text(block.text)}\n"
        case Example():
            return "\n".join([".nf", *map(_text, block.lines), ".fi"])


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


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    for name, text in pages().items():
        yield folder / f"man{name[-1]}" / name, text


if __name__ == "__main__":
    for file, text in _files(Path(sys.argv[1])):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
