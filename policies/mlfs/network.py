"""MLF-RL's network: what jobs, their sizes and nodes are preferred (MLFS, Wang, Liu, Shen, CoNEXT 2020, section 3.4).

The network sees every job and node, and the graph of dependencies. It passes messages over that graph and between jobs
and the nodes that they run on, and weighs them by means, so that its size depends on neither number, and the order in
which jobs and nodes are given has no effect. One pass of it decides a whole cycle: it gives each job a number for its
place in the queue and two for its size, and each job and node one for its place. `policies.mlfs.schedule` makes the
plan of these, so that nothing is placed where it does not fit. (choice) The numbers are added to MLF-H's own, so that a
network whose last layer is 0 is MLF-H exactly, and learning begins there (residual policy learning: Silver and others,
2018). Features act on them directly, too ("wide and deep": Cheng and others, 2016). (choice) They are within
`FARTHEST`, so that no network turns MLF-H's order into another altogether.

A node is described to jobs by its key. (choice) The key's own weights (`held`, `there`, `key`) stay as they were drawn;
what is learnt is each job's query, so which of these random features of nodes it prefers.

Of the paper's state it leaves out the mini-batch and the size of the training data, which jobs may declare
(`Jobs.work`), and the load of each GPU, which jobs report: simulated jobs have neither, and a feature that never varies
in training tells nothing but that a state is unknown. The reductions of the loss are one number, as in equation 2.
Nodes are chosen for jobs on the GPUs that they requested; a job of another size goes to as few nodes as possible.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from policies import seen_states
from policies.mlfs.preferences import Preferences
from policies.mlfs.priority import HOUR, PrioritySettings, Ranking, learning_priority
from policies.model import Model, Shapes, Singles
from policies.placement.allocation import held_gpus, movable, startable
from policies.placement.space import Space
from policies.seen_states import SeenStates
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints

Arrays: TypeAlias = Mapping[str, Singles]

FARTHEST = 2.0
"""e to this is the largest factor on MLF-H's priority, and on its worth of a GPU"""
KINDS = 8
"""the algorithm is one of so many, by a hash of its name"""
JOB_FEATURES = 22 + KINDS
NODE_FEATURES = 8
ARRAYS: Shapes = {
    "job.weight": (JOB_FEATURES, "hidden"),
    "job.bias": ("hidden",),
    "node.weight": (NODE_FEATURES, "hidden"),
    "node.bias": ("hidden",),
    "own.weight": ("hidden", "hidden"),
    "parents.weight": ("hidden", "hidden"),
    "children.weight": ("hidden", "hidden"),
    "on.weight": ("hidden", "hidden"),
    "jobs.weight": ("hidden", "hidden"),
    "nodes.weight": ("hidden", "hidden"),
    "second.bias": ("hidden",),
    "held.weight": ("hidden", "hidden"),
    "there.bias": ("hidden",),
    "order.weight": ("hidden", 1),
    "size.weight": ("hidden", 1),
    "width.weight": ("hidden", 1),
    "direct.weight": (JOB_FEATURES, 3),
    "direct.bias": (3,),
    "query.weight": ("hidden", "key"),
    "key.weight": ("hidden", "key"),
}
"""of the network"""
SHAPES: Shapes = MappingProxyType({**ARRAYS, **seen_states.SHAPES})
"""of a model"""
VERSION = 1
"""of the features"""
POLICY = "mlf-rl"
"""whose models these are"""
DEEP = ("order.weight", "size.weight", "width.weight")
LAST = (*DEEP, "direct.weight", "direct.bias", "query.weight")
"""0 in a network that decides as MLF-H"""
READING = ("job.weight", "node.weight", "own.weight", "parents.weight", "children.weight", "on.weight", "jobs.weight",
           "nodes.weight")  # fmt: skip
"""what is learnt of features and messages, a row for each of them"""


