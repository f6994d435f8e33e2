"""What a simulated training has been through."""

from bisect import bisect_right
from dataclasses import dataclass, field
from math import floor, nan
from operator import itemgetter

ALMOST = 1e-9
"""of an iteration: what rounding may lack of one that is done"""


@dataclass
class Story:
    """Corners of the progress, and what is counted. `idle_since`: when it began to wait, of one that waits.

    `saved`: the iteration that it last took up from. `placed`: the nodes it last trained on.
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
    saved: float = 0.0
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
        self, before: tuple[float, float], asked: float, since: float, every: float
    ) -> tuple[float, float]:
        """The iteration of the last checkpoint until the last corner, and when it was saved.

        before: those of the run before. asked: after which iteration the run was asked to save, NaN where it was not.
        since: when it began to train. every: seconds between checkpoints of its own, 0 for none.
        """
        saves = [before]
        now, done = self.times[-1], self.iterations[-1]
        if asked <= done + ALMOST:
            reached = self.time_of(asked)
            saves.append((asked, reached if reached == reached else now))
        if every and now - since >= every:
            last = since + floor((now - since) / every) * every
            saves.append((float(floor(self.iteration_at(last) + ALMOST)), last))
        made = [(iteration, time) for iteration, time in saves if iteration > 0]
        return max(made, key=itemgetter(1)) if made else before
