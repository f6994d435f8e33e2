"""The scheduling parameters of the simulated Slurm."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slurmplug.cluster.limits import Assoc, Limits
from slurmplug.sim.slurm.backfill_limits import BackfillLimits
from slurmplug.sim.slurm.multifactor import Billing, Weights
from slurmplug.sim.slurm.partitions import Partition
from slurmplug.sim.slurm.share_tree import Shares


@dataclass(frozen=True)
class Reservations:
    """How backfill reserves nodes for waiting jobs, in seconds: SchedulerParameters' bf_resolution, bf_window and
    bf_window_linear (0: without), and bf_job_part_count_reserve (0: a reservation for each job)."""

    resolution: float = 60.0
    window: float = 86_400.0
    window_linear: float = 0.0
    of_partition: int = 0


@dataclass(frozen=True)
class LauncherSettings:
    """The scheduling parameters of the simulated Slurm.

    `bf_max_job_test`: how many jobs backfill tries; `bf_limits`: of whom how many, and how many it starts;
    `reservations`: those that it makes for them, None for one of the first job of each set of nodes alone, as EASY
    does; `default_limit`: seconds.

    `pace`: seconds between two scheduling passes, as by batch_sched_delay and sched_min_interval.
    `bf_interval`: seconds between two rounds of backfill, between which jobs start in order of priority alone; 0: each
    pass backfills. `launch_seconds`: from a start until the job's program runs; `release_seconds`: from a job's end
    until others can have what it held. A site can take both from its accounting (docs/simulator.md). `limits`: of QOS
    and associations; `no_decay`: QOS whose usage does not become less (NoDecay); `safe_limits`: jobs start only if what
    they may still use is left (AccountingStorageEnforce=safe). `shares`: of accounts and users; without them all users
    are equal. `dampening`: FairShareDampeningFactor of the classic fairshare, None for Fair Tree.
    `fairshare_interval`: seconds from one computation of fairshare by shares to the next, as PriorityCalcPeriod.
    `assoc_priority`: of accounts and users, for `weights.assoc`. `partitions`: by name; a job of another runs on all
    nodes. `whole_nodes`: every job gets whole nodes, as by select/linear.
    """

    weights: Weights = field(default_factory=Weights)
    backfill: bool = True
    bf_max_job_test: int = 500
    bf_limits: BackfillLimits = field(default_factory=BackfillLimits)
    reservations: Reservations | None = None
    default_limit: float = 7 * 86_400.0
    pace: float = 3.0
    bf_interval: float = 0.0
    launch_seconds: float = 0.0
    release_seconds: float = 0.0
    limits: Limits = field(default_factory=Limits)
    no_decay: frozenset[str] = frozenset()
    safe_limits: bool = False
    shares: Shares | None = None
    dampening: float | None = None
    assoc_priority: Mapping[Assoc, float] = field(default_factory=lambda: MappingProxyType({}))
    billing: Billing = field(default_factory=Billing)
    fairshare_interval: float = 300.0
    partitions: Mapping[str, Partition] = field(default_factory=lambda: MappingProxyType({}))
    whole_nodes: bool = False
