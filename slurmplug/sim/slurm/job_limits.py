"""The limits of QOS and associations on the jobs of a workload, and what of them is in use."""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from predictors.arrays import Floats, Ints, Texts
from slurmplug.cluster.limit_columns import LimitColumns, limit_columns
from slurmplug.cluster.limits import JOBS, Limits, ResourceUse, Tres
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.workload_table import WorkloadTable
from slurmplug.sim.slurm.limited import Limited
from slurmplug.sim.slurm.node_use import NodeUse

SECONDS_OF = "seconds of "
"""begins the kinds of limits on TRES times the seconds that the time limits of running jobs leave (TRESRunMins)"""


class JobLimits:
    """The limits on a workload's trainings; each part of a training counts as a job, and all parts start together."""

    def __init__(self, columns: LimitColumns, of: Ints, per_gpu: Floats, time_limit: Floats | None) -> None:
        """of: (trainings,) the row of each in the columns. per_gpu: (trainings, resources) as `JobRequests.demand`.
        time_limit: (trainings,) seconds, None where nothing limits TRES times seconds."""
        self._columns, self._of, self._per_gpu, self._time_limit = columns, of, per_gpu, time_limit

    @classmethod
    def of(
        cls, limits: Limits, table: WorkloadTable, per_gpu: Floats, gpu_types: Texts, time_limit: Floats
    ) -> "JobLimits | None":
        """None where there are none. gpu_types: those of the last columns of `per_gpu`. time_limit: (trainings,)."""
        first = table.first_row[:-1]
        whose = [table.columns[name][first].tolist() for name in ("user", "account", "qos", "partition")]
        number: dict[tuple[str, str, str, str], int] = {}
        of = [number.setdefault(each, len(number)) for each in zip(*whose, strict=True)]
        tres = ("gres/gpu", "cpu", "mem", *(f"gres/gpu:{kind}" for kind in gpu_types.tolist()))
        seconds = tuple(f"{SECONDS_OF}{kind}" for kind in tres) if _limits_seconds(limits) else ()
        columns = limit_columns(limits, [ResourceUse(*each, {}) for each in number], (JOBS, *tres, *seconds))
        numbers = np.array(of, dtype=np.int64)
        return None if columns is None else cls(columns, numbers, per_gpu, time_limit if seconds else None)

    @property
    def change_with_time(self) -> bool:
        """Whether a running job uses less of them the longer it has run."""
        return self._time_limit is not None

    def never_starts(self, training: int, gpus: int) -> bool:
        """Whether a job with so many GPUs would be above a limit with nothing beside it."""
        one = np.array([training])
        amounts = self._amounts(one, np.ones(1), self._per_gpu[one] * gpus)
        nothing = np.zeros((self._columns.tallies + 1, amounts.shape[1]))
        return bool(self._columns.over(self._of[[training]], amounts, nothing)[0])

    def left(self, engine: Engine, use: NodeUse, waiting: Ints, requested: Floats) -> Limited:
        """What they leave to these trainings (n,). requested: (n, resources) what each would be charged for."""
        table, holds = engine.table, engine.allocations.holds
        rows = np.fromiter(holds, dtype=np.int64, count=len(holds))
        training, units = table.training[rows], table.units(rows, engine.gpus[rows])
        of_types = self._per_gpu[training, 3:] * units[:, None]
        demand: Floats = np.concatenate([use.allocated(rows), of_types], axis=1)
        ran = engine.now - engine.started[rows]
        used = self._columns.used(self._of[training], self._amounts(training, np.ones(len(rows)), demand, ran))
        amounts = self._amounts(waiting, np.diff(table.first_row)[waiting], requested)
        return Limited(self._columns, self._of[waiting], amounts, used)

    def _amounts(self, trainings: Ints, jobs: Floats | Ints, demand: Floats, ran: Floats | float = 0.0) -> Floats:
        """(n, kinds) what these use, as so many jobs (n,) with so much demand (n, resources) after `ran` seconds."""
        found = [jobs[:, None], demand]
        if self._time_limit is not None:
            found.append(demand * np.maximum(self._time_limit[trainings] - ran, 0.0)[:, None])
        return np.concatenate(found, axis=1)


def _limits_seconds(limits: Limits) -> bool:
    """Whether a limit is one on TRES times seconds."""
    found: Iterator[Tres] = chain(
        *((each.group, each.job, each.user, each.account) for each in limits.qos.values()),
        *((each.group, each.job) for each in limits.assocs.values()),
    )
    return any(kind.startswith(SECONDS_OF) for tres in found for kind in tres)
