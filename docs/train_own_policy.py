"""An example: a policy of one's own learns in slurmplug's environment, by REINFORCE (Williams, 1992), without torch.

    python -m docs.train_own_policy 30

It gives GPUs one after another, as DL2 does (`policies.dl2.Allocation`): each job has a score, linear in its features,
and the more probable a job is the higher its score. Two episodes a step, each in a process of its own.
"""

import sys
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv

from policies.dl2 import DL2, Allocation, Allocator, DL2Settings
from predictors.arrays import Floats
from slurmplug.cycle.observed import Observed
from slurmplug.rl.environment import Task
from slurmplug.rl.episode import Window
from slurmplug.rl.training_workloads import TrainingWorkloads
from slurmplug.rl.vector import processes
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

SLOT, MOST = 1200.0, 32
ALLOCATOR = Allocator((), MOST, SLOT)
WORKLOADS = TrainingWorkloads("gen:dl2", clusters=("4x4",), jobs=20, loads=(1.0, 2.0))
RATE = 0.02


def simulation(seed: int) -> Simulation:
    """One workload; of its policy only what it needs and when it decides counts."""
    workload, cluster = WORKLOADS.sample(seed)
    return Simulation(workload, DL2(DL2Settings(slot=SLOT)), SimulationSettings(cluster, SLOT, seed))


def choices(observed: Observed) -> Allocation:
    """What is asked in a slot: which job gets the next GPU, or nobody, which is the last number that may be chosen."""
    return ALLOCATOR.choices(observed.snapshot, observed.forecasts, begins=True)


def reward(window: Window) -> float:
    """All rewards of an episode sum to minus the hours that its jobs took from submission to end."""
    return -window.job_seconds / 3600


TASK = Task(simulation, choices, reward, {"jobs": (MOST, ALLOCATOR.features)}, MOST + 1)


class Played(NamedTuple):
    """An episode: its rewards, and the gradient of the logarithm of each choice's probability (steps, features + 1)."""

    rewards: list[float]
    gradients: list[Floats]


def draw(weights: Floats, jobs: Floats, mask: Floats, rng: np.random.Generator) -> tuple[int, Floats]:
    """A choice among those of the mask, and the gradient. The last weight is the score of giving no more GPUs."""
    allowed = np.flatnonzero(mask)
    features = np.zeros((len(allowed), len(weights)))
    features[:-1, :-1], features[-1, -1] = jobs[allowed[:-1]], 1.0
    scores = features @ weights
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    chosen = int(rng.choice(len(allowed), p=chances))
    return int(allowed[chosen]), features[chosen] - chances @ features


def play(environments: VectorEnv[Any, Any, Any], weights: Floats, rng: np.random.Generator, seed: int) -> list[Played]:
    """One episode in each environment, all of the workload of this seed."""
    played = [Played([], []) for _ in range(environments.num_envs)]
    states, infos = environments.reset(seed=[seed] * len(played))  # type: ignore[arg-type]  # gymnasium takes both
    going_on = np.ones(len(played), dtype=bool)
    while going_on.any():
        numbers = infos["action_mask"].argmax(axis=1)  # of an episode that is over: any that may be chosen
        for at in np.flatnonzero(going_on).tolist():
            numbers[at], gradient = draw(weights, states["jobs"][at], infos["action_mask"][at], rng)
            played[at].gradients.append(gradient)
        states, rewards, over, _, infos = environments.step(numbers)
        for at in np.flatnonzero(going_on).tolist():
            played[at].rewards.append(float(rewards[at]))
        going_on &= ~over
    return played


def train(steps: int, seed: int = 0, count: int = 2) -> Floats:
    """The weights (features + 1,) after so many steps, each of `count` episodes of one workload: the choices of those
    with fewer hours in all are made more probable."""
    rng, weights = np.random.default_rng(seed), np.zeros(ALLOCATOR.features + 1)
    environments = processes(TASK, count)
    try:
        for step in range(steps):
            played = play(environments, weights, rng, seed + step)
            totals = np.array([sum(each.rewards) for each in played])
            for each, total in zip(played, totals, strict=True):
                weights += RATE * (total - totals.mean()) / (totals.std() + 1e-9) * np.mean(each.gradients, axis=0)
            print(f"{step + 1}: {-totals.mean() / WORKLOADS.jobs:.2f} hours a job", flush=True)
    finally:
        environments.close()
    return weights


if __name__ == "__main__":
    print(train(int(sys.argv[1])))
