"""Slurm's host lists, such as `n[1-3,07],login`, expanded into the names of nodes, and made from them. Pure."""

import re
from collections.abc import Iterable
from itertools import groupby

MAX_NODES = 100_000
"""Longer lists are refused: no cluster has so many nodes, and a list of them would fill the memory."""
_ITEM = re.compile(r"[^,\[\]]+(?:\[[^\[\]]*\][^,\[\]]*)*")
_PART = re.compile(r"([^\[\]]+)|\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,18})", re.ASCII)


def expand(hostlist: str) -> list[str]:
    """The names in a host list, in its order and with its repetitions, as `scontrol show hostnames` prints them.

    Ranges keep their leading zeros, and an item may have several: `r[1-2]n[01-10]-ib`.

    Raises:
        ValueError: the list has more than MAX_NODES names.
    """
    names: list[str] = []
    for item in _ITEM.findall(hostlist):
        heads = [""]
        for literal, ranges in _PART.findall(item):
            tails = [literal] if literal else _numbers(ranges)
            _require_few(len(heads) * len(tails))
            heads = [head + tail for head in heads for tail in tails]
        names += heads
        _require_few(len(names))
    return names


def compress(names: Iterable[str]) -> str:
    """A host list of these names, sorted, in which those that differ in their last number alone are ranges."""
    items: list[str] = []
    numbered: dict[tuple[str, int], list[int]] = {}
    for name in sorted(set(names)):
        if match := _NUMBERED.fullmatch(name):
            numbered.setdefault((match[1], len(match[2])), []).append(int(match[2]))
        else:
            items.append(name)
    for (head, digits), numbers in numbered.items():
        ranges = []
        for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
            together = [number for _, number in run]
            ranges.append("-".join(f"{number:0{digits}}" for number in dict.fromkeys((together[0], together[-1]))))
        items.append(f"{head}[{','.join(ranges)}]")
    return ",".join(items)


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for low, high in _RANGE.findall(ranges):
        first, last = int(low), int(high or low)
        _require_few(len(numbers) + last - first + 1)
        numbers += [str(number).zfill(len(low)) for number in range(first, last + 1)]
    return numbers


def _require_few(count: int) -> None:
    if count > MAX_NODES:
        raise ValueError(f"a host list of more than {MAX_NODES} nodes")
