"""The online stage of DL2's training (Peng et al., arXiv 1909.06040, section 4.3): actor-critic with replay, entropy
and job-aware exploration, from the model of the supervised stage on.

The reward of a slot is the sum over jobs of t_i / E_i, the share of its epochs that each trained. As it is a sum, the
value network, alike with a linear output, learns it job by job: a job's value is what it trains from the slot on, with
a discount of later slots. Within a slot nothing is random but the choices, so the advantage of a choice is what the
values, summed over the jobs, rise by it; the last of a slot has none.

Advantages are differences of values and much smaller than these, so that the value network has to err less than it
would do by estimates of its own (decision 69): it learns what jobs did train until the end of the episode, and takes
more steps than the policy. What is left of the noise makes the policy waver, so its mean over time is the result.

Beyond the paper: a penalty on the divergence from the supervised policy; learners (`Online.learners`) are its federated
training.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from policies.dl2 import FEATURES, Allocation, Allocator, Network
from policies.dl2_servers import SERVER_FEATURES, ServerAllocator
from policies.model import Singles
from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Bools, Floats
from slurmplug.errors import UsageError
from slurmplug.rl.dl2_network import Net, of_actions, side_by_side
from slurmplug.rl.dl2_replay import Choice, Replay
from slurmplug.rl.episode import Episode

UNEVEN = 10
"""times the workers of another job, of which one is a poor state (4.3: the threshold)"""
BASELINE = 0.1
"""share of the newest reward in the moving average that stands in for the value network"""
AVERAGED = 0.01
"""share of the newest parameters in the moving average of the policy's, which is what the stage results in"""
SCALE = 0.05
"""share of the newest batch in the moving average of the advantages' deviation, the unit in which they count"""


@dataclass(frozen=True)
class Online:
    """The paper's section 6.2, unless said. critic, epsilon of 0, replay of 0: without what its Table 2 removes.

    episodes: simulated workloads; 0 for no online stage. jobs: of each. rate, critic_rate: Adam's, of both networks.
    batch: choices of an update. critic_steps: updates of the value network for one of the policy, one for each slot of
    an episode, after it. discount: of a slot. entropy, divergence: weights of the entropy (the paper: 0.1), and of the
    divergence from the supervised policy. epsilon: probability of the remedy in a poor state (the paper: 0.4). replay:
    choices kept. held: episodes in which the value network alone learns. learners: clusters side by side, each with its
    own jobs, episodes and replay; the mean of their gradients makes one update (the federated training, by A3C that is
    synchronous).

    Raises:
        UsageError: they cannot be used
    """

    episodes: int = 0
    jobs: int = 100
    rate: float = 1e-4
    critic_rate: float = 1e-3
    batch: int = 256
    discount: float = 0.9
    entropy: float = 0.01
    divergence: float = 1.0
    epsilon: float = 0.1
    replay: int = 8192
    critic: bool = True
    critic_steps: int = 4
    held: int = 4
    learners: int = 1

    def __post_init__(self) -> None:
        """Check them."""
        if min(self.jobs, self.batch, self.critic_steps, self.learners) < 1:
            raise UsageError("online: jobs, batch, critic_steps and learners must be at least 1")
        if min(self.episodes, self.replay, self.held) < 0:
            raise UsageError("online: episodes, replay and held must be at least 0")
        if not (0 <= self.discount < 1 and 0 <= self.epsilon <= 1 and min(self.rate, self.critic_rate) > 0):
            raise UsageError("online: discount must be from 0 to below 1, epsilon from 0 to 1, and rates above 0")
        if not min(self.entropy, self.divergence) >= 0:
            raise UsageError("online: entropy and divergence must be at least 0")


class Made(NamedTuple):
    """A choice of which it is not known yet what comes: as `Choice`, with the jobs of its rows."""

    state: Singles
    mask: Bools
    number: int
    after: Singles | None
    keys: tuple[JobKey, ...]


