"""How long the stages of a cycle take, and no garbage collection meanwhile."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pauses Python's cyclic garbage collector: with 10,000 jobs in memory a collection takes as long as a decision."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class StageTimes:
    """The seconds that each stage of a cycle took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add what the block takes."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + perf_counter() - start
