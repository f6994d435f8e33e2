"""Training of DL2: the supervised stage (Peng et al., arXiv 1909.06040, section 4.2). Reads from top to bottom; the
features, masks and inference are those of `policies.dl2`.

In each slot of simulations under a teacher, the teacher's allocation is taken apart into choices; the network is
trained on them by cross-entropy. The online stage (4.3) is not included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from policies.dl2 import ARRAYS, DL2, Allocation, Allocator
from policies.model import Model, Singles
from policies.placement.allocation import held_gpus
from policies.plan import Plan
from policies.seen_states import SeenStates
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import UsageError
from slurmplug.rl.episode import Episode
from slurmplug.rl.training_workloads import require_for_training, require_generated
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load

Progress = Callable[[str, int, Mapping[str, float]], Any]
"""Called with the stage, its step and figures by name."""
OTHER_TYPE = 0.1
"""the share of jobs that are shown as of a type that the network does not know"""


@dataclass(frozen=True)
class Settings:
    """The paper's section 6.2, unless said.

    workload: a generator's, with its options. seed: of the first of `workloads` simulated. jobs: of each; None for the
    generator's number. clusters: in turn. teacher: a policy's name. slot: seconds. at_once: J. hidden: units of a layer
    (the paper: 256). samples: choices kept of each slot. passes: over them. rate: Adam's, at first. batch: choices of
    an update.

    Raises:
        UsageError: what they say cannot be trained on
    """

    workload: str = "gen:dl2"
    seed: int = 1000
    jobs: int | None = None
    clusters: tuple[str, ...] = ("16x4", "8x4", "32x4")
    teacher: str = "mlf-h"
    slot: float = 1200.0
    at_once: int = 64
    hidden: int = 64
    workloads: int = 24
    samples: int = 8
    passes: int = 12
    rate: float = 5e-3
    batch: int = 256

    def __post_init__(self) -> None:
        """Check them."""
        require_generated(self.workload)
        for seed in (self.seed, self.seed + self.workloads - 1):
            require_for_training(seed)
        if min(self.at_once, self.hidden, self.workloads, self.samples, self.passes, self.batch) < 1:
            raise UsageError("at_once, hidden, workloads, samples, passes and batch are at least 1")
        if not (self.slot >= 1 and self.rate > 0):
            raise UsageError("slot is at least 1 second, and rate above 0")
        if not self.clusters:
            raise UsageError('clusters: name at least one, as in ["16x4"]')
        if self.teacher == DL2.name:
            raise UsageError(f"{DL2.name} learns from another policy than itself")


class Sample(NamedTuple):
    """A choice of the teacher: the state (k, features), what may be chosen, and how probable each is (k + 1,)."""

    state: Singles
    mask: Bools
    target: Singles


def train(settings: Settings, progress: Progress = lambda *_: None) -> Model:
    """Train a model; the same settings give the same one. Runs with one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    kinds = {job.kind for job in _workload(settings, settings.seed).jobs}
    types = tuple(sorted(kind for kind in kinds if kind and "," not in kind))
    allocator = Allocator(types, settings.at_once, settings.slot)
    samples, states = [], []
    for number in range(settings.workloads):
        for of_slot, summary in taught(settings, allocator, number, rng):
            samples += of_slot
            states.append(summary)
        progress("teacher", number + 1, {"choices": len(samples)})
    network = Net(allocator.features, settings.hidden)
    for number, loss in enumerate(_learn(settings, network, samples, len(types), rng)):
        progress("supervised", number + 1, {"loss": loss})
    facts = {name: str(value) for name, value in asdict(settings).items()}
    arrays = {**network.arrays(), **SeenStates.of(np.array(states)).arrays()}
    return Model(DL2.name, DL2.version, arrays, {**facts, "types": ",".join(types)})


def _workload(settings: Settings, seed: int) -> Workload:
    return load.load(settings.workload, seed=seed, jobs=settings.jobs)


def taught(
    settings: Settings, allocator: Allocator, number: int, rng: np.random.Generator
) -> Iterator[tuple[list[Sample], Floats]]:
    """Of each slot of the simulation of that number: choices of the teacher, and the summary of the state."""
    teacher = policy_registry.policy(Config.model_validate({"policy": settings.teacher, "interval": settings.slot}))
    seed, cluster = settings.seed + number, settings.clusters[number % len(settings.clusters)]
    how = SimulationSettings(cluster, settings.slot, seed)
    episode = Episode(Simulation(_workload(settings, seed), teacher, how))
    while (seen := episode.observed) is not None:
        plan = teacher.decide(seen.snapshot, seen.forecasts, seen.memory)
        choices = allocator.choices(seen.snapshot, seen.forecasts, begins=True)
        if not choices.done:
            summary = choices.summary()
            of_slot = list(imitated(choices, gpus_of(seen.snapshot, plan), rng))
            yield [of_slot[each] for each in rng.permutation(len(of_slot))[: settings.samples]], summary
        episode.advance(plan)


