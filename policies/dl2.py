"""DL2: a network gives GPUs one after another (Peng et al., "DL2: A Deep Learning-driven Scheduler for Deep Learning
Clusters", arXiv 1909.06040, section 4).

At the beginning of each time slot all jobs are allocated anew. The network is asked again and again: each answer is one
worker for one job, or void, which ends the slot's allocation; the state that it reads changes with each (4.1). A model
that was trained with parameter servers answers with one of the paper's 3J + 1 actions, any other with one of J + 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from policies import seen_states
from policies.dl2_allocation import FEATURES, UNKNOWN_SLOTS, Allocation, Allocator, work_left
from policies.dl2_servers import ServerAllocator
from policies.model import Model, Shapes, Singles
from policies.plan import Memory, Plan
from policies.policy import LearntPolicy
from policies.seen_states import SeenStates
from policies.snapshot import Snapshot
from predictors.arrays import Bools
from predictors.forecast import Forecasts, Need

__all__ = [
    "ARRAYS",
    "DL2",
    "FEATURES",
    "SERVER_ARRAYS",
    "UNKNOWN_SLOTS",
    "Allocation",
    "Allocator",
    "DL2Settings",
    "Network",
    "slot_begins",
    "slot_of",
    "work_left",
]

ARRAYS: Shapes = {
    "first.job": ("features", "hidden"), "first.mean": ("features", "hidden"), "first.bias": ("hidden",),
    "second.job": ("hidden", "hidden"), "second.mean": ("hidden", "hidden"), "second.bias": ("hidden",),
    "action.job": ("hidden",), "action.void": ("hidden",), "action.bias": (2,),
}  # fmt: skip
SERVER_ARRAYS: Shapes = {"action.server": ("hidden",), "action.both": ("hidden",)}
"""what a model with parameter servers has beside them"""


@dataclass(frozen=True)
class DL2Settings:
    """model: the file of a model; empty for the one that slurmplug comes with. slot: seconds between allocations."""

    model: str = ""
    slot: float = 1200.0

    def __post_init__(self) -> None:
        if not 1 <= self.slot < np.inf:
            raise ValueError(f"slot is at least 1 second, not {self.slot}")


class Network:
    """The policy network: two hidden layers with ReLU, then a softmax over the actions.

    The weights are the same for each job's row of the state; each layer reads, beside the job, the mean over all jobs.
    """

    def __init__(self, arrays: Mapping[str, Singles]) -> None:
        """arrays: shaped as `ARRAYS`, and `SERVER_ARRAYS` where jobs may be given parameter servers."""
        self._a = arrays

    def logits(self, state: Singles) -> Singles:
        """(jobs + 1,) the logit of each job, and of void; `state` (jobs, features) has at least one job.

        With servers (3 jobs + 1,): of each job those of a worker, a server, and one of each.
        """
        a, hidden, mean = self._a, state, np.full(len(state), 1 / len(state), dtype=np.float32)
        for layer in ("first", "second"):
            pooled = (mean @ hidden) @ a[f"{layer}.mean"] + a[f"{layer}.bias"]
            hidden = np.maximum(hidden @ a[f"{layer}.job"] + pooled, 0.0)
        job, void = hidden @ a["action.job"], (mean @ hidden) @ a["action.void"]
        if "action.server" in a:
            job = np.stack([job, hidden @ a["action.server"], hidden @ a["action.both"]], axis=1).ravel()
        return np.append(job + a["action.bias"][0], void + a["action.bias"][1])

    def best(self, state: Singles, mask: Bools) -> int:
        """The most probable action among those of the mask, which is as long as the logits.

        Raises:
            FloatingPointError: the network does not say how probable the actions are
        """
        logits = self.logits(state)
        if not np.isfinite(logits).all():
            raise FloatingPointError("the network's answer is not finite numbers")
        return int(np.where(mask, logits, -np.inf).argmax())


class DL2(LearntPolicy):
    """The policy: in each slot the most probable actions, one after another, until void or nothing fits.

    Within a slot running jobs stay as they are, and what is free goes to jobs that wait, by the same network.
    """

    name = "dl2"
    needs: frozenset[Need] = frozenset({"total", "remaining"})
    version = 2
    shapes = MappingProxyType({**ARRAYS, **seen_states.SHAPES})
    optional = MappingProxyType(SERVER_ARRAYS)

    def __init__(self, settings: DL2Settings | None = None, model: Model | None = None) -> None:
        """Raises ValueError: the model does not state its job types and J, or its arrays are not for so many types."""
        self.settings: DL2Settings = settings or DL2Settings()
        if model is None:
            return
        try:
            types = tuple(kind for kind in model.facts["types"].split(",") if kind)
            kind = ServerAllocator if "action.server" in model.arrays else Allocator
            self.allocator = kind(types, int(model.facts["at_once"]), self.settings.slot)
        except (KeyError, ValueError):
            raise ValueError("it does not state `types`, the job types that it knows, and `at_once`, its J") from None
        if self.allocator.jobs < 1 or model.arrays["first.job"].shape[0] != self.allocator.features:
            raise ValueError(f"its arrays are not for {len(types)} job types and a J of {self.allocator.jobs}")
        self.network = Network(model.arrays)
        self._seen = SeenStates.from_arrays(model.arrays)

    def distance(self, snapshot: Snapshot, forecasts: Forecasts) -> float:
        """The distance of the mean state of the jobs that it allocates from those of its training; 0 without such jobs.

        Infinite for a model with parameter servers where no job can have any, as on every cluster of Slurm.
        """
        if self.allocator.actions > 1 and snapshot.servers is None:
            return np.inf
        choices = self.allocator.choices(snapshot, forecasts, begins=True)
        return self._seen.distance(choices.summary()) if len(choices.rows) else 0.0

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Ask the network until it says void or nothing fits."""
        slot = slot_of(snapshot, self.settings.slot)
        choices = self.allocator.choices(snapshot, forecasts, begins=slot_begins(slot, memory))
        while not choices.done:
            choices.choose(self.network.best(choices.state["jobs"], choices.mask))
        return choices.plan({"slot": np.array([slot])})

    def until(self, snapshot: Snapshot) -> float:
        """The next slot."""
        return (slot_of(snapshot, self.settings.slot) + 1) * self.settings.slot


def slot_of(snapshot: Snapshot, seconds: float) -> int:
    """The number of the slot."""
    return int(snapshot.now // seconds)


def slot_begins(slot: int, memory: Memory) -> bool:
    """Whether nothing was allocated in this slot yet."""
    return "slot" not in memory or int(memory["slot"][0]) != slot
