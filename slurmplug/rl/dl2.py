"""Training of DL2: supervised warm-up, then online reinforcement learning (Peng et al., arXiv 1909.06040, sections 4.2
and 4.3). Reads from top to bottom; the features, masks and inference are those of `policies.dl2`.

1. Warm-up: a teacher's decisions in simulations, as sequences of choices; cross-entropy.
2. Online: in each slot the policy is sampled, the slot's reward sum_i t_i / E_i observed, and one update made on a
   batch out of the replay buffer: the advantage V(s') - V(s), V by temporal differences, and an entropy term.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from policies.dl2 import ARRAYS, DL2, Allocation, Allocator, DL2Settings, Network, slot_begins, slot_of
from policies.model import Model, Singles
from policies.placement.allocation import held_gpus
from policies.plan import Plan
from policies.policy import Policy
from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Bools, Floats
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.rl.episode import Episode
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load

Progress = Callable[[str, int, Mapping[str, float]], Any]
"""Called with the stage, its step and figures by name."""
UNEVEN = 10
"""more workers than this for one job, while another has none, is a poor state (4.3: the threshold)"""
VALIDATION = (500, 501, 502)
"""seeds of the workloads by which the best weights are chosen; training uses 1000 and above"""
OTHER_TYPE = 0.1
"""the share of jobs that the warm-up shows as of a type that it does not know"""


@dataclass(frozen=True)
class Settings:
    """The paper's section 6.2, unless said. critic, exploration, replay: Table 2's, each can be switched off.

    teacher: a policy's name. warmup, episodes: simulated workloads of each stage. samples: kept of each slot of the
    warm-up. passes: over them. critic_rate: of the value network. held: updates before the first of the policy
    network, so that it learns from values that are learnt. validate: episodes between two validations. checkpoint: a
    file that a run that was interrupted goes on from, and removes at its end; empty for none.
    """

    workload: str = "gen:dl2"
    cluster: str = "16x4"
    seed: int = 1000
    teacher: str = "mlf-h"
    slot: float = 1200.0
    jobs: int = 64
    hidden: int = 256
    warmup: int = 20
    samples: int = 8
    passes: int = 10
    supervised_rate: float = 5e-3
    episodes: int = 40
    rate: float = 1e-4
    critic_rate: float = 1e-3
    held: int = 300
    batch: int = 256
    discount: float = 0.9
    entropy: float = 0.1
    epsilon: float = 0.4
    buffer: int = 8192
    critic: bool = True
    exploration: bool = True
    replay: bool = True
    validate: int = 5
    checkpoint: str = ""

    def __post_init__(self) -> None:
        if self.seed < 1000:
            raise ValueError(f"seed is at least 1000, as lower ones are for validation and results, not {self.seed}")
        if min(self.jobs, self.hidden, self.samples, self.batch, self.buffer, self.validate) < 1:
            raise ValueError("jobs, hidden, samples, batch, buffer and validate are at least 1")
        if min(self.warmup, self.passes, self.episodes) < 0:
            raise ValueError("warmup, passes and episodes are not negative")


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

    def forward(self, state: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """(b, k) for each job and (b,) for void, of states (b, k, features) of the jobs `present` (b, k)."""
        weight = (present / present.sum(1, keepdim=True)).unsqueeze(1)
        hidden = state
        for layer in ("first", "second"):
            pooled = (weight @ hidden) @ self.get_parameter(f"{layer}_mean") + self.get_parameter(f"{layer}_bias")
            hidden = torch.relu(hidden @ self.get_parameter(f"{layer}_job") + pooled)
        bias = self.get_parameter("action_bias")
        void = (weight @ hidden).squeeze(1) @ self.get_parameter("action_void")
        return hidden @ self.get_parameter("action_job") + bias[0], void + bias[1]

    def values(self, state: Tensor, present: Tensor) -> Tensor:
        """(b, k) of the value network, which is alike with a linear output: what each job will yet do; V is their
        sum."""
        return self(state, present)[0] * present

    def arrays(self) -> dict[str, Singles]:
        """The parameters as arrays that share their memory."""
        return {name: self.get_parameter(name.replace(".", "_")).detach().numpy() for name in ARRAYS}


@dataclass(eq=False)
class Slot:
    """What came of a slot: the progress of each job, and the first state of the next slot, with the jobs of its rows;
    None at the end."""

    reward: dict[JobKey, float] = field(default_factory=dict)
    after: Singles | None = None
    rows: tuple[JobKey, ...] = ()


class Sample(NamedTuple):
    """One inference. target (k + 1,): probabilities of the teacher, or 1 at the action taken. keys: the jobs of the k
    rows. then: the state after the action, in the same slot and batch; None for the last."""

    state: Singles
    mask: Bools
    target: Singles
    keys: tuple[JobKey, ...] = ()
    then: Singles | None = None
    slot: Slot | None = None


@dataclass
class _Training:
    """What a training that goes on needs."""

    stage: int = 0
    """episodes done"""
    best: float = np.inf
    arrays: dict[str, Singles] = field(default_factory=dict)
    """the best so far"""
    supervised: float = np.nan
    baseline: float = 0.0
    updates: int = 0


def train(settings: Settings, progress: Progress = lambda *_: None) -> Model:
    """Train a model; the same settings give the same one. Runs with one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    first = _workload(settings, settings.seed)
    types = tuple(sorted({job.kind for job in first.jobs if job.kind and "," not in job.kind}))
    allocator = Allocator(types, settings.jobs, settings.slot)
    actor, critic = Net(allocator.features, settings.hidden), Net(allocator.features, settings.hidden)
    adam = torch.optim.Adam(
        [{"params": actor.parameters()}, {"params": critic.parameters(), "lr": settings.critic_rate}], lr=settings.rate
    )
    buffer: deque[Sample] = deque(maxlen=settings.buffer)
    so_far = _Training()
    saved = Path(settings.checkpoint) if settings.checkpoint else None
    if saved and saved.exists():
        so_far = _load(saved, settings, actor, critic, adam, buffer, rng)
    else:
        _warm_up(settings, allocator, actor, rng, progress)
        so_far.best = so_far.supervised = validated(settings, allocator, actor)
        so_far.arrays = {name: each.copy() for name, each in actor.arrays().items()}
        progress("validation", 0, {"jct": so_far.best})
    online = _Online(settings, allocator, actor, critic, adam, buffer, rng, so_far)
    while so_far.stage < settings.episodes:
        figures = online.episode(settings.seed + settings.warmup + so_far.stage)
        so_far.stage += 1
        progress("online", so_far.stage, figures)
        if so_far.stage % settings.validate == 0 or so_far.stage == settings.episodes:
            jct = validated(settings, allocator, actor)
            progress("validation", so_far.stage, {"jct": jct})
            if jct < so_far.best:
                so_far.best, so_far.arrays = jct, {name: each.copy() for name, each in actor.arrays().items()}
        if saved:
            _save(saved, settings, actor, critic, adam, buffer, rng, so_far)
    facts = {each.name: str(getattr(settings, each.name)) for each in fields(settings) if each.name != "checkpoint"}
    facts |= {"types": ",".join(types), "validation": f"{so_far.best:.0f}", "supervised": f"{so_far.supervised:.0f}"}
    if saved:
        saved.unlink(missing_ok=True)
    return Model(DL2.name, DL2.version, so_far.arrays, facts)


