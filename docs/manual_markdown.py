"""A manual page in Markdown, for the site."""

import re
from collections.abc import Collection

from docs.manual_pages import Block, Example, Heading, Item, Page, Paragraph, Usage

_SPECIAL = re.compile(r"([\\*_\[\]<>#|{}$&~])")
_REFERENCE = re.compile(r"slurmplug[\w.-]*\(\d\)")


def markdown(page: Page, references: Collection[str]) -> str:
    """The page; of `references`, such as `slurmplug-queue(1)`, each is a link to the page beside this one."""

    def linked(text: str) -> str:
        return _REFERENCE.sub(lambda found: link(found[0]) if found[0] in references else found[0], text)

    def block(one: Block) -> str:
        match one:
            case Usage():
                return _lines([f"{one.typed} {one.rest}".rstrip()])
            case Heading():
                return f"### {_code(one.text)}"
            case Paragraph():
                return linked(_text(one.text))
            case Item():
                term = link(one.term) if one.term in references else _code(one.term)
                return f"{term}\n: {linked(_text(one.text))}"
            case Example():
                return _lines(one.lines)

    parts = [f"# {page.reference}", f"{_text(page.about[:1].upper() + page.about[1:])}."]
    for heading, blocks in page.parts.items():
        parts += [f"## {heading.capitalize()}", *map(block, blocks)]
    return "\n\n".join([*parts, "## See also", linked(", ".join(map(_text, page.related)))]) + "\n"


def link(reference: str) -> str:
    """To the page of a reference, from another page of the manual."""
    return f"[{reference}]({file(reference)})"


def file(reference: str) -> str:
    """In which its page is: that of `slurmplug-queue(1)` is `slurmplug-queue.1.md`."""
    return f"{reference[:-3]}.{reference[-2]}.md"


def _text(text: str) -> str:
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _SPECIAL.sub(r"\\\1", text.replace("`", "'"))
    return "".join(_code(part) if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts))


def _code(text: str) -> str:
    return f"`{text}`"


def _lines(lines: Collection[str]) -> str:
    return "\n".join(["```text", *lines, "```"])
