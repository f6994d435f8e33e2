"""A process beside the daemon's that is always to be there: another one is started when it has ended."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from slurmplug.processes.child import Child, Serve

LOOK = 1.0
"""Seconds from one look whether the process runs, and with which configuration, to the next at most."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Kept(Generic[T]):
    """The process, as the daemon has it. It is sent each configuration (T), and its messages are answered."""

    def __init__(self, name: str, serve: Serve, config: T, answer: Callable[[T, Any], Any] | None = None) -> None:
        """Start it. `answer`: to a message, under the configuration in force; None if it sends none. Raises OSError."""
        self._name, self._config, self._answer = name, config, answer
        self._closed = threading.Event()
        self._child = Child(name, serve, config)
        threading.Thread(target=self._watch, name=name, daemon=True).start()

    def use(self, config: T) -> None:
        """Take another configuration."""
        self._config = config

    def close(self) -> None:
        """End the process, without waiting for it."""
        self._closed.set()
        self._child.kill()

    def _watch(self) -> None:
        given = self._config
        while not self._closed.is_set():
            try:
                if self._config is not given:
                    given = self._config
                    self._child.channel.send(given)
                message = self._child.channel.receive(LOOK)
                if self._answer is not None:
                    self._child.channel.send(self._answer(self._config, message))
            except TimeoutError:
                continue
            except (OSError, ValueError):  # it has ended, or this end was closed meanwhile
                if self._closed.wait(LOOK):
                    return
                self._begin_again()

    def _begin_again(self) -> None:
        try:
            self._child.start_again(self._config)
        except OSError as error:
            log.error("the process %s cannot be started: %s", self._name, error)
