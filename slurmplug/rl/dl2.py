"""Training of DL2 (Peng et al., arXiv 1909.06040, sections 4.2 and 4.3). Reads from top to bottom; the features, masks
and inference are those of `policies.dl2`.

1. Supervised: in each slot of simulations under a teacher, or of the past in a ledger, the allocation is taken apart
   into choices (`dl2_samples`); the network is trained on them by cross-entropy. Where the workload's jobs have
   parameter servers, the choices are the paper's 3J + 1.
2. Online (`dl2_online`): from there on by reinforcement. The best model is kept, which may be the supervised one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policies.dl2 import DL2, Allocator, DL2Settings
from policies.dl2_servers import ServerAllocation, ServerAllocator
from policies.model import Model
from policies.policy import Policy
from policies.seen_states import SeenStates
from predictors.arrays import Floats
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import UsageError
from slurmplug.rl import dl2_ledger
from slurmplug.rl.checkpoint import NOTHING_KEPT, Checkpoint
from slurmplug.rl.dl2_ledger import SCHEME, Slot, logged
from slurmplug.rl.dl2_network import Net, of_actions, side_by_side
from slurmplug.rl.dl2_online import Online, Stage
from slurmplug.rl.dl2_samples import Sample, Taught, gpus_of, imitated, imitated_with_servers, servers_of
from slurmplug.rl.episode import Episode
from slurmplug.rl.informed import Informed
from slurmplug.rl.informed_servers import InformedServers, Worths
from slurmplug.rl.torch_state import plain, restore
from slurmplug.rl.training_workloads import CHOOSING, TrainingWorkloads, require_for_training
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

Progress = Callable[[str, int, Mapping[str, float]], Any]
"""Called with the stage, its step and figures by name."""
STANDING = 1000
"""states that stand for those of the training of the model of `start`"""
OTHER_TYPE = 0.1
"""the share of jobs that are shown as of a type that the network does not know"""


@dataclass(frozen=True)
class Settings:
    """The paper's section 6.2, unless said.

    workload: a generator's, with its options. seed: of the first of `workloads` simulated. jobs: of each. clusters,
    loads: those that each is drawn from. teacher: a policy's name; "informed", which is told how fast each simulated
    job trains; or ledger:PATH, where what was decided in the past is imitated in place of what is simulated. start: a
    model's file, for an online stage without another supervised one. slot: seconds. at_once: J. hidden: units of a
    layer (the paper: 256). samples: choices kept of each slot. passes: over them. rate: Adam's, at first. batch:
    choices of an update. online: the online stage. choosing: workloads, of at most 20, by which the best model is
    chosen, each `every` episodes and after the last.

    Raises:
        UsageError: what they say cannot be trained on
    """

    workload: str = "gen:dl2"
    seed: int = 1000
    jobs: int = 200
    clusters: tuple[str, ...] = ("8x4", "16x4", "32x4")
    loads: tuple[float, float] = (0.5, 2.0)
    teacher: str = Informed.name
    slot: float = 1200.0
    at_once: int = 64
    hidden: int = 64
    start: str = ""
    workloads: int = 20
    samples: int = 8
    passes: int = 8
    rate: float = 5e-3
    batch: int = 256
    online: Online = field(default_factory=Online)
    choosing: int = 6
    every: int = 8

    def __post_init__(self) -> None:
        """Check them."""
        for seed in (self.seed, self.seed + self.workloads + self.online.episodes - 1):
            require_for_training(seed)
        assert self.drawn.clusters
        if min(self.at_once, self.hidden, self.workloads, self.samples, self.passes, self.batch) < 1:
            raise UsageError("at_once, hidden, workloads, samples, passes and batch must be at least 1")
        if not (1 <= self.choosing <= len(CHOOSING) and self.every >= 1):
            raise UsageError(f"choosing must be from 1 to {len(CHOOSING)}, and every at least 1")
        if not (self.slot >= 1 and self.rate > 0):
            raise UsageError("slot must be at least 1 second, and rate above 0")
        if self.teacher == DL2.name:
            raise UsageError(f"{DL2.name} learns from another policy than itself")

    @property
    def ledger(self) -> Path | None:
        """The ledger whose decisions are imitated, where one is the teacher."""
        return Path(self.teacher.removeprefix(SCHEME)) if self.teacher.startswith(SCHEME) else None

    @property
    def drawn(self) -> TrainingWorkloads:
        """The workloads, by seed."""
        return TrainingWorkloads(self.workload, self.clusters, self.jobs, self.loads)


def train(settings: Settings, progress: Progress = lambda *_: None, checkpoint: Checkpoint = NOTHING_KEPT) -> Model:
    """Train a model; the same settings give the same one. Runs with one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    allocator, network, before = _begun(settings)
    improving = checkpoint.part("online")
    kept = improving.load(Improved)
    if kept is not None:
        states = kept.states
    elif before is not None:
        states = before.examples(STANDING, np.random.default_rng(settings.seed))
    else:
        samples, states = _taught(settings, allocator, rng, progress, checkpoint)
        for number, loss in _learn(settings, network, samples, allocator, rng=rng, checkpoint=checkpoint):
            progress("supervised", number, {"loss": loss})
    facts = {name: str(value) for name, value in asdict(settings).items()} | {"types": ",".join(allocator.types)}

    def made(net: Net, seen: SeenStates) -> Model:
        return Model(DL2.name, DL2.version, {**net.arrays(), **seen.arrays()}, facts)

    best, least = made(network, before or SeenStates.of(states)), 1.0
    if not settings.online.episodes:
        return best
    stage = Stage(settings.online, network, allocator, partial(_online_episode, settings), rng)
    if kept is None:
        reference = chosen_by(settings, best)
    else:
        restore(stage.parts, kept.parts)
        stage.steps, rng.bit_generator.state = kept.steps, kept.rng
        best, least, reference = replace(best, arrays=kept.best), kept.least, kept.reference
    while not stage.done:
        stage.states, played = [], stage.episodes
        figures = stage.step()
        progress("online", stage.steps, figures)
        states = np.concatenate([states, *(each[None] for each in stage.states)])
        if stage.done or stage.episodes // settings.every > played // settings.every:
            model = made(stage.result, SeenStates.of(states))
            ratio = float((chosen_by(settings, model) / reference).mean())
            progress("chosen by", stage.steps, {"ratio": ratio})
            if ratio < least:
                best, least = model, ratio
        reached = {"best": best.arrays, "least": least, "reference": reference, "states": states}
        improving.keep(partial(Improved.of, stage, rng, **reached))
    return best


