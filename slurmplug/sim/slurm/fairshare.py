"""The fairshare of a workload's jobs: what their users have used, and the factor that Slurm makes of it."""

from collections.abc import Iterator

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.cluster.limits import Assoc
from slurmplug.sim.engine.workload_table import WorkloadTable
from slurmplug.sim.slurm.classic_fairshare import ClassicFairshare
from slurmplug.sim.slurm.fair_tree import FairTree
from slurmplug.sim.slurm.multifactor import Usage
from slurmplug.sim.slurm.settings import LauncherSettings


class Fairshare:
    """The factors of users with equal shares, as of the last `advance`; or those by shares, computed every interval.

    Users are numbered; with shares a user has a number for each of its associations.
    """

    def __init__(
        self, user: Ints, tree: FairTree | ClassicFairshare | None, billing: Floats, settings: LauncherSettings
    ) -> None:
        """user: (rows,) the number of each row's user. billing: (rows, 3) of a GPU, a CPU and a MiB, each second."""
        self._user, self._tree, self._billing = user, tree, billing
        self._users = tree.users if tree else int(user.max(initial=-1)) + 1
        self._half_life, self._interval = settings.weights.half_life, settings.fairshare_interval
        self._dampening = settings.dampening or 1.0
        self._usage = Usage()
        self._holding = np.zeros(self._users)
        """what each is charged each second, as of the last `note_held`"""
        self._charges: dict[int, dict[int, float]] = {}
        """by user, what it is charged for each row each second"""
        self._changed: set[int] = set()
        self._factors = np.ones(self._users)
        self._computed = -np.inf

    @classmethod
    def of(cls, table: WorkloadTable, settings: LauncherSettings) -> "Fairshare":
        """That of a workload's rows."""
        billing = settings.billing.weights(table.columns["partition"], table.columns["qos"])
        if settings.shares is None:
            _, user = np.unique(table.columns["user"], return_inverse=True)
            return cls(user, None, billing, settings)
        shares, jobs = settings.shares, list(associations(table))
        tree = ClassicFairshare(shares, jobs, settings.dampening) if settings.dampening else FairTree(shares, jobs)
        return cls(tree.number, tree, billing, settings)

    def advance(self, now: float) -> None:
        """Count what was held until now."""
        self._usage = self._usage.after(now, self._holding, self._half_life)
        if self._tree and now >= self._computed + self._interval:
            used = np.zeros(self._users)
            used[: len(self._usage.used)] = self._usage.used
            self._factors, self._computed = self._tree.factors(used), now

    def start(self, row: int, allocated: Floats) -> None:
        """The row holds so many GPUs, CPUs and MiB (3,), which counts from the next `note_held` on."""
        user = int(self._user[row])
        self._charges.setdefault(user, {})[row] = float((self._billing[row] * allocated).sum())
        self._changed.add(user)

    def end(self, row: int) -> None:
        """The row holds nothing, which counts from the next `note_held` on."""
        user = int(self._user[row])
        self._charges.get(user, {}).pop(row, None)
        self._changed.add(user)

    def note_held(self) -> None:
        """Rows hold what they hold from now on."""
        for user in self._changed:
            self._holding[user] = sum(self._charges.get(user, {}).values())
        self._changed.clear()

    def factors(self, rows: Ints) -> Floats:
        """(n,) of these rows."""
        users = self._user[rows]
        return self._factors[users] if self._tree else self._usage.fairshare(users, self._dampening)


def associations(table: WorkloadTable) -> Iterator[Assoc]:
    """The account, user and partition of each row."""
    columns = (table.columns[name].tolist() for name in ("account", "user", "partition"))
    return (Assoc(*each) for each in zip(*columns, strict=True))