def imitated(choices: Allocation, wanted: Floats, rng: np.random.Generator) -> Iterator[Sample]:
    """The choices that lead to `wanted` (n,), the GPUs of each job of the snapshot.

    Which job has another worker next is as probable as it is short of that number; void, where none is.
    """
    workers = np.zeros(len(wanted))
    while not choices.done:
        state, mask = choices.state["jobs"], choices.mask
        workers[choices.rows] = choices.workers
        short = np.maximum(wanted - workers, 0.0)[choices.batch] * mask[:-1]
        target = np.append(short / short.sum(), 0.0) if short.sum() > 0 else np.append(short, 1.0)
        yield Sample(state, mask, target.astype(np.float32))
        choices.choose(int(rng.choice(len(target), p=target)))


def gpus_of(snapshot: Snapshot, plan: Plan) -> Floats:
    """(n,) the GPUs that each job has when this plan is carried out."""
    gpus = held_gpus(snapshot).astype(np.float64)
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)}
    for action in plan.actions:
        if action.kind in ("place", "resize", "migrate") and action.gpus is not None:
            gpus[rows[action.job]] = action.gpus
        elif action.kind == "preempt":
            gpus[rows[action.job]] = 0.0
    return gpus


class Net(nn.Module):
    """`policies.dl2.Network` for batches; its parameters have the names of `ARRAYS`, with _ for the dot."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        sizes = {"features": features, "hidden": hidden}
        for name, shape in ARRAYS.items():
            size = [sizes[each] if isinstance(each, str) else each for each in shape]
            values = torch.zeros(size)
            if not name.endswith("bias"):
                nn.init.normal_(values, std=(0.1 if name.startswith("action") else 2.0**0.5) / size[0] ** 0.5)
            self.register_parameter(name.replace(".", "_"), nn.Parameter(values))

    def forward(self, state: Tensor, present: Tensor) -> Tensor:
        """(b, k + 1) logits of each job and, last, of void, for states (b, k, features) and jobs `present` (b, k)."""
        weight = (present / present.sum(1, keepdim=True)).unsqueeze(1)
        hidden = state
        for layer in ("first", "second"):
            pooled = (weight @ hidden) @ self.get_parameter(f"{layer}_mean") + self.get_parameter(f"{layer}_bias")
            hidden = torch.relu(hidden @ self.get_parameter(f"{layer}_job") + pooled)
        bias = self.get_parameter("action_bias")
        void = (weight @ hidden).squeeze(1) @ self.get_parameter("action_void")
        return torch.cat([hidden @ self.get_parameter("action_job") + bias[0], (void + bias[1])[:, None]], 1)

    def arrays(self) -> dict[str, Singles]:
        """The parameters as arrays."""
        return {name: self.get_parameter(name.replace(".", "_")).detach().numpy() for name in ARRAYS}


def _learn(
    settings: Settings, network: Net, samples: Sequence[Sample], types: int, rng: np.random.Generator
) -> Iterator[float]:
    """The mean loss of each pass over the samples, whose rate falls to a fiftieth."""
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.rate)
    size = min(settings.batch, len(samples))
    batches = len(samples) // size
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.02, batches * settings.passes)
    for _ in range(settings.passes):
        order, losses = rng.permutation(len(samples)), []
        for at in range(batches):
            state, present, mask, target = _padded([samples[each] for each in order[at * size : (at + 1) * size]])
            unknown = torch.from_numpy(rng.random(state.shape[:2]) < OTHER_TYPE)
            state[unknown] = _of_other_type(state[unknown], types)
            logits = network(state, present).masked_fill(~mask, -1e9)
            loss = -(target * torch.log_softmax(logits, 1)).sum(1).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            rate.step()
            losses.append(loss.item())
        yield float(np.mean(losses))


def _padded(samples: Sequence[Sample]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, which jobs are present, masks and targets side by side, padded to the most jobs; void stays last."""
    b, most = len(samples), max(len(each.state) for each in samples)
    state = np.zeros((b, most, samples[0].state.shape[1]), dtype=np.float32)
    present, target = np.zeros((b, most), dtype=np.float32), np.zeros((b, most + 1), dtype=np.float32)
    mask = np.zeros((b, most + 1), dtype=bool)
    for at, each in enumerate(samples):
        k = len(each.state)
        state[at, :k], present[at, :k] = each.state, 1.0
        mask[at, :k], mask[at, most] = each.mask[:k], True
        target[at, :k], target[at, most] = each.target[:k], each.target[k]
    return torch.from_numpy(state), torch.from_numpy(present), torch.from_numpy(mask), torch.from_numpy(target)


def _of_other_type(state: Tensor, types: int) -> Tensor:
    changed = state.clone()
    changed[:, :types], changed[:, types] = 0.0, 1.0
    return changed
