"""Training of MLF-RL by policy gradient (MLFS, Wang, Liu, Shen, CoNEXT 2020, section 3.4; PPO: Schulman and others,
arXiv 1707.06347). Reads from top to bottom; the network and its features are those of `policies.mlfs.network`.

1. Imitation: it begins with a last layer of 0, which is MLF-H exactly. How much less GPUs beyond a node are worth to
   all jobs is tried first, as a single number.
2. In each iteration several runs are made of each of some workloads. Every decision draws, for each job that waits or
   can be moved, its numbers: its place in the queue, its size, its GPUs beyond a node, and the vector by which it
   chooses among the nodes with room. MLF-H's schedule makes the plan of these.
3. A decision's reward is equation 7 for the window until the next, each term against MLF-H's run of the same workload
   over the same time. Its advantage is the discounted sum of the rewards from there on, without the mean of what the
   other runs of the workload have from that time on (the baseline of Decima: Mao and others, arXiv 1810.08264). Which
   jobs the workload has explains most of what differs between rewards, and by this cancels; so there is no value
   network.
4. All jobs share one network and the advantage, and each has a clipped ratio of its own (MAPPO: Yu and others, arXiv
   2103.01955).

What is drawn is a random linear function of the job's features, which stays the same for a run (gSDE: Raffin and
others, arXiv 2005.05719): noise that changes from cycle to cycle would resize jobs to and fro. Every other run has the
opposite function.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from policies.mlfs import network
from policies.mlfs.mlfs import MLFHSettings, ranked
from policies.mlfs.network import State
from policies.mlfs.rl import MLFRL, plan
from policies.model import Model, Singles
from policies.placement.allocation import elastic, movable, startable
from policies.seen_states import SeenStates
from policies.snapshot import Jobs
from predictors.arrays import Bools, Floats
from slurmplug.errors import UsageError
from slurmplug.rl.checkpoint import NOTHING_KEPT, Checkpoint
from slurmplug.rl.episode import Episode, Window
from slurmplug.rl.mlf_rl_network import Batch, Net
from slurmplug.rl.torch_state import plain, restore
from slurmplug.rl.training_workloads import CHOOSING, TrainingWorkloads, require_for_training
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

Progress = Callable[[str, int, Mapping[str, float]], Any]
"""Called with the stage, its step and figures by name."""
TERMS = ("jct", "deadlines", "bytes", "targets", "accuracy")
"""g1 to g5 of equation 7"""
BETTER = np.array([-1.0, 1.0, -1.0, 1.0, 1.0])
"""of the first and third less is better"""
LEAST_SHARE = 0.1
"""of the mean over the workloads: a term that MLF-H has less of counts as this, so that none is divided by nearly 0"""
NARROWER = (0.5, 1.0, 1.6)
"""by which GPUs beyond a node are tried to be worth less, in units before the tanh, before the first iteration"""
OF_QUERY = 0.25
"""the spread of a query's numbers, of which several add up, against that of others"""
LARGEST = 3.0
"""of an advantage, in standard deviations: a single large job can make runs differ by half"""
FARTHEST = 0.4
"""of the logarithm of a term's ratio to MLF-H's, where networks are compared: without a bound the best one would be one
that sends nothing, whatever else it costs"""
INDIFFERENT = 0.2
"""A feature, all of which are within about [-3, 3], may differ by so much more than it varied in training: in a
simulation nodes use exactly what is allocated of them and every job has a deadline, which is so nowhere else."""