# --- 1. supervised warm-up --------------------------------------------------------------------------------------------


def _warm_up(
    settings: Settings, allocator: Allocator, actor: Net, rng: np.random.Generator, progress: Progress
) -> None:
    """Cross-entropy with the teacher's decisions (4.2)."""
    seeds = [settings.seed + each for each in range(settings.warmup)]
    samples = [sample for seed in seeds for sample in taught(settings, allocator, seed, rng)]
    adam = torch.optim.Adam(actor.parameters(), lr=settings.supervised_rate)
    batches = len(samples) // settings.batch
    plan = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.02, max(1, batches * settings.passes))
    for number in range(settings.passes):
        order, losses = rng.permutation(len(samples)), []
        for at in range(batches):
            chosen = [samples[each] for each in order[at * settings.batch : (at + 1) * settings.batch]]
            batch = _Batch.of(chosen)
            unknown = torch.from_numpy(rng.random(batch.state.shape[:2]) < OTHER_TYPE)
            batch.state[unknown] = _of_other_type(batch.state[unknown], len(allocator.types))
            loss = -(batch.target * batch.log_probabilities(actor)).sum(1).mean()
            _step(adam, loss)
            plan.step()
            losses.append(float(loss.detach()))
        progress("supervised", number + 1, {"loss": float(np.mean(losses)) if losses else np.nan})