class Stage:
    """The online stage under way. result: the policy's mean over time."""

    def __init__(
        self, how: Online, actor: Net, allocator: Allocator, episode: Callable[[int], Episode], rng: np.random.Generator
    ) -> None:
        """episode: by number. The actor is that of the supervised stage, and trained in place."""
        features, hidden = actor.get_parameter("first_job").shape
        critic, supervised = Net(features + 1, hidden), deepcopy(actor).requires_grad_(requires_grad=False)
        self.result = deepcopy(supervised)
        self.how, self.steps = how, 0
        """episodes of each learner so far"""
        self.states: list[Floats] = []
        """(f,) the summaries of the states that were met"""
        self._networks: list[dict[str, Any]] = [
            {"params": list(actor.parameters()), "lr": how.rate},
            {"params": list(critic.parameters()), "lr": how.critic_rate},
        ]
        self._adam = torch.optim.Adam(self._networks)
        self._learners = [Learner(how, allocator, actor, critic, supervised, rng) for _ in range(how.learners)]
        self._episode = episode
        self.parts: Mapping[str, Any] = {
            "actor": actor, "critic": critic, "supervised": supervised, "result": self.result, "adam": self._adam,
            **{f"learner {number}": each for number, each in enumerate(self._learners)},
        }  # fmt: skip
        """what it changes, but for the random numbers, `steps` and `states`"""

    @property
    def episodes(self) -> int:
        """Those of all learners so far."""
        return min(self.steps * self.how.learners, self.how.episodes)

    @property
    def done(self) -> bool:
        """Whether there are no more."""
        return self.episodes == self.how.episodes

    def step(self) -> dict[str, float]:
        """One episode of each learner, and the updates that follow; figures of it."""
        number, figures = self.steps * self.how.learners, list[Mapping[str, float]]()
        at_work = self._learners[: self.how.episodes - number]
        played = [each.play(self._episode(number + at)) for at, each in enumerate(at_work)]
        self.states += [state for each in played for state in each.states]
        for of_slots in zip_longest(*(each.slots for each in played)):
            for left in reversed(range(self.how.critic_steps if self.how.critic else 1)):
                held = self.how.critic and (left > 0 or number < self.how.held)
                figures += self._update(list(zip(at_work, of_slots, strict=True)), held=held)
                if not held:
                    for mean, latest in zip(self.result.parameters(), self._networks[0]["params"], strict=True):
                        mean.lerp_(latest.detach(), AVERAGED)
        self.steps += 1
        means = {
            name: float(np.mean([each[name] for each in figures if name in each]))
            for name in dict.fromkeys(name for each in figures for name in each)
        }
        return {"jct": float(np.mean([jct for each in played for jct in each.jcts])), **means}

    def _update(
        self, slots: Sequence[tuple["Learner", Sequence[Choice] | None]], *, held: bool
    ) -> list[Mapping[str, float]]:
        losses = [each.loss(made, held=held) for each, made in slots if made is not None]
        self._adam.zero_grad()
        torch.stack([loss for loss, _ in losses]).mean().backward()  # type: ignore[no-untyped-call]
        for network in self._networks:
            nn.utils.clip_grad_norm_(network["params"], 1.0)
        self._adam.step()
        return [figures for _, figures in losses]


def remedy(state: Singles, mask: Bools, number: int, rng: np.random.Generator) -> int:
    """What is chosen instead in a poor state; `number` in any other. The paper's poor states are of parameter servers
    (`server_remedy`); those of workers alone are that a job waits beside one of `UNEVEN` workers and more, which is
    given its first, and that void leaves GPUs free that a job could train on, one of which is given to any of these."""
    first = state.shape[1] - len(FEATURES)
    workers, waits = np.expm1(3.0 * state[:, first + 5]), state[:, first + 6] > 0
    starved = np.flatnonzero(waits & mask[:-1])
    if len(starved) and workers.max() >= UNEVEN:
        return int(rng.choice(starved))
    could = np.flatnonzero(mask[:-1])
    return int(rng.choice(could)) if number == len(mask) - 1 and len(could) else number


