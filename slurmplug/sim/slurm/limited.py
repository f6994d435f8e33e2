"""The limits of QOS and associations in one scheduling pass: which waiting jobs they hold back, as others start."""

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.limit_columns import LimitColumns


class Limited:
    """The limits of n waiting jobs, and what of them is in use."""

    def __init__(self, columns: LimitColumns, jobs: Ints, amounts: Floats, used: Floats) -> None:
        """jobs: (n,) the row of each in the columns; amounts: (n, k) what it requests. used: as `LimitColumns.used`,
        by the jobs that run."""
        self._columns, self._jobs, self._amounts, self._used = columns, jobs, amounts, used
        self._held_back = columns.over(jobs, amounts, used)
        self._started = False

    def held_back(self) -> Bools:
        """(n,) whether each is above a limit, with what ran when the pass began."""
        return self._held_back

    def holds_back(self, row: int) -> bool:
        """Whether this job is above a limit now."""
        if self._held_back[row] or not self._started:
            return bool(self._held_back[row])
        return bool(self._columns.over(self._jobs[[row]], self._amounts[[row]], self._used)[0])

    def start(self, row: int) -> None:
        """Count a job that starts."""
        np.add.at(self._used, self._columns.tally[self._jobs[row]], self._amounts[row])
        self._started = True
