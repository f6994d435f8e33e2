"""Models for tests: of dl2, made from the one that slurmplug comes with, of mlf-rl, and of one that is scripted."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from policies.mlfs import network
from policies.model import Model, Singles
from policies.seen_states import SeenStates
from predictors.arrays import Floats
from slurmplug.config import model_files


def shipped() -> Model:
    model = model_files.shipped("dl2")
    assert model is not None
    return model


def like_shipped(note: str = "", *, version: int | None = None, policy: str = "dl2", **arrays: Singles) -> Model:
    """The same with a note, so that its digest is another, and with some other arrays (`_` for the dot)."""
    of = shipped()
    changed = {name.replace("_", "."): array for name, array in arrays.items()}
    return Model(
        policy, of.version if version is None else version, {**of.arrays, **changed}, {**of.facts, "note": note}
    )


OTHER_VERSION = shipped().version + 1
OF_OTHER_VERSION = f"version {OTHER_VERSION} of dl2's features, and this slurmplug has version {shipped().version}"


def poisoned() -> Model:
    """One whose arrays are finite, and whose network answers with NaN."""
    first, second = (np.full_like(shipped().arrays[name], 3e38) for name in ("first.job", "second.job"))
    limit = np.array([1e30], dtype=np.float32)
    return like_shipped("poisoned", seen_limit=limit, first_job=first, second_job=second, second_mean=second)


def file_of(model: Model, folder: Path) -> Path:
    path = folder / f"{model.digest[:12]}.safetensors"
    model_files.write(model, path)
    return path


SCRIPTED = """
import time
from dataclasses import dataclass, replace

from policies.mlfs.mlfs import MLFH, MLFHSettings
from policies.policy import LearntPolicy


@dataclass(frozen=True)
class Settings(MLFHSettings):
    model: str = ""


class Scripted(LearntPolicy):
    name = "scripted"
    shapes = {"seconds": (1,), "factor": (1,)}

    def __init__(self, settings=None, model=None):
        self.settings = settings or Settings()
        self.needs = MLFH(self.settings).needs
        if model is not None:
            self.seconds, self.factor = (float(model.arrays[name][0]) for name in self.shapes)

    def decide(self, snapshot, forecasts, memory):
        time.sleep(self.seconds)
        plan = MLFH(self.settings).decide(snapshot, forecasts, memory)
        return replace(plan, score=self.factor * plan.score)
"""
"""a learnt policy that decides as mlf-h, after as many seconds as its model says, and with this factor on its scores"""


def install_scripted(folder: Path) -> None:
    """Install it in a folder, which then belongs on Python's path."""
    (folder / "scripted_policy.py").write_text(SCRIPTED)
    about = folder / "scripted_policy-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scripted-policy\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[slurmplug.policies]\nscripted = scripted_policy:Scripted\n")


def scripted(*, seconds: float = 0.0, factor: float = 1.0) -> Model:
    """A model of it: a factor of -1 puts the last first."""
    arrays = {"seconds": seconds, "factor": factor}
    return Model("scripted", 1, {name: np.array([value], dtype=np.float32) for name, value in arrays.items()})


def mlf_rl(arrays: Mapping[str, Singles], seen: Floats | None = None) -> Model:
    """A model of mlf-rl with this network, that has seen states with these summaries (k, f)."""
    features = network.JOB_FEATURES - network.KINDS + network.NODE_FEATURES
    states = np.zeros((2, features)) if seen is None else seen
    return Model(network.POLICY, network.VERSION, {**arrays, **SeenStates.of(states).arrays()})


def network_that_prefers(seed: int = 1, strength: float = 1.0) -> dict[str, Singles]:
    """One of mlf-rl with a last layer that is not 0."""
    rng, arrays = np.random.default_rng(seed), network.initial(seed)
    for name in network.LAST:
        arrays[name] = (strength * rng.standard_normal(arrays[name].shape)).astype(np.float32)
    return arrays
