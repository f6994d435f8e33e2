"""Parsers of TRES such as `cpu=2,mem=100M,gres/gpu=2` and of gres such as `gpu:a100:4(IDX:0-1,3)`. Pure.

A requested gres is printed as `gres:gpu:a100:2` before 23.02, as `gres/gpu:a100:2` since then, and per task as
`gres/gpu:a100=2`. Its user chooses the text, and a job that is held need not be able to start: slurmctld 22.05 takes
`gpu:a100:1K`, `gpu:a=b:1` and `gpu:-1`. So no gres is an error: as in Slurm, what does not end in a count is one.

A GPU that is divided by MIG (gres.conf(5)) is listed as GPUs of the type of its profile, such as `a100_1g.10gb`; one of
which shards are in use is not listed as used itself.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

_DETAIL = re.compile(r"\([^()]*\)")
_ITEM = re.compile(r"(?:gres[:/])?(gpu|shard)(?:$|[:=])(.*)", re.DOTALL)
_COUNTED = re.compile(r"(?:(.*)[:=])?\+?([0-9]{1,30})([KMGTP]?)", re.DOTALL | re.IGNORECASE)
_POWER = {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}
MOST_GRES = 1_000_000
"""A greater count is taken for this one: no site has as many, and sums of it stay far from the end of an integer."""
_MIG = re.compile(r"(?:.*[^0-9A-Z])?(?:[0-9]+C\.)?[0-9]+G\.[0-9]+GB(?:[^0-9A-Z].*)?", re.DOTALL | re.IGNORECASE)
_SHARDS = re.compile(r"(?:gres[:/])?shard(?::([^:,()]*))?:[0-9]+\((?:IDX:)?([0-9,/-]*)\)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_MEBIBYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def gpus(text: str) -> dict[str, int]:
    """The number of GPUs in a list of gres, by type; those without one under the empty name."""
    found: dict[str, int] = {}
    for name, kind, count in _items(text):
        if name == "gpu":
            found[kind] = min(found.get(kind, 0) + count, MOST_GRES)
    return found


def shards(text: str) -> int:
    """The number of shards in a list of gres: parts of GPUs that several jobs share, gres/shard."""
    return min(sum(count for name, _, count in _items(text) if name == "shard"), MOST_GRES)


def sharded_gpus(text: str) -> dict[str, int]:
    """The number of GPUs of which shards are in use, by type, in what sinfo prints as GresUsed.

    22.05 prints the GPUs, `shard:a100:2(IDX:0-1)`, and later releases the shards of each, `shard:a100:7(4/4,3/4,0/4)`.
    """
    found: dict[str, int] = {}
    for kind, detail in _SHARDS.findall(text):
        used = sum(_used_in(part) for part in detail.split(",") if part)
        found[kind] = found.get(kind, 0) + used
    return {kind: count for kind, count in found.items() if count}


def is_mig(kind: str) -> bool:
    """Whether this type of GPU is the profile of a MIG instance: `1g.10gb`, `a100_3g.20gb`, `1c.3g.40gb`, ..."""
    return _MIG.fullmatch(kind) is not None


def _items(text: str) -> Iterator[tuple[str, str, int]]:
    """The name, the type and the count of each gres that is a GPU or a shard."""
    for item in _DETAIL.sub("", text).split(","):
        if (match := _ITEM.fullmatch(item)) is None:
            continue
        if counted := _COUNTED.fullmatch(match[2]):
            yield match[1], counted[1] or "", min(int(counted[2]) * _POWER[counted[3].upper()], MOST_GRES)
        else:
            yield match[1], match[2], 1


def _used_in(part: str) -> int:
    """How many GPUs are in use by `3`, `0-1` (indices) or `3/4` (the shards in use of one GPU, and all of them)."""
    used, share, _ = part.partition("/")
    if share:
        return int(used.strip("0") != "")
    first, _, last = part.partition("-")
    return int(last) - int(first) + 1 if first.isdecimal() and last.isdecimal() else 1


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
                raise ValueError(f"{item!r} is not an amount of memory")
            return float(match[1]) * _MEBIBYTES[match[2]]
    return 0.0


def nodes(tres: str) -> int:
    """The number of nodes in a list of TRES, 0 where it is not named. Raises ValueError."""
    return next((int(item[5:]) for item in tres.split(",") if item.startswith("node=")), 0)


def cpus(tres: str) -> int:
    """The number of CPUs in a list of TRES, 0 where it is not named, or is no number."""
    found = next((item[4:] for item in tres.split(",") if item.startswith("cpu=")), "")
    return int(found) if found.isascii() and found.isdecimal() and len(found) < 10 else 0


def types(found: Mapping[str, int]) -> str:
    """The types in a result of `gpus`, several joined by commas."""
    return ",".join(sorted(kind for kind, count in found.items() if kind and count))


@lru_cache(maxsize=1024)
def _types_in(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


@lru_cache(maxsize=1024)
def _has_mig(types: tuple[str, ...]) -> bool:
    return any(map(is_mig, types))


class JobGPUs(NamedTuple):
    """The GPUs of a job: how many Slurm counts, their types as requested and held (several joined by commas), and the
    shards that it requests."""

    number: int
    requested: str
    held: str
    shards: int

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the GPUs that it holds; if not known, those that it requests. Empty for any type, or no GPU."""
        return _types_in(self.held or self.requested)

    @property
    def only_type(self) -> str:
        """Empty where it is not known, or there are several."""
        return self.types[0] if len(self.types) == 1 else ""

    @property
    def are_parts(self) -> bool:
        """Whether they are parts of GPUs: MIG instances, or shards."""
        return self.shards > 0 or _has_mig(self.types)

    @property
    def whole(self) -> int:
        """The number of GPUs, none where they are parts of GPUs."""
        return 0 if self.are_parts else self.number
