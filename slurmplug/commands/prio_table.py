"""The table of `slurmplug prio`: pending jobs in their places, with the terms of both priorities."""

from collections.abc import Mapping, Sequence
from typing import Any

from slurmplug.cluster.user_answers import TERMS
from slurmplug.commands.queue_table import Column, Values, column
from slurmplug.console import table
from slurmplug.console.table import Field, printable

FIELDS_SHOWN = (
    "position", "jobid", "jobidraw", "user", "account", "partition", "qos", "label", "priority", "rank", "terms",
)  # fmt: skip
Slurms = Mapping[int, Mapping[str, float]]
"""The terms of Slurm's priority by job id; those of an array are of each of its pending elements."""
_FIRST = (column("RANK", "position"), column("JOBID", "jobid", 14), column("USER", "user", 12))
_LONG = (
    column("ACCOUNT", "account", 12),
    column("PARTITION", "partition", 12),
    column("QOS", "qos", 10),
    column("SITEFACTOR", "label", 11),
)


def in_place(values: Values) -> Values:
    """The jobs in the order in which they are to start: that of Slurm's priority, in which the ranked jobs have
    exchanged their places, the first rank first."""
    count = len(values["jobid"])
    ranks, priorities = values["position"], values["priority"]
    by_priority = sorted(range(count), key=lambda row: (-(priorities[row] or 0.0), values["jobidraw"][row]))
    ranked = iter(sorted((row for row in range(count) if ranks[row] is not None), key=ranks.__getitem__))
    order = [row if ranks[row] is None else next(ranked) for row in by_priority]
    return {name: [each[row] for row in order] for name, each in values.items()}


def lines(jobs: Values, slurms: Slurms, width: int | None, *, header: bool, long: bool) -> list[str]:
    """The table. What `width` columns of a terminal do not hold is left out: terms that are 0 for every job, then those
    of Slurm's priority, then that priority."""
    terms = [_term(name) for name in _names(jobs["terms"])]
    theirs = [_slurms_term(name, slurms) for name in _slurms_names(slurms)]
    priority = column("PRIORITY", "priority", 10)
    columns = [*_FIRST, *(_LONG if long else ()), column("SCORE", "rank", 12), *terms, priority, *theirs]
    made = [each.fitted(jobs) for each in columns]
    fields = [each.shown for each in made]
    zero = [each for each in (*terms, *theirs) if not any(each.values(jobs))]
    shown = list(range(len(columns)))
    for left_out in (zero, theirs, [priority]):
        if width is None or sum(fields[n].width + 1 for n in shown) <= width + 1:
            break
        shown = [n for n in shown if columns[n] not in left_out]
    kept = [fields[n] for n in shown], [made[n].texts for n in shown]
    return [line.rstrip() for line in table.text_lines(*kept, header=header)]


def as_json(jobs: Values, slurms: Slurms) -> list[dict[str, Any]]:
    """As JSON has it: `terms` of the score, and `slurm`, those of Slurm's priority; empty where sprio has none."""
    names = [name for name in FIELDS_SHOWN if name != "jobidraw"]
    rows = zip(jobs["jobidraw"], *(jobs[name] for name in names), strict=True)
    return [{**dict(zip(names, row, strict=True)), "slurm": dict(slurms.get(number, {}))} for number, *row in rows]


def _names(terms: Sequence[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for each in terms for name in each))


def _slurms_names(slurms: Slurms) -> list[str]:
    return list(dict.fromkeys((*TERMS, *_names(list(slurms.values()))))) if slurms else []


def _term(name: str) -> Column:
    shown: Field[Any] = Field(printable(name).upper(), "number", 12, "", lambda _: None)
    return Column(shown, lambda jobs: [each.get(name) for each in jobs["terms"]])


def _slurms_term(name: str, slurms: Slurms) -> Column:
    shown: Field[Any] = Field(f"S:{printable(name).upper()}", "integer", 12, "", lambda _: None)
    return Column(shown, lambda jobs: [slurms.get(number, {}).get(name) for number in jobs["jobidraw"]])