@dataclass(frozen=True, eq=False)
class State:
    """What the network sees.

    jobs (n, JOB_FEATURES), nodes (m, NODE_FEATURES): all within about [-3, 3]. edges (e, 2): a job and the job of the
    same ML job that it depends on. on (a, 2): a job and a node that it runs on. ranked (n,): the managed jobs.
    """

    jobs: Singles
    nodes: Singles
    edges: Ints
    on: Ints
    ranked: Bools

    @classmethod
    def of(cls, snapshot: Snapshot, ranking: Ranking, settings: PrioritySettings) -> "State":
        """By the same priorities and run times as MLF-H."""
        jobs, parents = snapshot.jobs, snapshot.jobs.parents
        edges = parents[parents[:, 1] >= 0]
        edges = edges[jobs.ml_job[edges[:, 0]] == jobs.ml_job[edges[:, 1]]]
        columns = [
            *_of_requests(snapshot),
            *_of_progress(snapshot, ranking, settings),
            np.log1p(np.bincount(edges[:, 1], minlength=len(jobs))),
            *_kinds(jobs),
        ]
        features = np.ascontiguousarray(np.array(columns, dtype=np.float32).T)
        if not np.isfinite(features).all():
            features = np.nan_to_num(features, posinf=3.0, neginf=-3.0)
        return cls(features, _nodes(snapshot), edges, snapshot.runs_on[:, :2], jobs.managed)

    def summary(self) -> Floats:
        """(f,) what tells states of training from others: the means, over the managed jobs and over the nodes, of their
        features but for the algorithms. There is at least one job."""
        jobs, nodes = self.jobs[self.ranked, : JOB_FEATURES - KINDS].mean(axis=0), self.nodes.mean(axis=0)
        return np.concatenate([jobs, nodes]).astype(np.float64)


class Network:
    """The network of a model."""

    def __init__(self, model: Model) -> None:
        """model: with arrays of `SHAPES`."""
        self._arrays, self._seen = model.arrays, SeenStates.from_arrays(model.arrays)

    def preferences(self, state: State) -> Preferences:
        """What the network prefers in this state."""
        return preferences(self._arrays, state)

    def distance(self, state: State) -> float:
        """The distance of a state from those in training (`SeenStates.distance`); 0 without jobs or nodes."""
        return self._seen.distance(state.summary()) if state.ranked.any() and len(state.nodes) else 0.0


def preferences(arrays: Arrays, state: State) -> Preferences:
    """What the network of these arrays prefers in this state."""
    return bounded(*numbers(arrays, state))


class Numbers(NamedTuple):
    """The outputs of the network.

    jobs (n, 3 + k): the order, size and width of each job, not yet bounded, and its query. key (m, k): of the nodes.
    """

    jobs: Singles
    key: Singles


def numbers(arrays: Arrays, state: State) -> Numbers:
    """The outputs of the network of these arrays for this state."""
    n, m = len(state.jobs), len(state.nodes)
    job = _relu(state.jobs @ arrays["job.weight"] + arrays["job.bias"])
    node = _relu(state.nodes @ arrays["node.weight"] + arrays["node.bias"])
    child, parent = state.edges.T
    row, at = state.on.T
    whole = job.mean(axis=0) @ arrays["jobs.weight"] if n else np.float32(0.0)
    every = node.mean(axis=0) @ arrays["nodes.weight"] if m else np.float32(0.0)
    second = _relu(
        job @ arrays["own.weight"]
        + _mean(job[parent], child, n) @ arrays["parents.weight"]
        + _mean(job[child], parent, n) @ arrays["children.weight"]
        + _mean(node[at], row, n) @ arrays["on.weight"]
        + (whole + every + arrays["second.bias"])
    )
    there = _relu(node + _mean(job[row], at, m) @ arrays["held.weight"] + arrays["there.bias"])
    direct = state.jobs @ arrays["direct.weight"] + arrays["direct.bias"]
    deep = second @ np.concatenate([arrays[name] for name in DEEP], axis=1)
    query = second @ arrays["query.weight"]
    return Numbers(np.concatenate([direct + deep, query], axis=1), there @ arrays["key.weight"])


def bounded(jobs: Singles, key: Singles) -> Preferences:
    """The preferences that these numbers, as `Numbers` has them, amount to."""
    order, size, width = FARTHEST * np.tanh(jobs[:, :3]).T
    return Preferences(*(each.astype(np.float64) for each in (order, size, width, jobs[:, 3:], key)))