def _begun(settings: Settings) -> tuple[Allocator, Net, SeenStates | None]:
    """What a training begins with: a network that knows nothing, or that of `start`, with the states that it saw.

    Raises:
        UsageError: `start` cannot be used
        DataError: it cannot be read
    """
    if not settings.start:
        types = dl2_ledger.types(settings.ledger, settings.slot) if settings.ledger else _types(settings)
        servers = settings.ledger is None and any(job.servers for job in _first_jobs(settings))
        allocator = (ServerAllocator if servers else Allocator)(types, settings.at_once, settings.slot)
        return allocator, Net(allocator.features, settings.hidden, servers=servers), None
    model = model_files.read(Path(settings.start))
    try:
        model.require(DL2.name, DL2.version, DL2.shapes, DL2.optional)
        policy = DL2(DL2Settings(slot=settings.slot), model)
    except ValueError as error:
        raise UsageError(f"start: {settings.start}: {error}") from error
    arrays = model.arrays
    network = Net(*arrays["first.job"].shape, servers=isinstance(policy.allocator, ServerAllocator))
    network.adopt(arrays)
    return policy.allocator, network, SeenStates.from_arrays(arrays)


def _types(settings: Settings) -> tuple[str, ...]:
    kinds = {job.kind for job in _first_jobs(settings)}
    return tuple(sorted(kind for kind in kinds if kind and "," not in kind))


