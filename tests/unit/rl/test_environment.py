"""The environment follows gymnasium's interface, and what it does is the simulation."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytestmark = pytest.mark.rl

from gymnasium.utils.env_checker import check_env  # noqa: E402

from slurmplug.rl.environment import SchedulingEnvironment, padded  # noqa: E402
from slurmplug.rl.episode import Episode  # noqa: E402
from slurmplug.rl.training_workloads import FIRST_SEED, LAST_SEED  # noqa: E402
from slurmplug.rl.vector import processes  # noqa: E402
from tests import rl_tasks  # noqa: E402


def first_allowed(info: dict[str, Any]) -> int:
    return int(np.flatnonzero(info["action_mask"])[0])


def steps(environment: SchedulingEnvironment, seed: int) -> Iterator[tuple[Any, ...]]:
    """An episode in which the first number that may be chosen always is."""
    state, info = environment.reset(seed=seed)
    over = False
    while not over:
        state, reward, over, _, info = environment.step(first_allowed(info))
        yield state, reward, over, info


def test_gymnasiums_checker_passes_without_a_warning_but_for_what_is_not_rendered() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(SchedulingEnvironment(rl_tasks.TASK))
    assert [str(each.message) for each in caught if "render modes" not in str(each.message)] == []


def test_an_environment_gives_the_rewards_of_the_simulation_that_it_runs() -> None:
    drawn = int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(7))).integers(FIRST_SEED, LAST_SEED))
    episode = Episode(rl_tasks.simulation(drawn))
    by_hand = 0.0
    while episode.observed is not None:
        choices = rl_tasks.choices(episode.observed)
        while not choices.done:
            choices.choose(int(np.flatnonzero(choices.mask)[0]))
        by_hand += rl_tasks.reward(episode.advance(choices.plan()))
    taken = list(steps(SchedulingEnvironment(rl_tasks.TASK), seed=7))
    assert sum(reward for _, reward, _, _ in taken) == pytest.approx(by_hand)
    assert sum(info["seconds"] for *_, info in taken) <= episode.simulation.engine.now
    assert taken[-1][3]["unfinished"] == 0


def test_a_choice_within_a_decision_takes_no_time_and_has_no_reward() -> None:
    taken = list(steps(SchedulingEnvironment(rl_tasks.TASK), seed=7))
    within = [(reward, info["seconds"]) for _, reward, _, info in taken if not info["seconds"]]
    assert within
    assert all(reward == 0 for reward, _ in within)


def test_a_seed_gives_the_same_workloads_in_the_same_order() -> None:
    one, other = SchedulingEnvironment(rl_tasks.TASK), SchedulingEnvironment(rl_tasks.TASK)
    for environment in (one, other):
        environment.reset(seed=3)
    (first, _), (again, _) = one.reset(), other.reset()
    assert np.array_equal(first["jobs"], again["jobs"])
    assert not np.array_equal(one.reset(seed=3)[0]["jobs"], one.reset(seed=4)[0]["jobs"])


def test_what_the_mask_forbids_is_refused() -> None:
    environment = SchedulingEnvironment(rl_tasks.TASK)
    _, info = environment.reset(seed=1)
    forbidden = int(np.flatnonzero(info["action_mask"] == 0)[0])
    with pytest.raises(ValueError, match=f"{forbidden} may not be chosen"):
        environment.step(forbidden)
    with pytest.raises(ValueError, match="-1 may not be chosen"):
        environment.step(-1)


def test_the_action_space_draws_what_is_allowed() -> None:
    environment = SchedulingEnvironment(rl_tasks.TASK)
    _, info = environment.reset(seed=1)
    drawn = {int(environment.action_space.sample()) for _ in range(200)}
    assert drawn == set(np.flatnonzero(info["action_mask"]).tolist())


def test_a_step_after_the_end_is_refused() -> None:
    environment = SchedulingEnvironment(rl_tasks.TASK)
    with pytest.raises(ValueError, match="call reset"):
        environment.step(0)
    state, _, over, info = list(steps(environment, seed=2))[-1]
    assert over
    assert not info["action_mask"].any()
    assert not state["jobs"].any()
    with pytest.raises(ValueError, match="call reset"):
        environment.step(0)


def test_a_state_larger_than_the_tasks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"jobs is of shape \(3, 2\), more than \(2, 2\)"):
        padded("jobs", np.ones((3, 2)), (2, 2))
    small = replace(rl_tasks.TASK, state={"jobs": (1, 3)})
    with pytest.raises(ValueError, match="give the task a larger state"):
        list(steps(SchedulingEnvironment(small), seed=1))


def test_environments_in_processes_do_what_one_here_does() -> None:
    together = processes(rl_tasks.TASK, 2)
    try:
        states, infos = together.reset(seed=5)
        for number in range(2):
            alone = SchedulingEnvironment(rl_tasks.TASK)
            state, info = alone.reset(seed=5 + number)
            assert np.array_equal(states["jobs"][number], state["jobs"])
            assert np.array_equal(infos["action_mask"][number], info["action_mask"])
        actions = [first_allowed({"action_mask": mask}) for mask in infos["action_mask"]]
        states, rewards, _, _, infos = together.step(actions)
        for number in range(2):
            alone = SchedulingEnvironment(rl_tasks.TASK)
            alone.reset(seed=5 + number)
            state, reward, _, _, info = alone.step(actions[number])
            assert np.array_equal(states["jobs"][number], state["jobs"])
            assert rewards[number] == reward
            assert np.array_equal(infos["action_mask"][number], info["action_mask"])
    finally:
        together.close()
