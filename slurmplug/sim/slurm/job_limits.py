"""The limits of QOS and associations on the jobs of a workload, and what of them is in use."""

import numpy as np

from predictors.arrays import Floats, Ints, Texts
from slurmplug.cluster.limit_columns import LimitColumns, limit_columns
from slurmplug.cluster.limits import JOBS, Limits, ResourceUse
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.workload_table import WorkloadTable
from slurmplug.sim.slurm.launcher import Pending
from slurmplug.sim.slurm.limited import Limited


class JobLimits:
    """The limits on a workload's trainings; each part of a training counts as a job, and all parts start together."""

    def __init__(self, columns: LimitColumns, of: Ints, per_gpu: Floats) -> None:
        """of: (trainings,) the row of each in the columns. per_gpu: (trainings, resources) as `Pending.demand`."""
        self._columns, self._of, self._per_gpu = columns, of, per_gpu

    @classmethod
    def of(cls, limits: Limits, table: WorkloadTable, per_gpu: Floats, gpu_types: Texts) -> "JobLimits | None":
        """None where there are none. gpu_types: those of the last columns of `per_gpu`."""
        first = table.first_row[:-1]
        whose = [table.columns[name][first].tolist() for name in ("user", "account", "qos", "partition")]
        number: dict[tuple[str, str, str, str], int] = {}
        of = [number.setdefault(each, len(number)) for each in zip(*whose, strict=True)]
        kinds = (JOBS, "gres/gpu", "cpu", "mem", *(f"gres/gpu:{kind}" for kind in gpu_types.tolist()))
        columns = limit_columns(limits, [ResourceUse(*each, {}) for each in number], kinds)
        return None if columns is None else cls(columns, np.array(of, dtype=np.int64), per_gpu)

    def never_starts(self, training: int, gpus: int) -> bool:
        """Whether a job with so many GPUs would be above a limit with nothing beside it."""
        amounts = np.concatenate([[1.0], self._per_gpu[training] * gpus])[None]
        nothing = np.zeros((self._columns.tallies + 1, amounts.shape[1]))
        return bool(self._columns.over(self._of[[training]], amounts, nothing)[0])

    def left(self, engine: Engine, waiting: Ints, pending: Pending) -> Limited:
        """What they leave to these trainings. pending: the same."""
        table, holds = engine.table, engine.allocations.holds
        rows = np.fromiter(holds, dtype=np.int64, count=len(holds))
        training, units = table.training[rows], np.where(table.requested[rows] > 0, engine.gpus[rows], 1)
        demand = np.concatenate([table.per_gpu[rows], self._per_gpu[training, 3:]], axis=1) * units[:, None]
        used = self._columns.used(self._of[training], np.concatenate([np.ones((len(rows), 1)), demand], axis=1))
        requested = pending.demand * np.maximum(pending.gpus, 1)[:, None]
        amounts = np.concatenate([np.diff(table.first_row)[waiting, None], requested], axis=1)
        return Limited(self._columns, self._of[waiting], amounts, used)