def initial(seed: int, hidden: int = 16, key: int = 8) -> dict[str, Singles]:
    """Arrays by which MLF-RL decides as MLF-H: random but for the last layer, which is 0."""
    rng, sizes = np.random.default_rng(seed), {"hidden": hidden, "key": key}
    arrays = {}
    for name, shape in ARRAYS.items():
        size = [sizes[each] if isinstance(each, str) else each for each in shape]
        zero = name in LAST or name.endswith("bias")
        scale = 0.0 if zero else (2.0 / size[0]) ** 0.5
        arrays[name] = (scale * rng.standard_normal(size)).astype(np.float32)
    return arrays


def _relu(values: Singles) -> Singles:
    return np.maximum(values, np.float32(0.0))


def _mean(messages: Singles, to: Ints, n: int) -> Singles:
    """(n, h) the mean of the messages (k, h) to each of n; 0 where there is none."""
    if not len(to):
        return np.zeros((n, messages.shape[1]), dtype=np.float32)
    order, counts = np.argsort(to, kind="stable"), np.bincount(to, minlength=n)
    there = np.flatnonzero(counts)
    means = np.zeros((n, messages.shape[1]), dtype=np.float32)
    sums = np.add.reduceat(messages[order], (np.cumsum(counts) - counts)[there])
    means[there] = sums / counts[there, None].astype(np.float32)
    return means


def _of_requests(snapshot: Snapshot) -> list[Floats]:
    """What the jobs request, and whether they run."""
    jobs = snapshot.jobs
    each = jobs.demand / np.maximum(jobs.gpus, 1)[:, None]
    flags = (jobs.running, startable(jobs), movable(jobs), jobs.gpus_max > jobs.gpus_min, jobs.role == "ps")
    counts = (jobs.gpus, jobs.gpus_min, jobs.gpus_max, held_gpus(snapshot), jobs.elements)
    return [
        *(flag.astype(np.float64) for flag in flags),
        *(np.log2(1.0 + np.maximum(count, 0)) / 2.0 for count in counts),
        np.log2(1.0 + each[:, 1]) / 2.0,
        np.log2(1.0 + each[:, 2] / 1024.0) / 4.0,
    ]


def _of_progress(snapshot: Snapshot, ranking: Ranking, settings: PrioritySettings) -> list[Floats]:
    """What is left of the jobs, and what MLF-H thinks of them."""
    jobs, now = snapshot.jobs, snapshot.now
    left = ranking.remaining
    slack = (jobs.deadline - now - left) / np.maximum(left, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        done = np.where(jobs.max_iterations > 0, jobs.iteration / jobs.max_iterations, 0.0)
        priority = np.log(ranking.score)
    return [
        np.log(left / HOUR) / 2.0,
        np.log1p(np.fmax(jobs.waited, 0.0) / HOUR) / 2.0,
        np.log1p(np.fmax(jobs.attained, 0.0) / HOUR) / 3.0,
        np.tanh(np.nan_to_num(slack)),
        np.isnan(jobs.deadline).astype(np.float64),
        np.nan_to_num(jobs.urgency, nan=settings.urgency) / 10.0,
        np.clip(done, 0.0, 1.0),
        np.nan_to_num(learning_priority(jobs, left, settings)) / 10.0,
        np.clip(priority, -9.0, 9.0) / 3.0,
    ]


def _kinds(jobs: Jobs) -> Floats:
    """(KINDS, n) one-hot."""
    names, which = np.unique(jobs.kind, return_inverse=True)
    place = np.array([crc32(name.encode()) % KINDS for name in names.tolist()], dtype=np.int64)
    return (
        np.asarray((place[which] == np.arange(KINDS)[:, None]).astype(np.float64))
        if len(jobs)
        else np.zeros((KINDS, 0))
    )


def _nodes(snapshot: Snapshot) -> Singles:
    """(m, NODE_FEATURES): of each node whether it is up, its size, what is free and in use, and its jobs."""
    nodes, on = snapshot.nodes, snapshot.runs_on
    unit = 1.0 / np.where(nodes.capacity > 0, nodes.capacity, np.inf)
    columns = [
        nodes.up.astype(np.float64),
        np.log2(1.0 + nodes.capacity[:, 0]) / 2.0,
        *(Space(snapshot).free * unit).T,
        *(np.nan_to_num(nodes.load[:, 1:]) * unit[:, 1:]).T,
        np.log2(1.0 + np.bincount(on[:, 1], minlength=len(nodes.names))) / 2.0,
    ]
    features: Singles = np.nan_to_num(np.column_stack(columns)).astype(np.float32)
    return features
