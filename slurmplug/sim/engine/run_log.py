"""The course of a simulated training: its progress over time, and counters."""

from bisect import bisect_right
from dataclasses import dataclass, field
from math import floor, nan
from operator import itemgetter

ALMOST = 1e-9
"""of an iteration: the tolerance for rounding"""


@dataclass(slots=True)
class RunLog:
    """Corners of the piecewise linear progress, and counters. `idle_since`: when it began to wait, of one that waits.

    `resumed_from`: the iteration at which its last run began. `placed`: the nodes that it last trained on.
    """

    times: list[float] = field(default_factory=list)
    iterations: list[float] = field(default_factory=list)
    state: str = "PENDING"
    stopped: bool = False
    wait: float = 0.0
    idle_since: float = 0.0
    bandwidth: float = 0.0
    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    resized_starts: int = 0
    resumed_from: float = 0.0
    placed: frozenset[int] = frozenset()

    def corner(self, time: float, iteration: float) -> None:
        """Note the progress at a time; between two corners it is linear."""
        if not self.times or (self.times[-1], self.iterations[-1]) != (time, iteration):
            self.times.append(time)
            self.iterations.append(iteration)

    def iteration_at(self, time: float) -> float:
        """The progress at a time between two corners."""
        after = bisect_right(self.times, time)
        if after >= len(self.times):
            return self.iterations[-1]
        left, right = self.times[after - 1], self.times[after]
        low, high = self.iterations[after - 1], self.iterations[after]
        return low + (high - low) * (time - left) / (right - left) if right > left else high

    def time_of(self, iteration: float) -> float:
        """When the progress last came to an iteration; NaN where it never did."""
        for at in range(len(self.times) - 1, 0, -1):
            low, high = self.iterations[at - 1], self.iterations[at]
            if low < iteration <= high:
                return self.times[at - 1] + (self.times[at] - self.times[at - 1]) * (iteration - low) / (high - low)
        return nan

    def last_checkpoint(
        self, before: tuple[float, float], requested: float, since: float, every: float
    ) -> tuple[float, float]:
        """The iteration of the last checkpoint until the last corner, and when it was saved.

        before: those of the run before. requested: the iteration after which a save was requested, NaN for none.
        since: when it began to train. every: seconds between checkpoints of its own, 0 for none.
        """
        saves = [before]
        now, done = self.times[-1], self.iterations[-1]
        if requested <= done + ALMOST:
            reached = self.time_of(requested)
            saves.append((requested, reached if reached == reached else now))
        if every and now - since >= every:
            last = since + floor((now - since) / every) * every
            saves.append((float(floor(self.iteration_at(last) + ALMOST)), last))
        made = [(iteration, time) for iteration, time in saves if iteration > 0]
        return max(made, key=itemgetter(1)) if made else before
