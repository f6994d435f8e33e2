"""`slurmplug policy`: what is kept as a model, and what is refused with why."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policies.dl2 import DL2
from slurmplug.config import model_files
from slurmplug.ledger import model_outcomes
from slurmplug.ledger.model_outcomes import ModelCycle
from slurmplug.sim.workloads.load import load
from tests.learnt_models import OF_OTHER_VERSION, OTHER_VERSION, file_of, like_shipped, shipped
from tests.ledgers import Site

SCRIPT = b"#!/bin/sh\n#PLUG --urgency=5\ntrain\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


def test_a_model_is_added_once_and_listed_with_who_added_it(site: Site, tmp_path: Path) -> None:
    file = str(file_of(shipped(), tmp_path))
    short = shipped().digest[:12]
    assert site.ask("policy add", file) == f"dl2 {short}: added, as a candidate\n"
    assert site.ask("policy add", file) == f"dl2 {short}: already there, candidate\n"
    listed = site.ask("policy list")
    assert f"{short} dl2          {DL2.version} candidate" in listed
    assert "added by root" in listed


REFUSED = {
    "another version": (
        like_shipped(version=OTHER_VERSION),
        OF_OTHER_VERSION,
    ),
    "a policy that is not there": (like_shipped(policy="dl3"), "it is a model of 'dl3'; did you mean dl2?"),
    "a file of code": (like_shipped(policy="/tmp/x.py:X"), "it is a model of '/tmp/x.py:X'; known: "),
    "a policy that has learnt nothing": (like_shipped(policy="mlf-h"), "policy mlf-h decides by no model"),
    "other arrays": (
        like_shipped(action_job=np.zeros((3, 3), dtype=np.float32)),
        "array action.job is of shape (3, 3), not (",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_model_that_could_not_decide_is_refused(site: Site, tmp_path: Path, what: str) -> None:
    model, why = REFUSED[what]
    file = file_of(model, tmp_path)
    output = site.ask("policy add", str(file), code=1)
    assert f"model {file} is not used: " in output
    assert why in output
    assert "dl2" not in site.ask("policy list")


def test_a_damaged_model_is_refused(site: Site, tmp_path: Path) -> None:
    file = file_of(shipped(), tmp_path)
    file.write_bytes(file.read_bytes()[:-100])
    assert f"model {file} is not used" in site.ask("policy add", str(file), code=1)


def test_an_evaluation_is_kept_and_listed_beside_the_model(site: Site, tmp_path: Path) -> None:
    site.ask("policy add", str(file_of(shipped(), tmp_path)))
    digits = shipped().digest[:8]
    small = ("--cluster", "8x4", "--jobs", "10", "--on", "gen:dl2", "--seed", "0", "--seed", "1")
    output = site.ask("policy evaluate", digits, *small)
    assert "evaluated against mlfs on gen:dl2, the first 10 jobs, 8x4 (by root" in output
    assert "with 95%, 2 pairs)" in output
    assert output.splitlines()[-1] in site.ask("policy list")


def test_in_an_evaluation_the_configured_policy_decides_where_the_model_knows_no_state(
    site: Site, tmp_path: Path
) -> None:
    stranger = like_shipped(seen_limit=np.array([1e-30], dtype=np.float32))
    site.ask("policy add", str(file_of(stranger, tmp_path)))
    small = ("--cluster", "8x4", "--jobs", "10", "--on", "gen:dl2", "--seed", "0", "--seed", "1")
    output = site.ask("policy evaluate", stranger.digest[:8], *small)
    assert output.splitlines()[-1].strip() == (
        "The model decided in 0.0% of the cycles. "
        "In the others it was not followed, as it would not be on the live cluster."
    )
    [jct] = [line.split() for line in output.splitlines() if line.strip().startswith("jct_mean")]
    assert (jct[1], jct[3:6]) == (jct[2], ["+0.0%", "(+0.0%", "to"])
    why = "the last: policy dl2 is not followed: the state is unlike those it was trained on"
    assert re.search(rf"dl2, seed 1: not followed in (\d+) of \1 cycles; {why} .*; mlfs decided", output)


@pytest.mark.parametrize(
    ("seeds", "why"),
    [(("1",), "one seed gives no confidence interval"), (("1", "1000"), "seeds from 1000 on are for training")],
)
def test_seeds_that_prove_nothing_are_refused(site: Site, tmp_path: Path, seeds: tuple[str, ...], why: str) -> None:
    site.ask("policy add", str(file_of(shipped(), tmp_path)))
    given = [word for seed in seeds for word in ("--seed", seed)]
    output = site.ask("policy evaluate", shipped().digest[:8], "--cluster", "8x4", *given, code=1)
    assert why in output


def test_the_sites_own_jobs_are_the_default_workload(site: Site, tmp_path: Path) -> None:
    for number in range(24):
        job = site.cluster.submit(SCRIPT, gpus=1)
        site.cycle()
        site.cluster.start(job)
        site.cycle()
        if number % 2:
            site.train(job, {iteration: iteration / 10 for iteration in range(1, 8)})
        site.cluster.time += 600.0
        site.cluster.end(job)
        site.cycle()
        site.cluster.purge(job)
    site.ask("policy add", str(file_of(shipped(), tmp_path)))
    output = site.ask("policy evaluate", shipped().digest[:8], "--cluster", "1x2", "--seed", "0", "--seed", "1")
    assert f"on ledger:{site.path}, 1x2" in output
    workload = load(f"ledger:{site.path}")
    assert len(workload.jobs) == 24
    assert {(job.gpus, job.iterations, len(job.accuracies)) for job in workload.jobs} == {(1, 1, 0), (1, 7, 7)}
    assert {job.urgency for job in workload.jobs} == {5.0}


@pytest.mark.parametrize("policy", ["dl2", "mlf-rl"])
def test_a_model_that_slurmplug_comes_with_is_added_by_the_name_of_its_policy(site: Site, policy: str) -> None:
    model = model_files.shipped(policy)
    assert model is not None
    assert site.ask("policy add", policy) == f"{policy} {model.digest[:12]}: added, as a candidate\n"
    assert "promoted" in site.ask("policy promote", model.digest[:8])


@pytest.mark.parametrize("name", ["mlf-h", "nobody", "../models/dl2", "/etc/shadow2"])
def test_a_name_without_a_model_is_no_file(site: Site, name: str) -> None:
    assert f"model {name} cannot be read" in site.ask("policy add", name, code=1)


def test_a_promotion_says_that_the_model_failed_in_shadow(site: Site, tmp_path: Path) -> None:
    site.ask("policy add", str(file_of(shipped(), tmp_path)))
    digits = shipped().digest
    site.ask("policy shadow", digits)
    site.cycle(3)
    for number, error in enumerate(("", "it is late", "it is lost")):
        model_outcomes.keep_cycle(site.ledger, digits, ModelCycle(number + 1, "shadow", error))
    output = site.ask("policy promote", digits)
    assert "In shadow it had an error in 2 of 3 cycles" in output
    assert "the last: it is lost." in output
