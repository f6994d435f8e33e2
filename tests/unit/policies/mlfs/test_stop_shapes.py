"""Trainings of several shapes under the real cycle: when each is stopped, and by which quantity."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from predictors.arrays import Floats
from tests.ledgers import Site

ITERATIONS = 60
AT = np.arange(1.0, ITERATIONS + 1)
FALLING_LOSS = 2.3 * np.exp(-AT / 20)
FLAT = np.full(ITERATIONS, 0.99)
OVERFITTING = np.where(AT <= 8, 0.4 + 0.05 * AT, 0.8 - 0.003 * (AT - 8))


@contextmanager
def trained(folder: Path, directives: str, quantities: Mapping[str, Floats]) -> Iterator[tuple[Site, int | None]]:
    """A job that reported these quantities (iterations,), and the iteration after which it was asked to stop."""
    with Site(folder) as site:
        job = site.cluster.submit(f"#!/bin/sh\n#PLUG {directives} --max-iterations={ITERATIONS}\ntrain\n".encode())
        site.cluster.start(job)
        asked = None
        for iteration in range(1, ITERATIONS):
            site.cluster.say(
                job, iteration=iteration, **{name: float(v[iteration - 1]) for name, v in quantities.items()}
            )
            site.cycle(seconds=30.0)
            if "ask" in site.cluster.verbs():
                asked = iteration
                break
        yield site, asked


def test_a_validation_loss_that_still_falls_keeps_a_job_of_flat_accuracy_going(tmp_path: Path) -> None:
    with trained(tmp_path, "--stop=optstop", {"loss": FALLING_LOSS, "accuracy": FLAT, "val_loss": FALLING_LOSS}) as (
        _,
        asked,
    ):
        assert asked is None


def test_a_training_loss_that_falls_keeps_no_job_going(tmp_path: Path) -> None:
    with trained(tmp_path, "--stop=optstop", {"loss": FALLING_LOSS, "accuracy": FLAT}) as (_, asked):
        assert asked is not None
        assert asked < 10


def test_a_job_whose_accuracy_falls_is_stopped(tmp_path: Path) -> None:
    with trained(tmp_path, "--stop=optstop", {"loss": FALLING_LOSS, "accuracy": OVERFITTING}) as (site, asked):
        assert asked is not None
        assert asked <= 20
        assert "it has reached 0.8 at iteration 8, and has fallen since" in site.ask("why", "1")


def test_a_training_loss_alone_stops_no_job(tmp_path: Path) -> None:
    with trained(tmp_path, "--stop=optstop", {"loss": FLAT}) as (_, asked):
        assert asked is None


@pytest.mark.parametrize(
    ("directives", "others"),
    [("--stop=optstop", {}), ("--stop=optstop:val_loss", {"accuracy": AT / 100})],
)
def test_a_job_is_judged_by_the_quantity_that_it_names_else_by_what_there_is(
    tmp_path: Path, directives: str, others: Mapping[str, Floats]
) -> None:
    quantities = {"loss": FALLING_LOSS, "val_loss": 1.0 - OVERFITTING, **others}
    with trained(tmp_path, directives, quantities) as (site, asked):
        assert asked is not None
        assert asked <= 20
        assert "Its val_loss gets no better: it has reached 0.2 at iteration 8" in site.ask("why", "1")


class TestDivergence:
    LOST = np.where(AT < 12, FALLING_LOSS, np.nan)

    def test_a_job_whose_loss_is_nan_is_stopped_after_five_reports_of_it(self, tmp_path: Path) -> None:
        with trained(tmp_path, "--stop=optstop", {"loss": self.LOST}) as (site, asked):
            assert asked == 16
            why = site.ask("why", "1")
            assert "Iteration 16 of 60: loss nan." in why
            assert "Its training has diverged." in why
            assert "stop, by the rule diverged. Its training has diverged: its last 5 losses are NaN or infinite" in why
            assert "stop (diverged): requested" in site.ask("queue")

    @pytest.mark.parametrize("stop", ["--stop=target --target=accuracy>=0.9", "--stop=iterations"])
    def test_one_that_may_not_be_stopped_for_it_is_marked(self, tmp_path: Path, stop: str) -> None:
        with trained(tmp_path, stop, {"loss": self.LOST, "accuracy": AT / 200}) as (site, asked):
            assert asked is None
            assert "Its training has diverged." in site.ask("why", "1")
            (row,) = site.json("acct")["jobs"]
            assert (row["diverged"], row["loss"], row["stop"]) == (True, "nan", "")

    def test_an_infinite_loss_that_comes_back_has_not_diverged(self, tmp_path: Path) -> None:
        spikes = np.where((AT > 10) & (AT % 5 != 0), np.inf, FALLING_LOSS)
        with trained(tmp_path, "--stop=optstop", {"loss": spikes}) as (site, asked):
            assert asked is None
            assert "diverged" not in site.ask("why", "1")