@dataclass(frozen=True)
class Settings:
    """What is trained on, and for how long.

    workload: a generator's, with its options; also: more of them, in turn. seed: of the first workload. jobs, clusters,
    loads: as `TrainingWorkloads` has them. interval: seconds between cycles. weights: b1 to b5 of equation 7.
    hidden: units of a layer. iterations: of PPO. workloads: of each. runs: of each workload. spread: standard deviation
    of what is drawn. discount: of a reward an interval later (eta). rate: Adam's, which falls to 0. clip: of the ratio.
    passes: over the decisions of an iteration. batch: decisions of an update. choosing: workloads, of at most 20, by
    which the best network is chosen, each `every` iterations and after the last.

    Raises:
        UsageError: what they say cannot be trained on
    """

    workload: str = "gen:mlfs?shapes=drawn"
    also: tuple[str, ...] = ("gen:mlfs?shapes=drawn&elastic=off",)
    seed: int = 1000
    jobs: int = 40
    clusters: tuple[str, ...] = ("6x4", "12x4", "24x4", "6x8")
    loads: tuple[float, float] = (1.0, 6.0)
    interval: float = 900.0
    weights: tuple[float, float, float, float, float] = (1.0, 0.55, 0.1, 0.15, 0.15)
    hidden: int = 16
    iterations: int = 12
    workloads: int = 6
    runs: int = 4
    spread: float = 0.8
    discount: float = 0.95
    rate: float = 0.003
    clip: float = 0.2
    passes: int = 4
    batch: int = 256
    choosing: int = 12
    every: int = 3

    def __post_init__(self) -> None:
        """Check them."""
        self.sources()
        for seed in (self.seed, self.seed + self.iterations * self.workloads):
            require_for_training(seed)
        counts = (self.jobs, self.hidden, self.workloads, self.passes, self.batch, self.every)
        if min(counts) < 1 or self.iterations < 0:
            raise UsageError(
                "jobs, hidden, workloads, passes, batch and every must be at least 1, and iterations at least 0"
            )
        if self.runs < 2 or self.runs % 2:
            raise UsageError("runs must be an even number, at least 2: each run has its opposite")
        if not 1 <= self.choosing <= len(CHOOSING):
            raise UsageError(f"choosing must be from 1 to {len(CHOOSING)}")
        if not (self.interval >= 1 and min(self.spread, self.rate, self.clip) > 0 and 0 <= self.discount < 1):
            raise UsageError(
                "interval must be at least 1 second, spread, rate and clip above 0, and discount from 0 to below 1"
            )

    def sources(self) -> tuple[TrainingWorkloads, ...]:
        """The sources of the workloads of training, used in turn."""
        return tuple(
            TrainingWorkloads(name, self.clusters, self.jobs, self.loads) for name in (self.workload, *self.also)
        )


@dataclass
class Done:
    """What a training has come to: iterations, `plain` states of what it changes, the best arrays and their reward, and
    summaries (d,) of the states met. Random numbers follow from the seed and the iteration."""

    iterations: int
    parts: Mapping[str, Any]
    best: dict[str, Singles]
    reward: float
    states: list[Floats]


def train(settings: Settings, progress: Progress = lambda *_: None, checkpoint: Checkpoint = NOTHING_KEPT) -> Model:
    """Train a model; the same settings give the same one. Runs with one thread."""
    torch.set_num_threads(1)
    net = Net(settings.seed, settings.hidden)
    adam = torch.optim.Adam(net.parameters(), lr=settings.rate)
    parts = {"network": net, "optimiser": adam}
    choosing = [Case.of(settings, CHOOSING[number]) for number in range(settings.choosing)]
    done = checkpoint.load(Done)
    if done is None:
        best, figures = narrowed(choosing, copied(net), settings)
        net.adopt(best)
        progress("narrow", len(NARROWER), figures)
        done = Done(0, plain(parts), best, figures["reward"], [])
    restore(parts, done.parts)
    for number in range(done.iterations, settings.iterations):
        rng = np.random.default_rng([settings.seed, number])
        first = settings.seed + number * settings.workloads
        cases = [Case.of(settings, first + each) for each in range(settings.workloads)]
        runs = [drawn_runs(case, net.arrays(), settings, rng) for case in cases]
        rewards = rewarded(cases, runs, settings)
        advantages = credited(runs, rewards, settings)
        made = [decision for of_case in runs for run in of_case for decision in run]
        adam.param_groups[0]["lr"] = settings.rate * (1.0 - number / settings.iterations)
        figures = update(net, adam, made, advantages, settings, rng=rng)
        reward = np.mean([each.sum() for of_case in rewards for each in of_case])
        progress("iteration", number + 1, {"reward": float(reward), **figures})
        done.states += known(of_case[0] for of_case in runs)
        if (number + 1) % settings.every == 0 or number + 1 == settings.iterations:
            figures = compared(choosing, net.arrays(), settings)
            progress("chosen by", number + 1, figures)
            if figures["reward"] > done.reward:
                done.best, done.reward = copied(net), figures["reward"]
        done.iterations, done.parts = number + 1, plain(parts)
        checkpoint.keep(lambda: done)
    states = done.states or known(case.teacher for case in choosing)
    seen = SeenStates.of(np.array(states), indifferent=INDIFFERENT)
    facts = {name: str(value) for name, value in asdict(settings).items()}
    return Model(MLFRL.name, MLFRL.version, {**without_untrained(done.best, settings), **seen.arrays()}, facts)