def _first_jobs(settings: Settings) -> tuple[SimJob, ...]:
    return settings.drawn.sample(settings.seed)[0].jobs


def chosen_by(settings: Settings, model: Model) -> Floats:
    """(choosing,) the mean JCT in seconds of each workload that models are chosen by."""
    policy, found = DL2(DL2Settings(slot=settings.slot), model), []
    for number in range(settings.choosing):
        workload, cluster = replace(settings.drawn, jobs=settings.online.jobs).for_choosing(number)
        result = Simulation(workload, policy, SimulationSettings(cluster, settings.slot, number)).run()
        found.append(np.mean([job.ended - job.submitted for job in result.finished]))
    return np.array(found)


def _online_episode(settings: Settings, number: int) -> Episode:
    """The episode of that number; its workloads come after those of the supervised stage.

    Where several clusters learn, each learner's episodes are on a cluster of its own, one of `clusters` in turn.
    """
    seed, learners = settings.seed + settings.workloads + number, settings.online.learners
    clusters = settings.clusters
    if learners > 1:
        clusters = (clusters[number % learners % len(clusters)],)
    drawn = replace(settings.drawn, jobs=settings.online.jobs, clusters=clusters)
    workload, cluster = drawn.sample(seed)
    policy = DL2(DL2Settings(slot=settings.slot))
    return Episode(Simulation(workload, policy, SimulationSettings(cluster, settings.slot, seed)))


def _taught(
    settings: Settings, allocator: Allocator, rng: np.random.Generator, progress: Progress, checkpoint: Checkpoint
) -> tuple[list[Sample], Floats]:
    """The choices that the teacher teaches in all its simulations or its ledger, and the summaries of their slots."""
    samples: list[Sample] = []
    states: list[Floats] = []
    for number in range(1 if settings.ledger else settings.workloads):
        part = checkpoint.part(f"teacher-{number}")
        kept = part.load(Taught)
        if kept is None and not (slots := list(taught(settings, allocator, number, rng))):
            continue
        new = kept or Taught.of(slots, rng)
        rng.bit_generator.state = new.rng
        samples += new.samples()
        states.append(new.summaries)
        if kept is None:
            part.keep(lambda: new)  # noqa: B023 called at once
            progress("teacher", number + 1, {"choices": len(samples)})
    if not samples:
        raise UsageError("the teacher made no choice that can be learnt from")
    return samples, np.concatenate(states)


def taught(
    settings: Settings, allocator: Allocator, number: int, rng: np.random.Generator
) -> Iterator[tuple[list[Sample], Floats]]:
    """The teacher's choices and the summary of the state, for each slot of simulation `number`, or of the ledger."""
    slots = logged(settings.ledger, settings.slot) if settings.ledger else _simulated(settings, number)
    for slot in slots:
        choices = allocator.choices(slot.snapshot, slot.forecasts, begins=True)
        if not choices.done:
            summary = choices.summary()
            if isinstance(choices, ServerAllocation) and slot.servers is not None:
                worths = slot.worths(choices) if slot.worths else None
                of_slot = list(imitated_with_servers(choices, slot.given, slot.servers, rng, worths))
            else:
                of_slot = list(imitated(choices, slot.given, rng, slot.gain))
            yield [of_slot[each] for each in rng.permutation(len(of_slot))[: settings.samples]], summary