def server_remedy(state: Singles, mask: Bools, number: int, rng: np.random.Generator) -> int:
    """A better choice in the paper's poor states of jobs with parameter servers (4.3), else the choice `number`.

    A job of several workers and no server is given a server; one of several servers and no worker a worker; one that
    has more than `UNEVEN` times as many of either, one of the scarcer.
    """
    first = state.shape[1] - len(FEATURES) - len(SERVER_FEATURES)
    columns = first + FEATURES.index("log workers"), first + len(FEATURES) + SERVER_FEATURES.index("log servers")
    workers, servers = (np.rint(np.expm1(3.0 * state[:, column])) for column in columns)
    lacks_server = ((workers > 1) & (servers == 0)) | ((servers > 0) & (workers > UNEVEN * servers))
    lacks_worker = ((servers > 1) & (workers == 0)) | ((workers > 0) & (servers > UNEVEN * workers))
    actions = mask[:-1].reshape(-1, 3)
    remedies = np.concatenate(
        [3 * np.flatnonzero(lacks_worker & actions[:, 0]), 3 * np.flatnonzero(lacks_server & actions[:, 1]) + 1]
    )
    return int(rng.choice(remedies)) if len(remedies) else number


class Played(NamedTuple):
    """An episode: the choices of each slot that had any, the JCT of each job in seconds, and summaries of the states of
    these slots."""

    slots: list[list[Choice]]
    jcts: list[float]
    states: list[Floats]


