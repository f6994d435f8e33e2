"""Jobs whose target and reports are not in one unit are held: no rule stops them, and the user is told."""

from pathlib import Path

import pytest

from tests.ledgers import Site

PERCENT = {i: 80.0 + i for i in range(1, 9)}
SHARES = {i: min(0.86, 0.5 + i / 20) for i in range(1, 61)}


def told(folder: Path, target: str, values: dict[int, float], stop: str = "target", quantity: str = "accuracy") -> Site:
    site = Site(folder)
    script = f"#!/bin/sh\n#PLUG --target={target} --stop={stop} --max-iterations=62\ntrain\n"
    job = site.cluster.submit(script.encode())
    site.cluster.start(job)
    site.train(job, values, quantity=quantity, loss=0.5)
    site.cycle(2)
    return site


@pytest.mark.parametrize("stop", ["target", "optstop"])
def test_86_is_not_an_accuracy_of_at_least_092(tmp_path: Path, stop: str) -> None:
    with told(tmp_path, "accuracy>=0.92", PERCENT, stop) as site:
        assert "ask" not in site.cluster.verbs()
        why = site.ask("why", "1")
        assert "It is not stopped by any rule: its target is 0.92, it reports 88, and which unit is meant" in why
        assert "reports in percent" in site.ask("queue")


def test_086_is_not_given_up_for_a_target_of_92(tmp_path: Path) -> None:
    with told(tmp_path, "accuracy>=92", SHARES, "optstop") as site:
        assert "ask" not in site.cluster.verbs()
        assert "State the target from 0 to 1, or with a % sign (accuracy>=92%)" in site.ask("why", "1")
        assert "target in percent" in site.ask("queue")


def test_an_error_of_08_is_not_at_most_5_percent(tmp_path: Path) -> None:
    with told(tmp_path, "error<=5", dict.fromkeys(range(1, 9), 0.8), quantity="error") as site:
        assert "ask" not in site.cluster.verbs()
        assert "its target is 5, it has only reported values from 0 to 1, the last one 0.8" in site.ask("why", "1")


def test_reports_in_another_unit_that_are_not_believed_end_no_cycle(tmp_path: Path) -> None:
    with told(tmp_path, "accuracy>=0.92", {i * 1_000_000: 86.0 for i in range(1, 9)}) as site:
        assert "ask" not in site.cluster.verbs()
        assert "Its reports are not believed" in site.ask("why", "1")


@pytest.mark.parametrize(
    ("target", "values"),
    [("accuracy>=82", PERCENT), ("accuracy>=0.8", SHARES), ("accuracy>=80%", SHARES)],
)
def test_a_job_in_one_unit_is_stopped_at_its_target(tmp_path: Path, target: str, values: dict[int, float]) -> None:
    with told(tmp_path, target, values) as site:
        assert "ask" in site.cluster.verbs()
        assert "which unit is meant" not in site.ask("why", "1")