def _simulated(settings: Settings, number: int) -> Iterator[Slot]:
    workload, cluster = settings.drawn.sample(settings.seed + number)
    teacher = _teacher(settings, workload, cluster)
    how = SimulationSettings(cluster, settings.slot, settings.seed + number)
    episode = Episode(Simulation(workload, teacher, how))
    while (seen := episode.observed) is not None:
        plan = teacher.decide(seen.snapshot, seen.forecasts, seen.memory)
        gain = None
        if isinstance(teacher, Informed) and len(seen.snapshot.jobs):
            gain = teacher.gain(seen.snapshot, seen.forecasts)
        slot = Slot(seen.snapshot, seen.forecasts, gpus_of(seen.snapshot, plan), gain)
        if seen.snapshot.servers is not None:
            worths = (
                partial(Worths, teacher, seen.snapshot, seen.forecasts)
                if isinstance(teacher, InformedServers)
                else None
            )
            slot = slot._replace(servers=servers_of(seen.snapshot, plan), worths=worths)
        yield slot
        episode.advance(plan)


def _teacher(settings: Settings, workload: Workload, cluster: str) -> Policy:
    if settings.teacher == Informed.name:
        if any(job.servers for job in workload.jobs):
            return InformedServers(workload, settings.slot)
        return Informed(workload, max(parse(cluster).gpus), settings.slot)
    return policy_registry.policy(Config.from_table({"policy": settings.teacher, "interval": settings.slot}))


@dataclass
class Improved:
    """What the online stage has come to after so many steps.

    parts: of what it changes. best: the arrays of the best model; least: its ratio to the supervised one, of which
    `reference` has the mean JCTs. states: summaries (n, f) of those met.
    """

    steps: int
    rng: Mapping[str, Any]
    parts: Mapping[str, Any]
    best: Mapping[str, Any]
    least: float
    reference: Floats
    states: Floats

    @classmethod
    def of(cls, stage: Stage, rng: np.random.Generator, **reached: Any) -> "Improved":
        """With the state of the stage and of the random numbers as they are now."""
        return cls(stage.steps, rng.bit_generator.state, plain(stage.parts), **reached)


@dataclass
class Learnt:
    """What the supervised stage has come to. rng: the state of its random numbers. parts: of what it changes."""

    passes: int
    rng: Mapping[str, Any]
    parts: Mapping[str, Any]


def _learn(
    settings: Settings,
    network: Net,
    samples: Sequence[Sample],
    allocator: Allocator,
    *,
    rng: np.random.Generator,
    checkpoint: Checkpoint,
) -> Iterator[tuple[int, float]]:
    """The number of each pass over the samples, from 1, and its mean loss; the rate falls to a fiftieth."""
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.rate)
    size = min(settings.batch, len(samples))
    batches = len(samples) // size
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.02, batches * settings.passes)
    parts = {"network": network, "optimiser": optimiser, "rate": rate}
    passes = 0
    if kept := checkpoint.load(Learnt):
        restore(parts, kept.parts)
        rng.bit_generator.state = kept.rng
        passes = kept.passes
    while passes < settings.passes:
        order, losses = rng.permutation(len(samples)), []
        for at in range(batches):
            batch = [samples[each] for each in order[at * size : (at + 1) * size]]
            state, present = side_by_side([each.state for each in batch])
            most = state.shape[1] * allocator.actions
            mask = of_actions([each.mask for each in batch], most)
            target = of_actions([each.target for each in batch], most)
            unknown = torch.from_numpy(rng.random(state.shape[:2]) < OTHER_TYPE)
            state[unknown] = _of_other_type(state[unknown], len(allocator.types))
            logits = network(state, present).masked_fill(~mask, -1e9)
            loss = -(target * torch.log_softmax(logits, 1)).sum(1).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            rate.step()
            losses.append(loss.item())
        passes += 1
        yield passes, float(np.mean(losses))
        checkpoint.keep(lambda: Learnt(passes, rng.bit_generator.state, plain(parts)))  # noqa: B023 called at once


def _of_other_type(state: Tensor, types: int) -> Tensor:
    changed = state.clone()
    changed[:, :types], changed[:, types] = 0.0, 1.0
    return changed
