"""What a simulated training has been through."""

from bisect import bisect_right
from dataclasses import dataclass, field


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