def taught(settings: Settings, allocator: Allocator, seed: int, rng: np.random.Generator) -> Iterator[Sample]:
    """Samples of the teacher's decisions in one simulation: which job has another worker next is as probable as it is
    short of the number that the teacher gives it."""
    config = {"policy": settings.teacher, "interval": settings.slot}
    teacher = policy_registry.policy(Config.model_validate(config))
    episode = _episode(settings, seed, teacher)
    while (seen := episode.observed) is not None:
        plan = teacher.decide(seen.snapshot, seen.forecasts, seen.memory)
        choices = allocator.choices(seen.snapshot, seen.forecasts, begins=True)
        of_slot = list(_imitated(choices, gpus_of(seen.snapshot, plan), rng))
        keep = rng.permutation(len(of_slot))[: settings.samples]
        yield from (of_slot[each] for each in keep)
        episode.advance(plan)


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


def _imitated(choices: Allocation, wanted: Floats, rng: np.random.Generator) -> Iterator[Sample]:
    """wanted (n,): the teacher's GPUs by row of the snapshot."""
    workers = np.zeros(len(wanted))
    while not choices.done:
        state, mask = choices.state["jobs"], choices.mask
        workers[choices.rows] = choices.workers
        short = np.maximum(wanted - workers, 0.0)[choices.batch] * mask[:-1]
        target = np.append(short / short.sum(), 0.0) if short.sum() > 0 else np.append(short, 1.0)
        yield Sample(state, mask, target.astype(np.float32))
        choices.choose(int(rng.choice(len(target), p=target)))


def _of_other_type(state: Tensor, types: int) -> Tensor:
    changed = state.clone()
    changed[:, :types], changed[:, types] = 0.0, 1.0
    return changed


# --- 2. online reinforcement learning ---------------------------------------------------------------------------------


