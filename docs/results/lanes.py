"""Processes that take calls from one queue, each those of the workload that it has at hand before any others.

Runs of one workload share its forecasts of curves (`cases`), a third of the work of a run with stopping. A process
keeps those of one workload at a time.
"""

from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ProcessPoolExecutor
from os import getpid
from threading import Condition, Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from threadpoolctl import threadpool_limits


class _Call(NamedTuple):
    future: Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Lanes:
    """So many processes with one thread each, until the end of a `with` block, which waits for all calls."""

    def __init__(self, processes: int) -> None:
        self._waiting: dict[Hashable, deque[_Call]] = {}
        self._at_hand: dict[int, Hashable] = {}
        """what each lane works on"""
        self._changed, self._closed = Condition(), False
        self._processes = [
            ProcessPoolExecutor(1, initializer=threadpool_limits, initargs=(1,)) for _ in range(processes)
        ]
        self._threads = [Thread(target=self._work, args=(lane,), daemon=True) for lane in range(processes)]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.submit(getpid).result()  # each is forked before there are threads that may hold a lock
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._changed:
            if error is not None:
                for call in (call for calls in self._waiting.values() for call in calls):
                    call.future.cancel()
                self._waiting.clear()
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.shutdown()

    def submit(self, group: Hashable, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a process call the function; calls of one group follow each other in it as far as there are any."""
        call = _Call(Future(), function, arguments)
        with self._changed:
            self._waiting.setdefault(group, deque()).append(call)
            self._changed.notify()
        return call.future

    def _work(self, lane: int) -> None:
        while call := self._next(lane):
            try:
                call.future.set_result(self._processes[lane].submit(call.function, *call.arguments).result())
            except BaseException as error:  # noqa: BLE001 whoever waits for the result gets it
                call.future.set_exception(error)

    def _next(self, lane: int) -> _Call | None:
        """The lane's next call, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            if self._at_hand.get(lane) not in self._waiting:
                self._at_hand[lane] = self._largest(lane)
            group = self._at_hand[lane]
            calls = self._waiting[group]
            call = calls.popleft()
            if not calls:
                del self._waiting[group]
            return call

    def _largest(self, lane: int) -> Hashable:
        """The group with the most calls, of those that no other lane has at hand where there are any."""
        others = {group for each, group in self._at_hand.items() if each != lane}
        return max(self._waiting, key=lambda group: (group not in others, len(self._waiting[group])))
