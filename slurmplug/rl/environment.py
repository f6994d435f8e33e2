"""Scheduling as a gymnasium environment: a step is one choice of a decision, and its reward what happened after it.

A policy's decision is a sequence of choices (`policies.choices`), of which the environment asks one a step. With the
last one the plan is carried out, and the simulation goes on to the next cycle in which there is something to choose;
steps before it have no reward and take no time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from policies.choices import Choices
from slurmplug.cycle.observed import Observed
from slurmplug.errors import UsageError
from slurmplug.rl.episode import Episode, Window
from slurmplug.rl.training_workloads import FIRST_SEED, LAST_SEED
from slurmplug.sim.experiment.simulation import Simulation

LARGEST = float(np.finfo(np.float32).max)
State = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Task:
    """What is to be learnt. For environments in other processes its functions must be picklable.

    simulation: a new one, of a seed for training. choices: those of a decision. reward: of what happened from one
    decision to the next. state: by name, the most that each array of `Choices.state` may have on each axis. numbers:
    the most that may be chosen from.
    """

    simulation: Callable[[int], Simulation]
    choices: Callable[[Observed], Choices]
    reward: Callable[[Window], float]
    state: Mapping[str, tuple[int, ...]]
    numbers: int


class AllowedNumbers(spaces.Discrete):
    """Numbers from 0, of which `sample` draws one that is allowed at present."""

    allowed: NDArray[np.int8] | None = None

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        """A number that the mask allows; without one, that the present choice allows."""
        if mask is None and probability is None:
            mask = self.allowed
        return super().sample(mask, probability)


class SchedulingEnvironment(gymnasium.Env[State, np.int64]):
    """One simulated workload an episode.

    A state is padded with zeros. `info` has `action_mask` (numbers,), 1 for what may be chosen now; `seconds`, which
    passed in the simulation since the last step, to discount by; and at the end `unfinished`, the jobs that were left
    when nothing could happen any more.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 as gymnasium declares it

    def __init__(self, task: Task) -> None:
        self._task = task
        self.observation_space: spaces.Dict[Any] = spaces.Dict(  # type: ignore[assignment]
            {name: spaces.Box(-LARGEST, LARGEST, shape, np.float32) for name, shape in task.state.items()}
        )
        self.action_space: AllowedNumbers = AllowedNumbers(task.numbers)
        self._episode: Episode | None = None
        self._choices: Choices | None = None
        self._mask = np.zeros(task.numbers, dtype=np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        """Begin another workload; with a seed, the one that this seed draws, and after it the same ones.

        Raises:
            UsageError: there is nothing to choose in it
        """
        super().reset(seed=seed, options=options)
        drawn = int(self.np_random.integers(FIRST_SEED, LAST_SEED))
        self._episode = Episode(self._task.simulation(drawn))
        self._choices = None if self._episode.observed is None else self._task.choices(self._episode.observed)
        _, seconds = self._go_on(self._episode)
        if self._choices is None:
            raise UsageError(f"in the workload of seed {drawn} there is nothing to choose")
        return self._state(), self._info(seconds)

    def step(self, action: Any) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """Make the present choice.

        Raises:
            ValueError: the episode is over, or the number may not be chosen
        """
        if self._choices is None or self._episode is None:
            raise ValueError("the episode is over: call reset")
        number = int(action)
        if not 0 <= number < len(self._mask) or not self._mask[number]:
            raise ValueError(f"{number} may not be chosen: info['action_mask'] says what may")
        self._choices.choose(number)
        reward, seconds = self._go_on(self._episode)
        over = self._choices is None
        info = self._info(seconds)
        if over:
            info["unfinished"] = self._episode.simulation.engine.unfinished
        return self._state(), reward, over, False, info

    def _go_on(self, episode: Episode) -> tuple[float, float]:
        """Carry out decisions until there is something to choose, or the episode is over; the rewards and seconds."""
        reward = seconds = 0.0
        while self._choices is not None and self._choices.done:
            window = episode.advance(self._choices.plan())
            reward += self._task.reward(window)
            seconds += window.seconds
            self._choices = None if episode.observed is None else self._task.choices(episode.observed)
        self._mask = np.zeros(self._task.numbers, dtype=np.int8)
        if self._choices is not None:
            mask = self._choices.mask
            self._mask[: len(mask)] = mask
        self.action_space.allowed = self._mask
        return reward, seconds

    def _state(self) -> State:
        state = {} if self._choices is None else self._choices.state
        return {name: padded(name, state.get(name), shape) for name, shape in self._task.state.items()}

    def _info(self, seconds: float) -> dict[str, Any]:
        return {"action_mask": self._mask.copy(), "seconds": seconds}


def padded(name: str, array: NDArray[Any] | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The array in one of that shape, with zeros behind it on each axis.

    Raises:
        ValueError: it is larger
    """
    whole = np.zeros(shape, dtype=np.float32)
    if array is not None:
        if array.ndim != len(shape) or any(have > most for have, most in zip(array.shape, shape, strict=True)):
            raise ValueError(f"{name} is of shape {array.shape}, more than {shape}: give the task a larger state")
        whole[tuple(slice(size) for size in array.shape)] = array
    return whole