@dataclass
class Learner:
    """One cluster's part: it acts in its episodes, and learns from its own replay."""

    how: Online
    allocator: Allocator
    actor: Net
    critic: Net
    supervised: Net
    rng: np.random.Generator
    average: float = 0.0
    """of the rewards, where there is no value network"""
    scale: float = 0.0
    """the unit of advantages; 0 before the first"""
    replay: Replay = field(init=False)

    def __post_init__(self) -> None:
        """An empty replay."""
        self.replay = Replay(max(self.how.replay, 1))
        self._network = Network(self.actor.arrays())
        self._remedy = server_remedy if isinstance(self.allocator, ServerAllocator) else remedy

    def state_dict(self) -> dict[str, Any]:
        """What it changes beside the networks."""
        return {"average": self.average, "scale": self.scale, "replay": self.replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.average, self.scale = float(state["average"]), float(state["scale"])
        self.replay.load_state_dict(state["replay"])

    def play(self, episode: Episode) -> Played:
        """Act in an episode until its end, and keep its choices."""
        slots: list[tuple[list[Made], dict[JobKey, float]]] = []
        jcts: list[float] = []
        states: list[Floats] = []
        while (seen := episode.observed) is not None:
            choices = self.allocator.choices(seen.snapshot, seen.forecasts, begins=True)
            if not choices.done:
                states.append(choices.summary())
            if not slots or not choices.done:
                slots.append((self._act(seen.snapshot, choices), {}))
            reward = slots[-1][1]
            window = episode.advance(choices.plan())
            for key, share in zip(window.jobs.tolist(), window.shares.tolist(), strict=True):
                reward[key] = reward.get(key, 0.0) + share
            jcts += [each.jct for each in window.ended]
        found = [each for each in with_returns(slots, self.how.discount) if each]
        for each in found:
            self.replay.add(each)
        return Played(found, jcts, states)

    def _act(self, snapshot: Snapshot, choices: Allocation) -> list[Made]:
        """Draw choices from the policy, with remedies of poor states, until the allocation is done."""
        made: list[Made] = []
        while not choices.done:
            state, mask, keys = choices.state["jobs"], choices.mask, _keys(snapshot, choices)
            logits = np.where(mask, self._network.logits(state).astype(np.float64), -np.inf)
            chances = np.exp(logits - logits.max())
            number = int(self.rng.choice(len(mask), p=chances / chances.sum()))
            if self.how.epsilon and self.rng.random() < self.how.epsilon:
                number = self._remedy(state, mask, number, self.rng)
            choices.choose(number)
            void = number == len(mask) - 1
            goes_on = not void and not choices.done and _keys(snapshot, choices) == keys
            after = _told(state, ended=True) if void else _told(choices.state["jobs"], ended=False) if goes_on else None
            made.append(Made(state, mask, number, after, keys))
        return made

    def loss(self, made: Sequence[Choice], *, held: bool) -> tuple[Tensor, dict[str, float]]:
        """The loss of a batch from the replay, or without a replay from the choices `made` in a slot, and its figures.

        The figures are the value network's error, the deviation of the advantages, and both penalties.
        held: the loss is the value network's alone.
        """
        how = self.how
        pool = self.replay.choices if how.replay else made
        drawn = self.rng.choice(len(pool), min(how.batch, len(pool)), replace=False)
        batch = [pool[each] for each in drawn.tolist()]
        advantage, known, error = self.by_values(batch) if how.critic else self.by_average(made, batch)
        spread = float(advantage[known].std()) if known.sum() > 1 else 0.0
        self.scale += (SCALE if self.scale else 1.0) * (spread - self.scale)
        figures = {"error": error.item(), "spread": spread}
        if held:
            return error, figures
        state, present = side_by_side([each.state for each in batch])
        most = state.shape[1] * self.allocator.actions
        mask = of_actions([each.mask for each in batch], most)
        taken = of_actions([np.arange(len(each.mask)) == each.number for each in batch], most)
        logs = torch.log_softmax(self.actor(state, present).masked_fill(~mask, -1e9), 1)
        with torch.no_grad():
            before = torch.log_softmax(self.supervised(state, present).masked_fill(~mask, -1e9), 1)
        entropy = -(logs.exp() * logs.masked_fill(~mask, 0.0)).sum(1).mean()
        divergence = (logs.exp() * (logs - before).masked_fill(~mask, 0.0)).sum(1).mean()
        chosen = logs.masked_fill(~taken, 0.0).sum(1)
        gain = (advantage * chosen)[known].sum() / (len(batch) * (self.scale + 1e-6))
        figures |= {"entropy": entropy.item(), "divergence": divergence.item()}
        return error + how.divergence * divergence - how.entropy * entropy - gain, figures

    def by_average(self, made: Sequence[Choice], batch: Sequence[Choice]) -> tuple[Tensor, Tensor, Tensor]:
        """What the reward of each choice's slot is above the moving average."""
        self.average += BASELINE * (made[0].reward - self.average)
        rewards = torch.tensor([each.reward for each in batch], dtype=torch.float32)
        return rewards - self.average, torch.ones(len(batch), dtype=torch.bool), torch.zeros(())

    def by_values(self, batch: Sequence[Choice]) -> tuple[Tensor, Tensor, Tensor]:
        """(b,) by how much a choice raises the sum of values beyond the mean of the batch, where that is known, and the
        value network's error."""
        value, present = self._values([_told(each.state, ended=False) for each in batch])
        goal = torch.zeros_like(value)
        for row, each in zip(goal, batch, strict=True):
            row[: len(each.returns)] = torch.from_numpy(each.returns)
        error = ((value - goal) ** 2 * present).sum() / present.sum()
        known = torch.tensor([each.after is not None for each in batch])
        advantage = torch.zeros(len(batch))
        if known.any():
            after, there = self._values([each.after for each in batch if each.after is not None])
            error = error + ((after - goal[known][:, : after.shape[1]]) ** 2 * there).sum() / there.sum()
            rise = after.detach().sum(1) - value.detach().sum(1)[known]
            advantage[known] = rise - rise.mean()
        return advantage, known, error

    def _values(self, states: Sequence[Singles]) -> tuple[Tensor, Tensor]:
        """(b, k) the value of each job, 0 where there is none, and which jobs are present."""
        state, present = side_by_side(states)
        return self.critic(state, present)[:, :-1] * present, present


def with_returns(slots: Sequence[tuple[Sequence[Made], Mapping[JobKey, float]]], discount: float) -> list[list[Choice]]:
    """The choices of each slot of an episode, from what each job trained in each of them."""
    later: dict[JobKey, float] = {}
    found: list[list[Choice]] = []
    for made, reward in reversed(slots):
        later = {key: reward.get(key, 0.0) + discount * later.get(key, 0.0) for key in {**later, **reward}}
        total = sum(reward.values())
        found.append(
            [
                Choice(*each[:4], np.array([later.get(key, 0.0) for key in each.keys], dtype=np.float32), total)
                for each in made
            ]
        )
    return found[::-1]


def _told(state: Singles, *, ended: bool) -> Singles:
    """The state with a column that says whether the slot's allocation has ended."""
    return np.append(state, np.full((len(state), 1), ended, dtype=np.float32), axis=1)


def _keys(snapshot: Snapshot, choices: Allocation) -> tuple[JobKey, ...]:
    return tuple(snapshot.jobs.keys[row] for row in choices.batch.tolist())
