"""MLF-RL: MLF-H's schedule, with order, sizes and nodes by a network (MLFS, Wang, Liu, Shen, CoNEXT 2020, section 3.4).

The network sees every job and node, and the graph of dependencies. It passes messages over that graph and between jobs
and the nodes that they run on, and weighs them by means, so that its size depends on neither number, and the order in
which jobs and nodes are given has no effect. One pass of it decides a whole cycle: it gives each job a number for its
place in the queue and one for its size, and each job and node one for its place. `policies.mlfs.schedule` makes the
plan of these, so that nothing is placed where it does not fit. (choice) The numbers are added to MLF-H's own, so that a
network whose last layer is 0 is MLF-H exactly, and learning begins there (residual policy learning: Silver and others,
2018). (choice) They are within `FARTHEST`, so that no network turns MLF-H's order into another altogether.

Of the paper's state it leaves out the mini-batch, the size of the training data and the load of each GPU, which no
snapshot has; the reductions of the loss are one number, as in equation 2. Nodes are chosen for jobs on the GPUs that
they requested; a job of another size goes to as few nodes as possible.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from policies.mlfs.early_stopping import StopCandidates, remaining_share
from policies.mlfs.load_control import LoadControlSettings
from policies.mlfs.mlfs import MLFHSettings, planned, problems
from policies.mlfs.preferences import Preferences
from policies.mlfs.priority import HOUR, Ranking, learning_priority, score
from policies.placement.allocation import held_gpus, movable, startable
from policies.placement.space import Space
from policies.plan import Plan
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecasts

Singles: TypeAlias = NDArray[np.float32]
Arrays: TypeAlias = Mapping[str, Singles]

FARTHEST = 2.0
"""e to this is the largest factor on MLF-H's priority, and on its worth of a GPU"""
KINDS = 8
"""the algorithm is one of so many, by a hash of its name"""
JOB_FEATURES = 22 + KINDS
NODE_FEATURES = 8
SHAPES: Mapping[str, tuple[int | str, ...]] = {
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
    "query.weight": ("hidden", "key"),
    "key.weight": ("hidden", "key"),
}
"""of the arrays of a network"""
LAST = ("order.weight", "size.weight", "query.weight")
"""0 in a network that decides as MLF-H"""


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
    def of(cls, snapshot: Snapshot, ranking: Ranking, settings: MLFHSettings) -> "State":
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
        features = np.nan_to_num(np.column_stack(columns), posinf=3.0, neginf=-3.0)
        return cls(features.astype(np.float32), _nodes(snapshot), edges, snapshot.runs_on[:, :2], jobs.managed)


class MLFRL:
    """A network of these arrays, whose preferences MLF-H's schedule follows.

    Raises:
        ValueError: the arrays are not of `SHAPES`
    """

    def __init__(self, settings: MLFHSettings, arrays: Arrays) -> None:
        check(arrays)
        self.settings, self._arrays = settings, arrays

    def decide(self, snapshot: Snapshot, forecasts: Forecasts) -> Plan:
        """MLF-H's plan with the network's order, sizes and nodes."""
        jobs, settings = snapshot.jobs, self.settings
        candidates = StopCandidates.of(jobs, forecasts.final, LoadControlSettings(), overloaded=False)
        ranking = score(jobs, snapshot.now, forecasts, settings, remaining_share(jobs, candidates))
        preferred = preferences(self._arrays, State.of(snapshot, ranking, settings))
        return plan(snapshot, forecasts, ranking, preferred, settings)


def plan(
    snapshot: Snapshot, forecasts: Forecasts, ranking: Ranking, preferred: Preferences, settings: MLFHSettings
) -> Plan:
    """The plan by MLF-H's ranking and these preferences, which a training may draw at random; the term `learnt` is what
    they add to the priority."""
    preferred_order = ranking.score * np.exp(preferred.order)
    terms = {**ranking.terms, "learnt": preferred_order - ranking.score}
    ranking = replace(ranking, score=preferred_order, terms=terms)
    actions = planned(snapshot, forecasts, ranking, (), settings, preferences=preferred)
    return Plan(ranking.score, terms, actions, notes=problems(snapshot.jobs, ranking))


def preferences(arrays: Arrays, state: State) -> Preferences:
    """The network's."""
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
    query, key = second @ arrays["query.weight"], there @ arrays["key.weight"]
    order, size = (FARTHEST * np.tanh(second @ arrays[name])[:, 0] for name in ("order.weight", "size.weight"))
    return Preferences(*(each.astype(np.float64) for each in (order, size, query, key)))


def initial(seed: int, hidden: int = 32, key: int = 8) -> dict[str, Singles]:
    """Arrays by which MLF-RL decides as MLF-H: random but for the last layer, which is 0."""
    rng, sizes = np.random.default_rng(seed), {"hidden": hidden, "key": key}
    arrays = {}
    for name, shape in SHAPES.items():
        size = [sizes[each] if isinstance(each, str) else each for each in shape]
        zero = name in LAST or name.endswith("bias")
        scale = 0.0 if zero else (2.0 / size[0]) ** 0.5
        arrays[name] = (scale * rng.standard_normal(size)).astype(np.float32)
    return arrays


def check(arrays: Arrays) -> None:
    """Check that the arrays are of `SHAPES`.

    Raises:
        ValueError: they are not
    """
    if arrays.keys() != SHAPES.keys():
        wrong = sorted(arrays.keys() ^ SHAPES.keys())
        raise ValueError(f"arrays of MLF-RL that are missing or unknown: {', '.join(wrong)}")
    sizes: dict[str, int] = {}
    for name, wanted in SHAPES.items():
        shape = arrays[name].shape
        for have, want in zip(shape, wanted, strict=False):
            if isinstance(want, str):
                sizes.setdefault(want, have)
        if shape != (expected := tuple(sizes.get(each, 0) if isinstance(each, str) else each for each in wanted)):
            raise ValueError(f"array {name} is of shape {shape}, not {expected}")


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


def _of_progress(snapshot: Snapshot, ranking: Ranking, settings: MLFHSettings) -> list[Floats]:
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
