"""Threads of this process; where no more can be started, that is an OSError, as it is of processes."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPool(ThreadPoolExecutor):
    """A pool whose `submit` and `map` raise OSError where no thread can be started."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """As `Executor.submit`."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise no_thread(error) from error


def no_thread(error: RuntimeError) -> OSError:
    """What to raise for the error with which a thread could not be started."""
    return OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)}: {error}")
