"""The answers of sacct, sprio and scontrol to a user: runs and steps of jobs, terms of priorities. Pure.

Times are seconds since the epoch, as SLURM_TIME_FORMAT=%s has them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

FIELDS = (
    "JobIDRaw", "JobID", "State", "ExitCode", "Submit", "Start", "End", "ElapsedRaw", "AllocCPUS", "NNodes",
    "NTasks", "NodeList", "Partition", "Account", "User", "QOS", "ReqMem", "AllocTRES", "TotalCPU", "MaxRSS",
    "TRESUsageInAve", "AdminComment", "JobName",
)  # fmt: skip
"""Of sacct. The name, which a user chooses, is the last one: a line that it breaks is not taken for another record."""
TERMS = {
    "SITE": "S", "AGE": "A", "ASSOC": "B", "FAIRSHARE": "F", "JOBSIZE": "J", "PARTITION": "P", "QOS": "Q", "NICE": "N",
}  # fmt: skip
"""The letters of sprio's weighted factors, by its headings, in the order of `sprio --long`."""
SPRIO_FORMAT = "%i|" + "|".join(f"%{letter}" for letter in TERMS.values()) + "|%T"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE = re.compile(r"([0-9.]+)([KMGTP]?)[nc]?")
_STDOUT = re.compile(r"^ *StdOut=(.*)$", re.MULTILINE)
_CLOCK = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):([0-9.]+)")


class Record(NamedTuple):
    """A run of a job, or one of its steps: sacct's fields by name; `step` is empty, or batch, extern, 0, ..."""

    job_id: int
    step: str
    fields: Mapping[str, str]

    @property
    def submitted(self) -> float:
        """When the run was submitted or requeued; 0 where sacct does not say."""
        return time(self.fields["Submit"]) or 0.0

    @property
    def cpu_seconds(self) -> float | None:
        """Seconds of processors that it used (TotalCPU)."""
        return duration(self.fields["TotalCPU"])

    @property
    def gpus(self) -> int | None:
        """GPUs that it was given."""
        return whole(tres(self.fields["AllocTRES"]).get("gres/gpu", ""))


def records(text: str, delimiter: str) -> Iterator[Record]:
    """The records that sacct printed, in its order."""
    for line in text.split("\n"):
        values = line.split(delimiter)
        if len(values) != len(FIELDS):
            continue
        number, _, step = values[0].partition(".")
        if number.isdecimal():
            yield Record(int(number), step, dict(zip(FIELDS, values, strict=True)))


def priority_terms(text: str) -> dict[int, dict[str, float]]:
    """By job id, the terms that sprio printed in SPRIO_FORMAT. Those of TRES are named as there: TRES:cpu."""
    found = {}
    for line in text.splitlines():
        job, *values = (value.strip() for value in line.split("|"))
        if not job.isdecimal() or len(values) != len(TERMS) + 1:
            continue
        *values, of_tres = values
        terms = dict(zip(TERMS, map(_number, values), strict=True))
        terms |= {f"TRES:{name}": _number(value) for name, value in tres(of_tres).items()}
        found[int(job)] = terms
    return found


def output_file(text: str) -> str:
    """StdOut in what scontrol showed of a job; empty where it has none. A job's name may forge it."""
    found = _STDOUT.findall(text)
    return found[-1] if found else ""


def tres(text: str) -> dict[str, str]:
    """The amounts by resource: cpu=4,mem=8G,gres/gpu=2."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def size(text: str) -> float | None:
    """Bytes of a size such as 12.5M; None for an empty one."""
    match = _SIZE.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def duration(text: str) -> float | None:
    """Seconds of [[days-]hours:]minutes:seconds[.fraction]; None for what is none."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes) * 60 + float(seconds)


def time(text: str) -> float | None:
    """Seconds since the epoch; None for Unknown."""
    return float(text) if text.isdecimal() else None


def whole(text: str) -> int | None:
    """A number of things; None for an empty one."""
    return int(text) if text.isdecimal() else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def total_cpu(steps: Sequence[Record]) -> float:
    """Seconds of processors that the steps of a run used."""
    return sum(step.cpu_seconds or 0.0 for step in steps)
