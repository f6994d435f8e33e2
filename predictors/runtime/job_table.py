"""What is known of a job when it is submitted, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from predictors.arrays import Floats, Ints, Texts

Job: TypeAlias = Mapping[str, Any]
"""Any of user, group, account, partition, qos, type, exe, name, workdir (texts), gpus, cpus, nodes, mem, time_limit,
submit (numbers; seconds); what is missing or None is not known. Of a finished job also end, as submit."""

NUMBERS = ("gpus", "cpus", "nodes", "mem", "time_limit", "submit", "end")
TEXTS = ("user", "group", "account", "partition", "qos", "type", "exe", "name", "workdir")


@dataclass(frozen=True, eq=False)
class Submitted:
    """n jobs. numbers: each (n,), NaN where not known. texts: each (n,), "" where not known."""

    numbers: Mapping[str, Floats]
    texts: Mapping[str, Texts]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Submitted:
        """Raises ValueError for a number that is none."""
        return cls(
            {name: np.array([_number(name, job.get(name)) for job in jobs], dtype=np.float64) for name in NUMBERS},
            {name: np.array([_text(job.get(name)) for job in jobs], dtype=np.str_) for name in TEXTS},
        )

    def __len__(self) -> int:
        return len(self.numbers["gpus"])

    def __getitem__(self, rows: Ints) -> Submitted:
        return Submitted(
            {name: values[rows] for name, values in self.numbers.items()},
            {name: values[rows] for name, values in self.texts.items()},
        )

    @property
    def kind(self) -> Texts:
        """(n,) what runs alike: the declared type, else the executable."""
        return np.where(self.texts["type"] != "", self.texts["type"], self.texts["exe"])

    @property
    def limit(self) -> Floats:
        """(n,) time limit in seconds, NaN where there is none."""
        limit = self.numbers["time_limit"]
        return np.where(np.isfinite(limit) & (limit > 0), limit, np.nan)


def positive_runtimes(runtimes: Sequence[float] | Floats, jobs: int) -> Floats:
    """The run times in seconds, at least one each. Raises ValueError unless there is one finite number a job."""
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
        return float(value)  # type: ignore[arg-type]  # what cannot be one raises here
    except (TypeError, ValueError) as error:
        raise ValueError(f"a job's {name} is a number, not {value!r}") from error


def _text(value: object) -> str:
    return "" if value is None else str(value)
