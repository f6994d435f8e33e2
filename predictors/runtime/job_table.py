"""Jobs as the run time predictor sees them: what is known at submission, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from predictors.arrays import Floats, Ints, Texts

Job: TypeAlias = Mapping[str, Any]
"""A job by field: the strings user, group, account, partition, qos, type, exe, name, workdir, gpu_type and the numbers
gpus, cpus, nodes, mem, time_limit, submit (times in seconds); of a finished job also end, and bound, the run time that
it was forecast not to exceed. work: what its user declares that the run time depends on, name:number or name:kind,
joined by commas. A field that is missing or None is unknown."""

NUMBER_COLUMNS = ("gpus", "cpus", "nodes", "mem", "time_limit", "submit", "end", "bound")
TEXT_COLUMNS = ("user", "group", "account", "partition", "qos", "type", "exe", "name", "workdir", "gpu_type", "work")


@dataclass(frozen=True, eq=False)
class JobTable:
    """n jobs as columns (n,). numbers: NaN where unknown. texts: "" where unknown."""

    numbers: Mapping[str, Floats]
    texts: Mapping[str, Texts]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> JobTable:
        """The table of n jobs. Raises ValueError for a numeric field that holds no number."""
        return cls(
            {
                name: np.array([_number(name, job.get(name)) for job in jobs], dtype=np.float64)
                for name in NUMBER_COLUMNS
            },
            {name: np.array([_text(job.get(name)) for job in jobs], dtype=np.str_) for name in TEXT_COLUMNS},
        )

    def __len__(self) -> int:
        return len(self.numbers["gpus"])

    def __getitem__(self, rows: Ints) -> JobTable:
        return JobTable(
            {name: values[rows] for name, values in self.numbers.items()},
            {name: values[rows] for name, values in self.texts.items()},
        )

    @property
    def run_type(self) -> Texts:
        """(n,) the declared type of each job, or its executable where none is declared."""
        return np.where(self.texts["type"] != "", self.texts["type"], self.texts["exe"])

    @property
    def limit(self) -> Floats:
        """(n,) time limit in seconds, NaN where there is none."""
        limit = self.numbers["time_limit"]
        return np.where(np.isfinite(limit) & (limit > 0), limit, np.nan)


def positive_runtimes(runtimes: Sequence[float] | Floats, jobs: int) -> Floats:
    """(jobs,) run times in seconds, raised to at least 1.

    Raises ValueError unless there is one finite number for each job, and none is negative.
    """
    seconds = np.asarray(runtimes, dtype=np.float64)
    if seconds.shape != (jobs,):
        raise ValueError(f"{jobs} jobs need as many run times, not {seconds.shape}")
    if not np.all(np.isfinite(seconds) & (seconds >= 0)):
        raise ValueError("a run time is a finite number of seconds, not negative")
    return np.maximum(seconds, 1.0)


def _number(name: str, value: object) -> float:
    if value is None or value == "":
        return float("nan")
    try:
        return float(value)  # type: ignore[arg-type]  # raises for what is no number
    except (TypeError, ValueError) as error:
        raise ValueError(f"a job's {name} is a number, not {value!r}") from error


def _text(value: object) -> str:
    return "" if value is None else str(value)
