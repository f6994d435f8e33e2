"""A process beside the daemon's that makes one thing: it sends that, and is not needed any more."""

import select
from contextlib import suppress
from typing import Any

from slurmplug.processes.child import Child, Serve

TAKE_SECONDS = 2.0
"""for which the rest of what was made is waited for when its beginning has come"""


class Once(Child):
    """A process whose one message is what it was started for."""

    def __init__(self, name: str, serve: Serve, *arguments: Any) -> None:
        """As `Child`."""
        super().__init__(name, serve, *arguments)
        self._made: Any = None

    def made(self) -> Any:
        """What it sent; None while that has not come. It is not waited for. Raises ConnectionError: it has failed."""
        if self._made is None and select.select([self.channel], [], [], 0.0)[0]:
            with suppress(TimeoutError):
                self._made = self.channel.receive(TAKE_SECONDS)
        return self._made
