"""A child process of the daemon that is started again whenever it has ended."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from slurmplug.processes.child import Child, Serve

CHECK_INTERVAL = 1.0
"""Seconds at most between two checks that the process runs, and with the present configuration."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class SupervisedProcess(Generic[T]):
    """The daemon's handle of such a process: sends it each new configuration (T), and answers its messages."""

    def __init__(self, name: str, serve: Serve, config: T, answer: Callable[[T, Any], Any] | None = None) -> None:
        """Start it. Raises OSError.

        answer: the answer to a message, given the configuration in force; None if the process sends no messages.
        """
        self._name, self._config, self._answer = name, config, answer
        self._closed = threading.Event()
        self._child = Child(name, serve, config)
        threading.Thread(target=self._watch, name=name, daemon=True).start()

    def use(self, config: T) -> None:
        """Send the process another configuration."""
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
                message = self._child.channel.receive(CHECK_INTERVAL)
                if self._answer is not None:
                    self._child.channel.send(self._answer(self._config, message))
            except TimeoutError:
                continue
            except (OSError, ValueError):  # it has ended, or this end was closed meanwhile
                if self._closed.wait(CHECK_INTERVAL):
                    return
                self._restart()

    def _restart(self) -> None:
        try:
            self._child.start_again(self._config)
        except OSError as error:
            log.error("the process %s cannot be started: %s", self._name, error)