@dataclass
class _Online:
    """Actor-critic with replay and job-aware exploration (4.3)."""

    settings: Settings
    allocator: Allocator
    actor: Net
    critic: Net
    adam: torch.optim.Optimizer
    buffer: deque[Sample]
    rng: np.random.Generator
    so_far: _Training

    def episode(self, seed: int) -> dict[str, float]:
        """One workload; an update a slot. Returns figures of it."""
        settings = self.settings
        episode, network = _episode(settings, seed, DL2(DL2Settings(slot=settings.slot))), Network(self.actor.arrays())
        jcts: list[float] = []
        losses: list[tuple[float, float, float]] = []
        made: list[Sample] = []
        slot, last = Slot(), -1
        while (seen := episode.observed) is not None:
            number = slot_of(seen.snapshot, settings.slot)
            choices = self.allocator.choices(seen.snapshot, seen.forecasts, begins=slot_begins(number, seen.memory))
            if made and number != last and not choices.done:
                slot.after, slot.rows = choices.state["jobs"], _keys(seen.snapshot, choices)
                losses.append(self._learn(made))
                made, slot = [], Slot()
            last = number
            made += self._act(seen.snapshot, choices, network, slot)
            window = episode.advance(choices.plan({"slot": np.array([number])}))
            for key, share in zip(window.jobs.tolist(), window.shares.tolist(), strict=True):
                slot.reward[key] = slot.reward.get(key, 0.0) + share
            jcts += [each.jct for each in window.ended]
        if made:
            losses.append(self._learn(made))
        actor, critic, entropy = np.mean(losses, axis=0) if losses else (np.nan,) * 3
        return {"jct": float(np.mean(jcts)), "actor": float(actor), "critic": float(critic), "entropy": float(entropy)}

    def _act(self, snapshot: Snapshot, choices: Allocation, network: Network, slot: Slot) -> list[Sample]:
        """Sample the policy until the allocation is done."""
        made: list[Sample] = []
        while not choices.done:
            state, mask, keys = choices.state["jobs"], choices.mask, _keys(snapshot, choices)
            logits = np.where(mask, network.logits(state).astype(np.float64), -np.inf)
            chances = np.exp(logits - logits.max())
            action = int(self.rng.choice(len(mask), p=chances / chances.sum()))
            if self.settings.exploration and (remedy := poor_state(state, mask)) is not None:
                action = remedy if self.rng.random() < self.settings.epsilon else action
            choices.choose(action)
            goes_on = not choices.done and action < len(keys) and _keys(snapshot, choices) == keys
            then = choices.state["jobs"] if goes_on else None
            made.append(Sample(state, mask, np.eye(len(mask), dtype=np.float32)[action], keys, then, slot))
        return made

    def _learn(self, made: Sequence[Sample]) -> tuple[float, float, float]:
        """One update at the end of a slot: actor's and critic's loss, and the entropy."""
        settings, so_far = self.settings, self.so_far
        self.buffer.extend(made)
        pool: Sequence[Sample] = self.buffer if settings.replay else made
        chosen = self.rng.choice(len(pool), min(settings.batch, len(pool)), replace=False)
        samples = [pool[each] for each in chosen.tolist()]
        batch = _Batch.of(samples)
        logs = batch.log_probabilities(self.actor)
        if settings.critic:
            advantage, error = self._advantage(samples, batch)
            so_far.updates += 1
        else:
            reward = sum(made[0].slot.reward.values()) if made[0].slot else 0.0
            so_far.baseline += 0.1 * (reward - so_far.baseline)
            rewards = torch.tensor([sum(each.slot.reward.values()) if each.slot else 0.0 for each in samples])
            advantage, error = rewards - so_far.baseline, torch.zeros(())
        spread = advantage.std() if len(samples) > 1 else torch.ones(())
        entropy = -(logs.exp() * logs.masked_fill(~batch.mask, 0.0)).sum(1).mean()
        chosen_log = (batch.target * logs.masked_fill(~batch.mask, 0.0)).sum(1)
        loss = -(advantage / (spread + 1e-6) * chosen_log).mean()
        weight = settings.entropy if settings.exploration else 0.0
        held = settings.critic and so_far.updates <= settings.held
        _step(self.adam, (0.0 if held else 1.0) * (loss - weight * entropy) + error)
        return float(loss.detach()), float(error.detach()), float(entropy.detach())

    def _advantage(self, samples: Sequence[Sample], batch: "_Batch") -> tuple[Tensor, Tensor]:
        """(b,) V(s') - V(s), with the reward at the end of a slot; and the value network's loss.

        The reward is a sum over jobs, so V is learnt job by job: each job's value is its progress in the slot and the
        discounted value that it has at the beginning of the next.
        """
        goal, counts = self._goals(samples, batch)
        value = self.critic.values(batch.state, batch.present)
        error = ((value - goal) ** 2 * counts).sum() / counts.sum()
        with torch.no_grad():
            inner = [at for at, each in enumerate(samples) if each.then is not None]
            reached = (goal * counts).sum(1)
            advantage = reached - (value * counts).sum(1)
            if inner:
                then = _padded([state for each in samples if (state := each.then) is not None])
                advantage[inner] = self.critic.values(*then).sum(1) - value[inner].sum(1)
        return advantage.detach(), error

    def _goals(self, samples: Sequence[Sample], batch: "_Batch") -> tuple[Tensor, Tensor]:
        """(b, k) what the value of each job is to be, and whether that is known."""
        slots = list({id(each.slot): each.slot for each in samples if each.slot}.values())
        later: dict[int, dict[JobKey, float]] = {}
        with torch.no_grad():
            some = [each for each in slots if each.after is not None]
            values = (
                self.critic.values(*_padded([each.after for each in some if each.after is not None])) if some else ()
            )
        for slot, value in zip(some, values, strict=True):
            later[id(slot)] = dict(zip(slot.rows, value.tolist(), strict=False))
        goal, counts = torch.zeros_like(batch.present), torch.zeros_like(batch.present)
        for at, each in enumerate(samples):
            assert each.slot is not None
            ahead = later.get(id(each.slot), {})
            row = [each.slot.reward.get(key, 0.0) + self.settings.discount * ahead.get(key, 0.0) for key in each.keys]
            goal[at, : len(row)], counts[at, : len(row)] = torch.tensor(row), 1.0
        return goal, counts


def _keys(snapshot: Snapshot, choices: Allocation) -> tuple[JobKey, ...]:
    return tuple(snapshot.jobs.keys[row] for row in choices.batch.tolist())


def poor_state(state: Singles, mask: Bools) -> int | None:
    """What to do in a poor state, None in any other: without servers, that one job has many workers and another none,
    which then has one."""
    workers, waits = state[:, -len("123456789")] * 16.0, state[:, -7] > 0
    starved = np.flatnonzero(waits & mask[:-1])
    return int(starved[0]) if len(starved) and workers.max() > UNEVEN else None


