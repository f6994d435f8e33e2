"""`slurmplug top`, driven through Textual's pilot: keys are pressed, and what the screen shows is read."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from xml.etree import ElementTree

from textual.app import App
from textual.pilot import Pilot

from slurmplug.commands.screen.app import Top
from slurmplug.commands.screen.source import Source

PATIENCE = 60.0
"""seconds until the screen has to show what a test expects"""
CHARACTER = 12.2
"""the width of a character in an exported picture"""
_SVG = "{http://www.w3.org/2000/svg}"


class Driven:
    """The application while it runs, in a terminal of this size."""

    def __init__(self, app: Top, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot

    def lines(self) -> list[str]:
        """What the screen shows, by line."""
        return lines(self.app)

    def text(self) -> str:
        """Likewise, as one line: each space, and each line break, is one space."""
        return _one_line("\n".join(self.lines()))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.pilot.press(*("space" if letter == " " else letter for letter in text))

    async def until(self, shown: str | Callable[[], bool]) -> str:
        """Wait until the screen shows this, or this is true; the screen."""
        limit = time.monotonic() + PATIENCE
        while not (shown() if callable(shown) else _one_line(shown) in self.text()):
            assert time.monotonic() < limit, f"{shown!r} does not come; the screen:\n{chr(10).join(self.lines())}"
            await self.pilot.pause(0.05)
        return self.text()


def _one_line(text: str) -> str:
    return " ".join(text.split())


Scenario = Callable[[Driven], Awaitable[None]]


def drive(source: Source, scenario: Scenario, size: tuple[int, int] = (80, 24)) -> None:
    """Run the application with a scenario, and wait for the questions that it left without an answer."""
    before = set(threading.enumerate())

    async def run() -> None:
        app = Top(source)
        async with app.run_test(size=size, notifications=True) as pilot:
            await scenario(Driven(app, pilot))

    asyncio.run(run())
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)


def lines(app: App[Any]) -> list[str]:
    """What the screen shows, of its picture, which cannot hold a control character."""
    rows: dict[float, list[tuple[int, str]]] = {}
    for text in ElementTree.fromstring(app.export_screenshot()).iter(f"{_SVG}text"):
        if (clip := text.get("clip-path")) and "-line-" in clip:
            at = round(float(text.get("x", "0")) / CHARACTER)
            rows.setdefault(float(text.get("y", "0")), []).append((at, (text.text or "").replace("\xa0", " ")))
    shown = []
    for _, parts in sorted(rows.items()):
        line = ""
        for at, part in sorted(parts):
            line = line.ljust(at) + part
        shown.append(line.rstrip())
    return shown