def narrowed(
    choosing: Sequence["Case"], arrays: Mapping[str, Singles], settings: Settings
) -> tuple[dict[str, Singles], dict[str, float]]:
    """The best of these arrays and those by which GPUs beyond a node are worth less to all jobs, and its figures."""
    by = np.array([0.0, 0.0, 1.0], dtype=np.float32)
    tried = [{**arrays, "direct.bias": arrays["direct.bias"] - less * by} for less in (0.0, *NARROWER)]
    tried = tried if settings.iterations else tried[:1]
    figures = [compared(choosing, each, settings) for each in tried]
    best = max(range(len(tried)), key=lambda each: figures[each]["reward"])
    return tried[best], figures[best]


def known(runs: Iterable["Run"]) -> list[Floats]:
    """Summaries of the states that were met."""
    return [decision.state.summary() for run in runs for decision in run if decision.state.ranked.any()]


def without_untrained(arrays: Mapping[str, Singles], settings: Settings) -> dict[str, Singles]:
    """The arrays of a training, with 0 in place of the random weights of what it never met: a role, an algorithm, jobs
    without a deadline, or a dependency, of which it learnt nothing. The keys of nodes are random in every network."""
    before = network.initial(settings.seed, settings.hidden)
    found = {name: array.copy() for name, array in arrays.items()}
    for name in network.READING:
        found[name][(found[name] == before[name]).all(axis=1)] = 0.0
    return found


def copied(net: Net) -> dict[str, Singles]:
    """The network's arrays as they are now."""
    return {name: array.copy() for name, array in net.arrays().items()}


class Decision(NamedTuple):
    """One of a run, and its window. begin, end: seconds from the workload's start. drawn (n, 3 + k): the numbers of the
    jobs. chance (n,): the logarithm of their density, but for a constant. counts (n, 3 + k): which of them can change
    what happens. terms (5,): of equation 7."""

    begin: float
    end: float
    state: State
    drawn: Singles
    chance: Singles
    counts: Bools
    terms: Floats


Run: TypeAlias = list[Decision]


