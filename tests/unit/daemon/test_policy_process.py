"""A learnt policy decides in a process of its own, which is ended when it takes too long."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.mlfs.mlfs import MLFH
from policies.model import Model
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle.trust import NotTrusted
from slurmplug.daemon.policy_process import PolicyProcess
from slurmplug.processes import child
from tests.builders import forecasts, jobs, nodes, snapshot
from tests.learnt_models import install_scripted, like_shipped, poisoned, scripted

CATCHES_ALL = """
from dataclasses import dataclass
import time
from policies.policy import LearntPolicy

@dataclass(frozen=True)
class Settings:
    model: str = ""

class CatchesAll(LearntPolicy):
    name = "catches-all"
    shapes = {"seconds": (1,), "factor": (1,)}
    models = "scripted"

    def __init__(self, settings=None, model=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        while True:
            try:
                time.sleep(1e6)
            except BaseException:
                pass
"""
ASKED: Any = (snapshot(jobs(3), nodes(2, capacity=[4, 32, 0])), forecasts(3), {"slot": np.ones(1)})
SOON = 2.0
LATER = 60.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the scripted policy installed, and time for a process to start."""
    install_scripted(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(child, "PAUSE", 0.0)


def config(interval: float = LATER, **settings: Any) -> Config:
    return Config.from_table({"interval": interval, **settings})


@contextmanager
def deciding(
    model: Model, folder: Path, interval: float = LATER, *, policy: str = "", table: str = ""
) -> Iterator[PolicyProcess]:
    """The process of the configured policy, which has this model; table: where its settings are."""
    file, name = folder / "model.safetensors", policy or model.policy
    model_files.write(model, file)
    own = config(interval, policy=name, policies={table or name: {"model": str(file)}})
    with closing(PolicyProcess(policy_registry.policy(own), own)) as made:
        assert made.settled(LATER)
        yield made


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_plan_and_the_memory_are_those_of_the_policy_itself(tmp_path: Path) -> None:
    with deciding(scripted(factor=-1.0), tmp_path) as made:
        plan, own = made.decide(*ASKED), MLFH().decide(*ASKED)
        np.testing.assert_array_equal(plan.score, -own.score)
        assert plan.actions == own.actions
        assert {name: len(values) for name, values in plan.terms.items()} == dict.fromkeys(own.terms, 3)


def test_a_promoted_model_decides_with_the_stops_of_the_configured_policy() -> None:
    model = like_shipped(seen_limit=np.array([1e30], dtype=np.float32))
    own = config()
    policy = policy_registry.promoted(own, model, policy_registry.policy(own))
    with closing(PolicyProcess(policy, own, model_files.encode(model))) as made:
        assert not made.settled()
        assert made.settled(LATER)
        assert (made.name, made.needs, made.learnt) == ("dl2", policy.needs, True)
        memory = made.decide(*ASKED).memory
        assert "slot" in memory
        assert "stopping.overloaded" in memory


@pytest.mark.parametrize(
    ("policy", "table", "model"),
    [("", "", scripted(seconds=1e6)), ("{}/own.py:CatchesAll", "catches-all", scripted())],
    ids=["sleeps", "catches every exception"],
)
def test_a_decision_that_does_not_end_is_ended_and_the_next_one_is_of_another_process(
    policy: str, table: str, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(CATCHES_ALL)
    with deciding(model, tmp_path, SOON, policy=policy.format(tmp_path), table=table) as made:
        first = made.pid
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(NotTrusted, match="had not decided after 2 s, and its process was ended"):
                until_ready(made)
            assert time.monotonic() - began < 60.0
        assert not alive(first)
        assert made.pid != first


def until_ready(made: PolicyProcess) -> None:
    """Decide, again where its process was not ready in time."""
    while True:
        try:
            made.decide(*ASKED)
        except NotTrusted as error:
            if "ready" not in str(error):
                raise
        else:
            return


def test_what_it_fails_by_or_does_not_know_is_told(tmp_path: Path) -> None:
    with deciding(poisoned(), tmp_path) as made:
        with pytest.raises(NotTrusted, match="it failed: FloatingPointError: the network's answer is not finite"):
            made.decide(*ASKED)
        first = made.pid
    assert not alive(first)
    unlike = like_shipped(seen_limit=np.array([1e-30], dtype=np.float32))
    with deciding(unlike, tmp_path) as made, pytest.raises(NotTrusted, match="unlike those it was trained on"):
        made.decide(*ASKED)


def test_another_process_goes_on_where_one_has_ended(tmp_path: Path) -> None:
    with deciding(scripted(), tmp_path) as made:
        first = made.pid
        os.kill(first, 9)
        with suppress(NotTrusted):  # where its end is not seen before it is asked
            made.decide(*ASKED)
        until_ready(made)
        assert made.pid != first
