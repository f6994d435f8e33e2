"""The limits of QOS and associations on the jobs of a workload, and what of them is in use."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from predictors.arrays import Floats, Ints, Texts
from slurmplug.cluster.limit_columns import LimitColumns, limit_columns
from slurmplug.cluster.limits import JOBS, Limits, ResourceUse, Tres
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.workload_table import WorkloadTable
from slurmplug.sim.slurm.limited import Limited
from slurmplug.sim.slurm.node_use import NodeUse
from slurmplug.sim.slurm.settings import LauncherSettings
from slurmplug.sim.slurm.used_seconds import UsedSeconds

SECONDS_OF = "seconds of "
"""begins the kinds of limits on TRES times the seconds that the time limits of running jobs leave (TRESRunMins)"""
USED_SECONDS_OF = "used seconds of "
"""begins the kinds of limits on TRES times the seconds for which jobs have had them (TRESMins)"""
BILLING = "billing"
_ANY = 1e-3
"""of a second: a job that needs any of what is used up is above the limit"""


class JobLimits:
    """The limits on a workload's trainings; each part of a training counts as a job, and all parts start together."""

    def __init__(
        self,
        columns: LimitColumns,
        of: Ints,
        per_gpu: Floats,
        time_limit: Floats,
        *,
        limits_seconds: bool,
        used: UsedSeconds | None,
        billing: Floats,
        usage_factor: Floats,
        safe: bool,
    ) -> None:
        """of: (trainings,) the row of each in the columns. per_gpu: (trainings, resources) as `JobRequests.demand`.
        time_limit: (trainings,) seconds. limits_seconds: whether TRES times seconds are limited; used: of those that
        were used, None if these are not. billing: (trainings, 3) of a GPU, a CPU and a MiB. usage_factor: (trainings,).
        safe: a job starts only if its time limit is left, too."""
        self._columns, self._of, self._per_gpu, self._time_limit = columns, of, per_gpu, time_limit
        self._limits_seconds, self._used, self._safe = limits_seconds, used, safe
        self._billing, self._usage_factor = billing, usage_factor

    @classmethod
    def of(
        cls, settings: LauncherSettings, table: WorkloadTable, per_gpu: Floats, gpu_types: Texts, time_limit: Floats
    ) -> "JobLimits | None":
        """None where there are none. gpu_types: those of the last columns of `per_gpu`. time_limit: (trainings,)."""
        first, limits = table.first_row[:-1], settings.limits
        whose = [table.columns[name][first].tolist() for name in ("user", "account", "qos", "partition")]
        number: dict[tuple[str, str, str, str], int] = {}
        of = [number.setdefault(each, len(number)) for each in zip(*whose, strict=True)]
        tres = ("gres/gpu", "cpu", "mem", *(f"gres/gpu:{kind}" for kind in gpu_types.tolist()))
        seconds = tuple(f"{SECONDS_OF}{kind}" for kind in tres) if _limits_any(limits, SECONDS_OF) else ()
        ever = (*tres, BILLING) if _limits_any(limits, USED_SECONDS_OF) else ()
        used = tuple(f"{USED_SECONDS_OF}{kind}" for kind in ever)
        columns = limit_columns(limits, [ResourceUse(*each, {}) for each in number], (JOBS, *tres, *seconds, *used))
        if columns is None:
            return None
        decays = [name[0] == "association" or name[1] not in settings.no_decay for name in columns.names]
        qos, partition = (table.columns[name][first] for name in ("qos", "partition"))
        return cls(
            columns,
            np.array(of, dtype=np.int64),
            per_gpu,
            time_limit,
            limits_seconds=bool(seconds),
            used=UsedSeconds(np.array([*decays, True]), len(used), settings.weights.half_life) if used else None,
            billing=replace(settings.billing, qos={}).weights(partition, qos),
            usage_factor=np.array([settings.billing.qos.get(name, 1.0) for name in qos.tolist()]),
            safe=settings.safe_limits,
        )

    @property
    def change_with_time(self) -> bool:
        """Whether a running job uses less of them the longer it has run, or what was used becomes less."""
        return self._limits_seconds or (self._used is not None and self._used.decay)

    def advance(self, now: float) -> None:
        """Count what was used until now."""
        if self._used is not None:
            self._used.advance(now)

    def note_held(self, engine: Engine, use: NodeUse) -> None:
        """Running jobs hold what they hold from now on."""
        if self._used is not None:
            training, demand = self._running(engine, use)
            seconds = np.column_stack([demand, self._billed(training, demand)]) * self._usage_factor[training][:, None]
            self._used.note_held(self._columns.used(self._of[training], seconds))

    def never_starts(self, training: int, gpus: int) -> bool:
        """Whether a job with so many GPUs would be above a limit with nothing beside it."""
        one = np.array([training])
        amounts = self._amounts(one, np.ones(1), self._per_gpu[one] * gpus)
        nothing = np.zeros((self._columns.tallies + 1, amounts.shape[1]))
        return bool(self._columns.over(self._of[[training]], amounts, nothing)[0])

    def left(self, engine: Engine, use: NodeUse, waiting: Ints, requested: Floats) -> Limited:
        """What they leave to these trainings (n,). requested: (n, resources) what each would be charged for."""
        training, demand = self._running(engine, use)
        ran = engine.now - engine.started[np.fromiter(engine.allocations.holds, dtype=np.int64, count=len(training))]
        amounts = self._amounts(training, np.ones(len(training)), demand, ran)
        if self._used is not None:
            kinds = self._used.amounts.shape[1]
            amounts[:, -kinds:] *= self._safe
            used = self._columns.used(self._of[training], amounts)
            used[:, -kinds:] += self._used.amounts
        else:
            used = self._columns.used(self._of[training], amounts)
        amounts = self._amounts(waiting, np.diff(engine.table.first_row)[waiting], requested)
        return Limited(self._columns, self._of[waiting], amounts, used)

    def _amounts(self, trainings: Ints, jobs: Floats | Ints, demand: Floats, ran: Floats | float = 0.0) -> Floats:
        """(n, kinds) what these use, as so many jobs (n,) with so much demand (n, resources) after `ran` seconds."""
        found, left = [jobs[:, None], demand], np.maximum(self._time_limit[trainings] - ran, 0.0)[:, None]
        if self._limits_seconds:
            found.append(demand * left)
        if self._used is not None:
            every = np.column_stack([demand, self._billed(trainings, demand)])
            found.append(every * left if self._safe else np.where(every > 0, _ANY, 0.0))
        return np.concatenate(found, axis=1)

    def _running(self, engine: Engine, use: NodeUse) -> tuple[Ints, Floats]:
        """The training (n,) of each row that runs, and what it is charged for (n, resources)."""
        table, holds = engine.table, engine.allocations.holds
        rows = np.fromiter(holds, dtype=np.int64, count=len(holds))
        training, units = table.training[rows], table.units(rows, engine.gpus[rows])
        return training, np.concatenate([use.allocated(rows), self._per_gpu[training, 3:] * units[:, None]], axis=1)

    def _billed(self, trainings: Ints, demand: Floats) -> Floats:
        """(n,) the billing of what these (n,) hold (n, resources)."""
        return np.asarray((self._billing[trainings] * demand[:, :3]).sum(axis=1))


def _limits_any(limits: Limits, of: str) -> bool:
    """Whether there is a limit of a kind that begins so."""
    found: Iterator[Tres] = chain(
        *((each.group, each.job, each.user, each.account) for each in limits.qos.values()),
        *((each.group, each.job) for each in limits.assocs.values()),
    )
    return any(kind.startswith(of) for tres in found for kind in tres)
