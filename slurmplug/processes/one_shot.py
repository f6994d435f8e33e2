"""A child process of the daemon that computes one result, sends it, and ends."""

import select
from contextlib import suppress
from typing import Any

from slurmplug.processes.child import Child, Serve

RECEIVE_SECONDS = 2.0
"""for which the rest of the result is waited for once its beginning has arrived"""


class OneShotProcess(Child):
    """A process that sends one message, its result."""

    def __init__(self, name: str, serve: Serve, *arguments: Any) -> None:
        """As `Child`."""
        super().__init__(name, serve, *arguments)
        self._result: Any = None

    def result(self) -> Any:
        """The result; None while it has not arrived. Does not block. Raises ConnectionError: the process failed."""
        if self._result is None and select.select([self.channel], [], [], 0.0)[0]:
            with suppress(TimeoutError):
                self._result = self.channel.receive(RECEIVE_SECONDS)
        return self._result