@dataclass(frozen=True, eq=False)
class Case:
    """A workload, and what MLF-H does with it."""

    workload: Workload
    settings: SimulationSettings
    teacher: Run = field(default_factory=list)

    @classmethod
    def of(cls, settings: Settings, seed: int) -> "Case":
        """The workload of a seed for training, or for choosing."""
        source = settings.sources()[seed % (1 + len(settings.also))]
        workload, cluster = source.for_choosing(seed - CHOOSING[0]) if seed in CHOOSING else source.sample(seed)
        case = cls(workload, SimulationSettings(cluster, settings.interval, seed))
        case.teacher.extend(case.run(network.initial(settings.seed, settings.hidden)))
        return case

    def run(self, arrays: Mapping[str, Singles], drawn: Singles | float = 0.0, spread: Singles | float = 0.0) -> Run:
        """One that decides by these arrays, with what is drawn (JOB_FEATURES + 1, 3 + k) times the spread (3 + k,)."""
        episode, how, made = Episode(Simulation(self.workload, MLFRL(), self.settings)), MLFHSettings(), Run()
        while (seen := episode.observed) is not None:
            snapshot, forecasts = seen.snapshot, seen.forecasts
            ranking = ranked(snapshot, forecasts, how)
            state = State.of(snapshot, ranking, how)
            mean, key = network.numbers(arrays, state)
            away = np.zeros_like(mean) if np.isscalar(drawn) else directions(state.jobs) @ drawn
            numbers, counts = mean + spread * away, that_count(snapshot.jobs, mean.shape[1])
            window = episode.advance(plan(snapshot, forecasts, ranking, network.bounded(numbers, key), how))
            chance = -0.5 * (away**2 * counts).sum(axis=1)
            made.append(Decision(window.begin, window.end, state, numbers, chance, counts, terms_of(window)))
        return made


def directions(jobs: Singles) -> Singles:
    """(n, JOB_FEATURES + 1) the features of jobs and a constant, in vectors of length 1."""
    extended = np.append(jobs, np.ones((len(jobs), 1), dtype=np.float32), axis=1)
    directions: Singles = extended / np.linalg.norm(extended, axis=1, keepdims=True)
    return directions


def that_count(jobs: Jobs, numbers: int) -> Bools:
    """(n, numbers) whether a job's place in the queue, size and width, and node can change what happens."""
    waits = startable(jobs) & jobs.managed
    acts, sized = waits | movable(jobs), elastic(jobs) & (waits | movable(jobs))
    return np.column_stack([acts, sized, sized, *[waits & ~sized] * (numbers - 3)])


def terms_of(window: Window) -> Floats:
    """(5,) sums whose totals over a run are in proportion to the terms of equation 7."""
    ended = window.ended
    met, accurate = (sum(map(bool, each)) for each in ([x.in_time for x in ended], [x.accurate for x in ended]))
    return np.array([window.job_seconds, met, window.bytes_sent, accurate, sum(x.accuracy or 0.0 for x in ended)])


