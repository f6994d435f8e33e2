"""Parsers of TRES such as `cpu=2,mem=100M,gres/gpu=2` and of gres such as `gpu:a100:4(IDX:0-1,3)`. Pure.

A requested gres is printed as `gres:gpu:a100:2` before 23.02, as `gres/gpu:a100:2` since then, and per task as
`gres/gpu:a100=2`.
"""

import re
from collections.abc import Mapping

_DETAIL = re.compile(r"\([^()]*\)")
_GPU = re.compile(r"(?:gres[:/])?gpu(?:$|[:=])(.*)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_MEBIBYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def gpus(text: str) -> dict[str, int]:
    """The number of GPUs in a list of gres, by type; those without one under the empty name. Raises ValueError."""
    found: dict[str, int] = {}
    for item in _DETAIL.sub("", text).split(","):
        if (match := _GPU.fullmatch(item)) is None:
            continue
        words = match[1].replace("=", ":").split(":")
        count = int(words.pop()) if words[-1].isdecimal() else 1
        if len(words) > 1:
            raise ValueError(f"{item!r} is no gres of GPUs")
        kind = words[0] if words else ""
        found[kind] = found.get(kind, 0) + count
    return found


def total_gpus(tres: str) -> int | None:
    """The number of GPUs in a list of TRES, None where Slurm does not track them. `gres/gpu` counts every type."""
    found = gpus(tres)
    return found.get("", sum(found.values())) if found else None


def without_cpus(text: str) -> str:
    """A list of gres per task without the CPUs, which squeue lists there as well since 23.11."""
    return ",".join(item for item in text.split(",") if not item.startswith("cpu"))


def memory(tres: str) -> float:
    """MiB in a list of TRES, 0 where Slurm does not track memory. Raises ValueError."""
    for item in tres.split(","):
        name, _, amount = item.partition("=")
        if name == "mem":
            if (match := _MEMORY.fullmatch(amount)) is None:
                raise ValueError(f"{item!r} is no amount of memory")
            return float(match[1]) * _MEBIBYTES[match[2]]
    return 0.0


def nodes(tres: str) -> int:
    """The number of nodes in a list of TRES, 0 where it is not named. Raises ValueError."""
    return next((int(item[5:]) for item in tres.split(",") if item.startswith("node=")), 0)


def only_type(found: Mapping[str, int]) -> str:
    """The type of the GPUs in a result of `gpus` where they all have the same, else empty."""
    return next(iter(found)) if len(found) == 1 else ""
