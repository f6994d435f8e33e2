"""An episode is the simulation itself: the same run under the same plans, and windows that add up to its figures."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from policies.baselines.drf import DRF
from policies.mlfs.mlfs import MLFH
from policies.plan import Plan
from policies.policy import Policy
from slurmplug.rl.episode import Episode, Window
from slurmplug.sim.experiment.result import RunResult
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.experiment.summary import summary
from slurmplug.sim.workloads import load
from tests.sim_jobs import First, job, simulation, speed


def driven(simulation: Simulation) -> tuple[RunResult, list[Window]]:
    """The simulation run by its own policy through an episode."""
    episode, windows = Episode(simulation), []
    while episode.observed is not None:
        decided = simulation.scheduler.decide(episode.observed)
        assert not decided.error
        windows.append(episode.advance(decided.plan))
    return simulation.result(0.0), windows


def made(workload: str, policy: Policy) -> Simulation:
    return Simulation(load.load(workload, seed=1001, jobs=40), policy, SimulationSettings("4x4", seed=1001))


def mean(values: Sequence[float | None]) -> float:
    known = [float(value) for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


@pytest.fixture(scope="module", params=["gen:mlfs", "gen:dl2"])
def both(request: pytest.FixtureRequest) -> tuple[RunResult, RunResult, list[Window]]:
    """A workload's run by its policy, the same through an episode, and the windows."""
    policy: Callable[[], Policy] = MLFH if request.param == "gen:mlfs" else DRF
    through, windows = driven(made(request.param, policy()))
    return made(request.param, policy()).run(), through, windows


def test_an_episode_under_the_policys_plans_is_the_policys_run(both: tuple[RunResult, RunResult, list[Window]]) -> None:
    ran, through, _ = both
    figures, others = summary(ran), summary(through)
    measured = {name for name in figures if name.startswith("decide_ms") or name == "wall_s"}
    for name in figures.keys() - measured:
        assert figures[name] == pytest.approx(others[name], nan_ok=True, abs=0.0), name


def test_the_windows_of_an_episode_add_up_to_the_runs_figures(both: tuple[RunResult, RunResult, list[Window]]) -> None:
    ran, _, windows = both
    figures, ended = summary(ran), [each for window in windows for each in window.ended]
    assert len({each.key for each in ended}) == len(ended) == figures["ended"] == 40
    assert np.mean([each.jct for each in ended]) == pytest.approx(figures["jct_mean"])
    assert sum(window.job_seconds for window in windows) == pytest.approx(40 * figures["jct_mean"])
    assert sum(window.gpu_seconds for window in windows) == pytest.approx(3600 * figures["gpu_hours"])
    assert sum(window.bytes_sent for window in windows) == pytest.approx(figures["bandwidth_bytes"])
    assert mean([each.in_time for each in ended]) == pytest.approx(figures["deadline_ratio"], nan_ok=True)
    assert mean([each.accuracy for each in ended]) == pytest.approx(figures["accuracy_by_deadline"], nan_ok=True)
    assert mean([each.accurate for each in ended]) == pytest.approx(figures["accuracy_ratio"], nan_ok=True)


def test_the_windows_follow_each_other_without_a_gap(both: tuple[RunResult, RunResult, list[Window]]) -> None:
    windows = both[2]
    assert windows[0].begin == 0
    assert [window.begin for window in windows[1:]] == [window.end for window in windows[:-1]]
    assert all(window.seconds > 0 for window in windows)


def test_every_training_that_does_all_it_was_asked_for_adds_a_share_of_one(
    both: tuple[RunResult, RunResult, list[Window]],
) -> None:
    ran, _, windows = both
    shares: dict[object, float] = {}
    for window in windows:
        for key, share in zip(window.jobs.tolist(), window.shares.tolist(), strict=True):
            shares[key] = shares.get(key, 0.0) + share
    assert not any(each.stopped for each in ran.finished)
    assert list(shares.values()) == pytest.approx([1.0] * 40)


def test_a_window_has_what_was_lost_by_a_restart_as_less_than_nothing() -> None:
    episode = Episode(simulation(job(checkpoint_every=35.0), job(name="waits"), cluster="1x1"))
    windows = []
    for cycle in range(7):
        assert episode.observed is not None
        plan = First().decide(episode.observed.snapshot, episode.observed.forecasts, {})
        windows.append(episode.advance(plan))
        if cycle == 4:
            assert not episode.simulation.engine.requeue(0)
    assert [window.iterations.tolist() for window in windows] == [[10.0, 0.0]] * 5 + [[-15.0, 0.0], [10.0, 0.0]]


def test_bytes_between_nodes_are_counted_when_they_are_sent() -> None:
    wide = job(gpus=2, gpus_max=2, traffic=1e6, speed=speed((2, 1, 1.0), (2, 2, 0.5)))
    _, windows = driven(simulation(wide, job(name="waits"), cluster="2x1"))
    assert [window.bytes_sent for window in windows[:3]] == pytest.approx([5e6] * 3)
    assert sum(window.bytes_sent for window in windows) == pytest.approx(100e6)


def test_a_plan_that_is_not_valid_for_what_was_observed_is_refused() -> None:
    episode = Episode(simulation(job()))
    with pytest.raises(ValueError, match="one number per job"):
        episode.advance(Plan(np.zeros(2)))


def test_nothing_follows_the_end_of_an_episode() -> None:
    episode = Episode(simulation())
    assert episode.over
    with pytest.raises(ValueError, match="the episode is over"):
        episode.advance(Plan())
