"""`slurmplug queue --array`: a row for each element of an array that waits."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TASKS = "arraytasks"
"""The field that says which elements of an array a row is of."""
MOST = 100_000
"""rows that are made of arrays; the elements beyond stay together on one row"""
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)


def one_by_one(values: Mapping[str, Sequence[Any]], most: int = MOST) -> dict[str, list[Any]]:
    """The rows of a report, one for each element of an array. `values`: by field, with `TASKS`."""
    rows: list[int] = []
    ids: list[str] = []
    left = most
    for row, (shown, tasks) in enumerate(zip(values["jobid"], values[TASKS], strict=True)):
        if not tasks:
            rows.append(row)
            ids.append(shown)
            continue
        made = [f"{shown.partition('_')[0]}_{part}" for part in _parts(tasks, left)]
        rows += [row] * len(made)
        ids += made
        left -= len(made)
    return {name: ids if name == "jobid" else [column[row] for row in rows] for name, column in values.items()}


def _parts(tasks: str, most: int) -> Iterator[str]:
    """Each of the tasks of `0-2,7,10-20:5`; from the one after `most` on those that are left, as `[9-20]`."""
    spans = tasks.split(",")
    for number, span in enumerate(spans):
        low, high, step = _RANGE.fullmatch(span).groups()  # type: ignore[union-attr]  # made by cluster.parse
        each = range(int(low), int(high or low) + 1, int(step or 1))
        yield from map(str, each[:most])
        if len(each) > most:
            first = each[max(most, 0)]
            rest = str(first) if first == each[-1] else f"{first}-{each[-1]}{f':{step}' if step else ''}"
            yield f"[{','.join((rest, *spans[number + 1 :]))}]"
            return
        most -= len(each)
