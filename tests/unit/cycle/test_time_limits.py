"""In a cycle, a run that its time limit is about to end is ended before, where the site says so."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from slurmplug.cluster.limits import Limits
from tests.moving import MovingSite

AHEAD = {"requeue_before_limit": 30.0}


@contextmanager
def site(guardrails: dict[str, float], mode: str = "act") -> Iterator[MovingSite]:
    """A job that has an hour and has trained for fifty minutes; grace 100 s, cycles configured a minute apart."""
    made = MovingSite(mode={"preempt": mode}, guardrails=guardrails)
    with closing(made.ledger):
        made.training(time_limit=3600.0)
        made.cycle()
        made.cycle(after=3000.0)
        yield made


def test_it_saves_and_is_requeued_before_its_limit() -> None:
    with site(AHEAD) as made:
        made.cycle(after=300.0)
        assert made.operations() == []
        made.cycle(after=130.0)
        [operation] = made.operations()
        assert (operation["kind"], operation["rule"], operation["step"]) == ("preempt", "time limit ahead", "save")
        made.saves(1)
        for _ in range(3):
            made.cycle()
        assert made.cluster.jobs[1]["state"] != "RUNNING"


@pytest.mark.parametrize(("mode", "guardrails"), [("act", {}), ("observe", AHEAD)])
def test_unless_the_site_says_so_its_limit_ends_it(mode: str, guardrails: dict[str, float]) -> None:
    with site(guardrails, mode) as made:
        made.cycle(after=430.0)
        assert made.operations() == []
        assert made.vetoes() == (["mode"] if guardrails else [])


@pytest.mark.parametrize(("minutes", "vetoes"), [(10_000.0, []), (60.0, ["time limit"])])
def test_the_limits_of_the_cluster_bound_how_far_a_time_limit_is_raised(minutes: float, vetoes: list[str]) -> None:
    made = MovingSite(guardrails={"raise_time_limit": 100.0})
    with closing(made.ledger):
        made.training(time_limit=3600.0, partition="gpu")
        made.cluster.limited = Limits(partition_wall={"gpu": 60 * minutes})
        for iteration in range(6, 12):
            made.cluster.time += 60.0
            made.trains(1, iteration)
            made.cycle()
        made.cycle(kind="resize", gpus=1)
        assert made.vetoes() == vetoes
        assert len(made.operations()) == 1 - len(vetoes)