def drawn_runs(case: Case, arrays: Mapping[str, Singles], settings: Settings, rng: np.random.Generator) -> list[Run]:
    """Runs of a workload, each with its opposite."""
    made, spread = [], spreads(settings, 3 + arrays["query.weight"].shape[1])
    for _ in range(settings.runs // 2):
        drawn = rng.standard_normal((network.JOB_FEATURES + 1, len(spread))).astype(np.float32)
        made += [case.run(arrays, sign * drawn, spread) for sign in (np.float32(1.0), np.float32(-1.0))]
    return made


def spreads(settings: Settings, numbers: int) -> Singles:
    """(numbers,) the standard deviation of what is drawn."""
    return np.array([settings.spread] * 3 + [settings.spread * OF_QUERY] * (numbers - 3), dtype=np.float32)


def rewarded(cases: Sequence[Case], runs: Sequence[Sequence[Run]], settings: Settings) -> list[list[Floats]]:
    """The rewards (decisions,) of each run of each workload."""
    totals = np.array([total(case.teacher) for case in cases])
    scale = np.maximum(totals, LEAST_SHARE * totals.mean(axis=0) + 1e-9)
    return [
        [gained(run, case.teacher) / of_case @ settings.weights for run in its]
        for case, its, of_case in zip(cases, runs, scale, strict=True)
    ]


def total(run: Run) -> Floats:
    """(5,) the terms."""
    return np.asarray(np.sum([each.terms for each in run], axis=0))


def gained(run: Run, teacher: Run) -> Floats:
    """(decisions, 5) by how much the terms of each window are better than the teacher's over the same time; what the
    teacher still does after the end of the run is in the last."""
    at = np.array([0.0, *(each.end for each in teacher)])
    terms = np.cumsum([np.zeros(len(TERMS)), *(each.terms for each in teacher)], axis=0)
    ends = [0.0, *(each.end for each in run[:-1]), np.inf]
    theirs = np.diff([[np.interp(end, at, column) for column in terms.T] for end in ends], axis=0)
    return np.asarray(BETTER * (np.array([each.terms for each in run]) - theirs))


def credited(runs: Sequence[Sequence[Run]], rewards: Sequence[Sequence[Floats]], settings: Settings) -> Floats:
    """(decisions of all runs,) the advantages, in standard deviations."""
    found = []
    for of_case, rewarded_so in zip(runs, rewards, strict=True):
        begins = [np.array([each.begin for each in run]) for run in of_case]
        ahead = [returns(at, each, settings) for at, each in zip(begins, rewarded_so, strict=True)]
        for own, at in enumerate(begins):
            others = [each for each in range(len(begins)) if each != own]
            theirs = [np.interp(at, begins[each], ahead[each], right=0.0) for each in others]
            found.append(ahead[own] - np.mean(theirs, axis=0))
    advantages = np.concatenate(found)
    return np.asarray(np.clip(advantages / (advantages.std() + 1e-9), -LARGEST, LARGEST))


def returns(begins: Floats, rewards: Floats, settings: Settings) -> Floats:
    """(decisions,) the discounted sum of the rewards from each decision on."""
    found, ahead = np.zeros(len(rewards)), 0.0
    for at in reversed(range(len(rewards))):
        seconds = begins[at + 1] - begins[at] if at + 1 < len(begins) else 0.0
        ahead = found[at] = rewards[at] + settings.discount ** (seconds / settings.interval) * ahead
    return found


def update(
    net: Net,
    adam: torch.optim.Adam,
    made: Sequence[Decision],
    advantages: Floats,
    settings: Settings,
    *,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Learn from the decisions of an iteration; returns figures of the last pass."""
    for _ in range(settings.passes):
        told = []
        order = rng.permutation(len(made))
        for at in range(0, len(order), settings.batch):
            some = order[at : at + settings.batch]
            batch = [made[each] for each in some.tolist()]
            counts = torch.from_numpy(np.concatenate([each.counts for each in batch]))
            drawn = torch.from_numpy(np.concatenate([each.drawn for each in batch]))
            before = torch.from_numpy(np.concatenate([each.chance for each in batch]))
            advantage = torch.from_numpy(np.repeat(advantages[some], [len(each.chance) for each in batch]))
            acts = counts.any(1)
            if not acts.any():
                continue
            numbers = net(Batch([each.state for each in batch]))
            away = (drawn - numbers) / torch.from_numpy(spreads(settings, drawn.shape[1]))
            change = ((-0.5 * (away**2 * counts).sum(1)) - before)[acts]
            ratio, advantage = change.exp(), advantage[acts]
            clipped = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
            loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            adam.step()
            with torch.no_grad():
                apart = (ratio - 1.0 - change).mean().item(), (ratio != clipped).double().mean().item()
            told.append((loss.item(), *apart))
    return dict(zip(("loss", "divergence", "clipped"), np.mean(told, axis=0).tolist(), strict=True))


def compared(cases: Sequence[Case], arrays: Mapping[str, Singles], settings: Settings) -> dict[str, float]:
    """Equation 7 by logarithms, and by what factor each term is MLF-H's, in the geometric mean over the workloads."""
    ours, theirs = (
        np.array([total(run) for run in some])
        for some in ([case.run(arrays) for case in cases], [case.teacher for case in cases])
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.clip(np.nan_to_num(np.log(ours / theirs), nan=0.0), -FARTHEST, FARTHEST).mean(axis=0)
    return {"reward": float(BETTER * ratio @ settings.weights), **dict(zip(TERMS, np.exp(ratio).tolist(), strict=True))}
