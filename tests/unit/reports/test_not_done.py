"""The section of `why` on what a job asks for and cannot be done."""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from tests.ledgers import Site, run
from tests.moving import MovingSite


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


def not_done(site: Site, directives: str, **reported: float) -> list[str]:
    job = site.cluster.submit(f"#!/bin/sh\n#PLUG {directives}\ntrain\n".encode())
    site.cluster.start(job)
    if reported:
        for i in range(1, 5):
            site.cluster.time += 1.0
            site.cluster.say(job, iteration=i, **reported)
    site.cycle()
    output = site.ask("why", str(job))
    _, heading, section = output.partition("Not done, and why:\n")
    return [line.strip() for line in takewhile(lambda line: line.startswith("  "), section.splitlines()) if heading]


@pytest.mark.parametrize(
    ("directives", "reported", "said"),
    [
        ("--stop=optstop", {}, "is not forecast without --max-iterations"),
        ("--allow-downgrade=optstop", {}, "is not forecast without --max-iterations"),
        ("--gpus=1..4", {}, "requires --checkpoint"),
        ("--target=accuracy>=0.9", {"val_accuracy": 0.5}, "never reported accuracy, but val_accuracy; did you mean"),
        ("--target=f1>=0.9", {"loss": 0.5}, "it has never reported f1, but loss."),
        ("--stop=optstop --max-iterations=9", {"loss": 0.5}, "neither accuracy nor a validation quantity"),
        ("--max-iterations=3", {"accuracy": 0.5}, "iteration 4, beyond its --max-iterations=3"),
    ],
)
def test_what_is_asked_for_and_cannot_be_done_is_told(
    directives: str, reported: dict[str, float], said: str, site: Site
) -> None:
    assert said in " ".join(not_done(site, directives, **reported))


@pytest.mark.parametrize(
    ("directives", "reported"),
    [
        ("--stop=optstop --max-iterations=9", {"val_loss": 0.5}),
        ("--gpus=1..4 --checkpoint=file", {}),
        ("--gpus=2", {}),
        ("--target=accuracy>=0.9", {}),
        ("--target=f1>=0.9 --max-iterations=4", {"f1": 0.5, "loss": 1.0}),
        ("--manage=off --stop=optstop", {}),
    ],
)
def test_nothing_is_told_where_all_can_be_done(directives: str, reported: dict[str, float], site: Site) -> None:
    assert not_done(site, directives, **reported) == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\n#PLUG --type=x\ncd data\n#PLUG --deadline=2h\n", "line 4: #PLUG --deadline=2h: follows the first"),
        ("#!/bin/sh\n# PLUG --deadline=2h\ntrain\n", "line 2: # PLUG --deadline=2h: is not read: write #PLUG"),
    ],
)
def test_lines_that_are_not_read_are_told(script: str, said: str, site: Site) -> None:
    job = site.cluster.submit(script.encode())
    site.cycle()
    assert said in site.ask("why", str(job))


def test_a_pattern_that_matched_nothing_is_told(site: Site) -> None:
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.9\ntrain\n")
    site.cluster.start(job)
    site.cluster.reports[job] = b'{"time": %.1f, "unmatched pattern": 1}\n' % site.cluster.time
    site.cycle()
    said = site.ask("why", str(job))
    assert "Its progress is not known: its output has not matched the --pattern of slurmplug run." in said
    assert "Reports not believed" not in said


def test_one_pattern_of_several_that_matched_nothing_is_told_once_the_job_has_ended(site: Site) -> None:
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --target=accuracy>=0.9\ntrain\n")
    site.cluster.start(job)
    site.train(job, {1: 0.5})
    site.cluster.reports[job] += b'{"time": %.1f, "unmatched pattern": 1}\n' % site.cluster.time
    site.cycle()
    assert "slurmplug run" not in site.ask("why", str(job))
    site.cluster.end(job)
    site.cycle()
    assert "No line of its output has matched one of the patterns of slurmplug run." in site.ask("why", str(job))


def test_optstop_without_a_length_still_stops_at_its_target(site: Site) -> None:
    (said,) = not_done(site, "--stop=optstop --target=accuracy>=0.9")
    assert "only at its target, or if its training diverges" in said


def test_a_site_that_does_not_resize_is_named(tmp_path: Path) -> None:
    with Site(tmp_path, mode={"default": "act", "resize": "observe"}) as site:
        assert "the mode for resizes is observe here" in " ".join(not_done(site, "--gpus=1..4 --checkpoint=file"))


def test_a_policy_that_gives_nobody_another_size_is_named(tmp_path: Path) -> None:
    config = tmp_path / "slurmplug.toml"
    config.write_text("[policies.mlfs]\ngrow = false\n")
    with Site(tmp_path) as site:
        job = site.cluster.submit(b"#!/bin/sh\n#PLUG --gpus=1..4 --checkpoint=file\ntrain\n")
        site.cycle()
        said = site.ask("why", "--config", str(config), str(job))
    assert "Its number of GPUs is not changed: policies.mlfs.grow is false here." in " ".join(said.split())


def test_a_job_that_slurm_does_not_requeue_is_told_so_once_a_resize_was_planned(tmp_path: Path) -> None:
    site = MovingSite(tmp_path / "ledger.db")
    job = site.training()
    site.cluster.jobs[job] |= {"request": {"requeue": False}}
    site.cycle(kind="resize", gpus=4)
    site.ledger.close()
    said = run("why", "--ledger", str(tmp_path / "ledger.db"), str(job)).output
    assert "it was submitted with --no-requeue, or the site does not requeue" in " ".join(said.split())