class _Batch(NamedTuple):
    """Samples side by side, padded to the most jobs. target, mask (b, k + 1) have void last."""

    state: Tensor
    present: Tensor
    mask: Tensor
    target: Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "_Batch":
        state, present = _padded([each.state for each in samples])
        k = state.shape[1]
        mask, target = np.zeros((len(samples), k + 1), dtype=bool), np.zeros((len(samples), k + 1), dtype=np.float32)
        for at, each in enumerate(samples):
            n = len(each.state)
            mask[at, :n], mask[at, k] = each.mask[:n], True
            target[at, :n], target[at, k] = each.target[:n], each.target[n]
        return cls(
            state,
            present,
            torch.from_numpy(mask),
            torch.from_numpy(target),
        )

    def log_probabilities(self, actor: Net) -> Tensor:
        """(b, k + 1), finite also where masked."""
        job, void = actor(self.state, self.present)
        logits = torch.cat([job, void[:, None]], 1).masked_fill(~self.mask, -1e9)
        return torch.log_softmax(logits, 1).clamp(min=-1e4)


def _padded(states: Sequence[Singles]) -> tuple[Tensor, Tensor]:
    most = max(len(each) for each in states)
    table = np.zeros((len(states), most, states[0].shape[1]), dtype=np.float32)
    present = np.zeros((len(states), most), dtype=np.float32)
    for at, each in enumerate(states):
        table[at, : len(each)], present[at, : len(each)] = each, 1.0
    return torch.from_numpy(table), torch.from_numpy(present)


def _step(adam: torch.optim.Optimizer, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    for group in adam.param_groups:
        nn.utils.clip_grad_norm_(group["params"], 1.0)
    adam.step()


# --- simulations and checkpoints --------------------------------------------------------------------------------------


def validated(settings: Settings, allocator: Allocator, actor: Net) -> float:
    """Mean JCT in seconds on the validation workloads, most probable actions only."""
    facts = {"types": ",".join(allocator.types), "jobs": str(allocator.jobs)}
    policy = DL2(DL2Settings(slot=settings.slot), Model(DL2.name, DL2.version, actor.arrays(), facts))
    found = []
    for seed in VALIDATION:
        how = SimulationSettings(settings.cluster, settings.slot, seed)
        result = Simulation(_workload(settings, seed), policy, how).run()
        found.append(np.mean([job.ended - job.submitted for job in result.finished]))
    return float(np.mean(found))


def _episode(settings: Settings, seed: int, policy: Policy) -> Episode:
    how = SimulationSettings(settings.cluster, settings.slot, seed)
    return Episode(Simulation(_workload(settings, seed), policy, how))


def _workload(settings: Settings, seed: int) -> Workload:
    return load.load(settings.workload, seed=seed)


def _save(
    path: Path, settings: Settings, actor: Net, critic: Net, adam: torch.optim.Optimizer, buffer: deque[Sample],
    rng: np.random.Generator, so_far: _Training,
) -> None:  # fmt: skip
    """Write all that a training goes on from, whole or not at all."""
    state = {
        "settings": repr(settings), "actor": actor.state_dict(), "critic": critic.state_dict(), "adam": adam.state_dict(),
        "buffer": [tuple(each) for each in buffer], "rng": rng.bit_generator.state, "so_far": vars(so_far),
    }  # fmt: skip
    unfinished = path.with_name(path.name + ".new")
    torch.save(state, unfinished)
    unfinished.replace(path)


def _load(
    path: Path, settings: Settings, actor: Net, critic: Net, adam: torch.optim.Optimizer, buffer: deque[Sample],
    rng: np.random.Generator,
) -> _Training:  # fmt: skip
    """Go on from a checkpoint, which is as trusted as this program: `_save` wrote it.

    Raises:
        ValueError: it is of another training
    """
    state = torch.load(path, weights_only=False)
    if state["settings"] != repr(settings):
        raise ValueError(f"checkpoint {path} is of a training with other settings: remove it, or name another")
    actor.load_state_dict(state["actor"])
    critic.load_state_dict(state["critic"])
    adam.load_state_dict(state["adam"])
    buffer.extend(Sample(*each) for each in state["buffer"])
    rng.bit_generator.state = state["rng"]
    return _Training(**state["so_far"])
