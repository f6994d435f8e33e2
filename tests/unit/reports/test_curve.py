"""why --plot: the learning curve, as data and as it is drawn."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from predictors.learning_curve import LearningCurvePredictor
from predictors.learning_curve.predictor import FEWEST
from slurmplug.commands import curve_plot
from slurmplug.forecasting import saved_curves
from slurmplug.reports import curve
from tests.ledgers import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, mode={"default": "observe"}) as site:
        yield site


def rises(last: int) -> dict[int, float]:
    return {each: 0.9 - 0.6 * math.exp(-each / 15) + 0.01 * math.sin(7 * each) for each in range(1, last + 1)}


def falls(last: int) -> dict[int, float]:
    return {each: 1 - value for each, value in rises(last).items()}


def trained(site: Site, directives: bytes, values: Mapping[int, float], quantity: str = "accuracy") -> int:
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG %b\ntrain\n" % directives)
    site.cluster.start(job)
    site.train(job, values, quantity)
    site.cycle()
    return job


def curve_of(site: Site, job: int) -> Any:
    [found] = site.json("why", str(job), "--plot")["jobs"]
    return found["curve"]


def test_it_has_what_was_reported_and_goes_on_from_there_to_the_last_iteration(site: Site) -> None:
    values = rises(30)
    found = curve_of(site, trained(site, b"--target=accuracy>=0.88 --stop=target --max-iterations=90", values))
    assert dict(found["points"]) == pytest.approx(values)
    assert (found["quantity"], found["target"], found["last_iteration"]) == ("accuracy", 0.88, 90)
    first, *_, last = found["forecast"]
    assert first == pytest.approx([30, values[30], values[30], values[30]])
    assert last[0] == 90
    assert all(low <= median <= high for _, low, median, high in found["forecast"])


def test_its_end_is_the_prediction_of_the_last_cycle(site: Site) -> None:
    job = trained(site, b"--target=accuracy>=0.88 --max-iterations=90", rises(30))
    [row] = site.json("acct", "-j", str(job))["jobs"]
    assert curve_of(site, job)["forecast"][-1][1:] == pytest.approx([row["finallow"], row["final"], row["finalhigh"]])


def test_it_is_made_by_the_predictor_that_the_daemon_learnt(site: Site) -> None:
    job = trained(site, b"--max-iterations=90 --type=digits", rises(30))
    before = curve_of(site, job)["forecast"][-1]
    predictor = LearningCurvePredictor()
    flat = np.array(list(rises(30).values()) + [0.84] * 60)
    predictor.fit([flat + shift for shift in np.linspace(-0.02, 0.02, FEWEST)], [{"type": "digits"}] * FEWEST)
    state = saved_curves.state(predictor, {"ada", "bob", "eve"})
    site.ledger.save_model(saved_curves.NAME, predictor.version, state, 0.0)
    assert curve_of(site, job)["forecast"][-1] != pytest.approx(before)
    site.ledger.save_model(saved_curves.NAME, "an earlier version", {}, 0.0)
    assert curve_of(site, job)["forecast"][-1] == pytest.approx(before)


def test_a_stop_is_predicted_where_the_median_meets_the_target(site: Site) -> None:
    found = curve_of(site, trained(site, b"--target=accuracy>=0.88 --stop=target --max-iterations=90", rises(30)))
    assert found["stop"]["option"] == "target"
    iterations, medians = zip(*((each[0], each[2]) for each in found["forecast"]), strict=True)
    assert np.interp(found["stop"]["iteration"], iterations, medians) == pytest.approx(0.88)


def test_optstop_is_predicted_near_the_maximum(site: Site) -> None:
    found = curve_of(site, trained(site, b"--stop=optstop --max-iterations=900", rises(100)))
    assert found["stop"]["option"] == "optstop"
    assert 100 <= found["stop"]["iteration"] < 900


@pytest.mark.parametrize("directives", [b"--stop=iterations", b"--stop=target --target=accuracy>=0.999999"])
def test_no_stop_is_predicted_of_a_job_that_runs_to_its_end(site: Site, directives: bytes) -> None:
    assert curve_of(site, trained(site, directives + b" --max-iterations=90", rises(30)))["stop"] is None


def test_a_quantity_that_is_better_when_lower_keeps_its_sign(site: Site) -> None:
    values = falls(30)
    directives = b"--target=validation_loss<=0.12 --stop=target --max-iterations=90"
    found = curve_of(site, trained(site, directives, values, "validation_loss"))
    assert dict(found["points"]) == pytest.approx(values)
    assert found["target"] == 0.12
    assert all(0 < low <= median <= high < 1 for _, low, median, high in found["forecast"])
    assert found["stop"]["iteration"] > 30


def test_of_an_ended_job_only_what_it_reported_is_shown(site: Site) -> None:
    job = trained(site, b"--target=accuracy>=0.88 --stop=target --max-iterations=90", rises(30))
    site.cluster.end(job)
    site.cycle()
    found = curve_of(site, job)
    assert len(found["points"]) == 30
    assert (found["forecast"], found["stop"]) == ([], None)


def test_of_many_reports_some_are_shown_the_first_and_the_last_among_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curve, "MOST_POINTS", 10)
    points = curve_of(site, trained(site, b"--max-iterations=90", rises(30)))["points"]
    assert len(points) == 10
    assert [points[0][0], points[-1][0]] == [1, 30]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e300, 1e308])
def test_values_that_are_no_measurements_are_left_out(site: Site, value: float) -> None:
    job = trained(site, b"--max-iterations=90", {1: 0.5, 2: value, 3: 0.6})
    assert curve_of(site, job)["points"] == [[1.0, 0.5], [3.0, 0.6]]
    assert "last 0.6 at iteration 3" in site.ask("why", str(job), "--plot")


def test_of_a_job_that_reports_no_more_than_its_loss_that_is_shown(site: Site) -> None:
    found = curve_of(site, trained(site, b"--target=accuracy>=0.9 --max-iterations=90", falls(30), "loss"))
    assert dict(found["points"]) == pytest.approx(falls(30))
    assert (found["quantity"], found["target"], found["forecast"], found["stop"]) == ("loss", None, [], None)


def test_nothing_is_predicted_after_the_last_iteration(site: Site) -> None:
    found = curve_of(site, trained(site, b"--target=accuracy>=0.99 --max-iterations=30", rises(30)))
    assert (len(found["points"]), found["forecast"], found["stop"]) == (30, [], None)


def test_a_job_that_reported_nothing_is_said_to(site: Site) -> None:
    job = site.cluster.submit(name="\x1b[31mred")
    site.cycle()
    assert site.ask("why", str(job), "--plot") == f"Job {job} has reported no accuracy.\n"


def test_the_plot_names_reports_prediction_target_and_stop(site: Site) -> None:
    job = trained(site, b"--target=accuracy>=0.88 --stop=target --max-iterations=90", rises(30))
    shown = site.ask("why", str(job), "--plot")
    assert shown.startswith(f"Job {job}: accuracy\n")
    for part in ("reported, last 0.8235 at iteration 30", "(90 %: ", "target 0.88", "predicted stop at iteration "):
        assert part in shown
    assert all(character == "\n" or character.isprintable() for character in shown)
    assert "⣀" in shown


def test_it_is_ascii_where_the_locale_is_not_utf_8(site: Site) -> None:
    job = trained(site, b"--target=accuracy>=0.88 --stop=target --max-iterations=90", rises(30))
    program = [sys.executable, "-c", "from slurmplug.commands import main; main()", "why", str(job), "--plot"]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run([*program, "--ledger", str(site.path)], capture_output=True, check=True, env=environment)
    assert done.stdout.isascii()
    assert b"*" in done.stdout
    assert b"\\u" not in done.stdout


def test_it_fits_the_terminal() -> None:
    found = {
        "quantity": "accuracy", "points": [[1.0, 0.5]], "forecast": [], "target": None, "stop": None,
        "last_iteration": None,
    }  # fmt: skip
    for width in (60, 80, 120):
        lines = list(curve_plot.lines("1", found, width, unicode=False))
        assert max(map(len, lines)) <= width


def test_an_arrays_table_is_as_without(site: Site) -> None:
    for task in (1, 2):
        site.cluster.submit(array_id=7, array_task=task)
    site.cycle()
    assert site.ask("why", "7", "--plot") == site.ask("why", "7")
