"""MLF-C's settings, and whether the cluster is overloaded (MLFS, Wang, Liu, Shen, CoNEXT 2020, section 3.5)."""

from dataclasses import dataclass

import numpy as np

from policies.plan import Memory
from policies.snapshot import Snapshot

NOT_FINITE_REPORTS = 5
"""From this many losses of NaN or infinity in a row on, a training has diverged."""


@dataclass(frozen=True)
class LoadControlSettings:
    """When a cluster counts as overloaded, and how certain a stop must be.

    overload_degree: h_s, the mean dominant share of the nodes above which the cluster is overloaded, in [0, 1].
    overload_enter, overload_exit: cycles that overload must last, or be over, before the state changes. confidence:
    with which a job must be predicted to miss its target before it is stopped, in (0.5, 1). spend_error: the error
    that this leaves is spent over the job's iterations, little of it at first; false: all of it is allowed after each
    report, as in the paper. diverged_reports: reports in a row that show that a training has diverged. min_observed:
    points of a curve before a stop. epsilon: the share of the achieved value that is not worth further training.
    minimum_accuracy: the target of a job without one that is judged by its accuracy; NaN: none.
    """

    overload_degree: float = 0.9
    overload_enter: int = 3
    overload_exit: int = 3
    confidence: float = 0.95
    spend_error: bool = True
    diverged_reports: int = NOT_FINITE_REPORTS
    min_observed: int = 5
    epsilon: float = 0.005
    minimum_accuracy: float = np.nan

    def __post_init__(self) -> None:
        if not 0 <= self.overload_degree <= 1:
            raise ValueError(f"overload_degree is between 0 and 1, not {self.overload_degree}")
        for name in ("overload_enter", "overload_exit"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1 cycle, not {getattr(self, name)}")
        if not 0.5 < self.confidence < 1:
            raise ValueError(f"confidence is between 0.5 and 1, not {self.confidence}")
        if self.diverged_reports < 2:
            raise ValueError(f"diverged_reports is at least 2, not {self.diverged_reports}")
        if self.min_observed < 3:
            raise ValueError(f"min_observed is at least 3, which an estimate of noise needs, not {self.min_observed}")
        if not 0 <= self.epsilon < 1:
            raise ValueError(f"epsilon is at least 0 and less than 1, not {self.epsilon}")


@dataclass(frozen=True)
class Load:
    """The load of the cluster: whether it is overloaded, O_c in [0, 1], and the number of jobs waiting for
    resources."""

    overloaded: bool
    degree: float
    waiting: int
    memory: Memory


def assess_load(snapshot: Snapshot, memory: Memory, settings: LoadControlSettings) -> Load:
    """The load of the cluster, overloaded if a job waits for resources, or O_c > h_s, for long enough.

    O_s is a node's dominant share, since a GPU node with idle CPUs is full. memory: of the last cycle's `Load`.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    queued = jobs.pending & ~jobs.held & ((jobs.reason == "Resources") | (jobs.reason == "Priority"))
    shares = np.divide(nodes.used, nodes.capacity, out=np.zeros_like(nodes.used), where=nodes.capacity > 0)
    degree = float(shares[nodes.up].max(axis=1).mean()) if nodes.up.any() else 0.0
    waiting = int(jobs.elements[queued].sum())

    before = bool(memory["overloaded"][0]) if "overloaded" in memory else False
    disagreeing = int(memory["disagreeing"][0]) if "disagreeing" in memory else 0
    disagreeing = disagreeing + 1 if (waiting > 0 or degree > settings.overload_degree) != before else 0
    turned = disagreeing >= (settings.overload_exit if before else settings.overload_enter)
    overloaded = before != turned
    return Load(
        overloaded,
        degree,
        waiting,
        {"overloaded": np.array([overloaded]), "disagreeing": np.array([0 if turned else disagreeing])},
    )
