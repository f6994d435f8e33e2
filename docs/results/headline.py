"""What stands first on the page: ten lines, each made from a table of the page, so that none of them grows stale."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from docs.results.first import OURS

KEPT = (
    ("deadlines met", 1.0, ".1f", "% of the jobs"),
    ("targets met", 1.0, ".1f", "% of the jobs"),
    ("accuracy by deadline", 0.002, ".3f", ""),
)
"""the three figures of a cell of `first-kept`: within how much of the best they are to be, and how they are written"""
CHANGE = re.compile(r"([+-]\d+)%(?: ± (\d+))?")
LIVE = "python -m tests.bench.live rigid --seeds 6 --policy mlfs"
"""the first table of `make bench-live`"""
Row = Mapping[str, str]
"""A row of a table: its cells by the head of their column."""


class Change(NamedTuple):
    """How much more a rival takes than MLFS, in percent, and the 95% interval."""

    where: str
    more: int
    half: int

    @property
    def proven(self) -> bool:
        """Whether it is beyond chance."""
        return abs(self.more) > self.half


def headline(page: str) -> str:
    """Ten lines: what is gained, where not, against whom, and what others pay."""
    first, whole, live = table(page, "first"), table(page, "first-whole"), _rows(page, LIVE)
    told = {"fair": "equal shares (`fair`)", "srtf": "shortest-first that knows the true run times (`srtf`)"}
    lines = [
        f"**What was compared**: `{OURS}` and {len(rivals(first))} rivals, on the same simulated jobs from the"
        f" workloads of {_whose(first)}, at {len(first)} loads in all. All have the same forecasts and the same early"
        f" stopping; only `{OURS}` also uses a guess of speeds that were never seen. JCT is the time from a job's"
        " submission to its end.",
        f"**Mean JCT**: {_ranks(first)} (`first`).",
        *(f"**Against {told[name]}**: jobs there take {_against(first, name)} (`first`)." for name in told),
        f"**Against the others**: {'; '.join(_span(first, name) for name in _others(first))} (`first`).",
        f"**Without early stopping**: {_ranks(whole)}; it is {_above(whole)} (`first-whole`).",
        f"**Deadlines, targets and accuracy**: {_kept(table(page, 'first-kept'))} (`first-kept`).",
        f"**Who pays**: {_fairness(table(page, 'first-fairness'))} (`first-fairness`).",
        f"**Users without directives**: {_plain(table(page, 'plain'))} (`plain`).",
        f"**On a live cluster** of 16 GPUs: {_live(live)} (`make bench-live`).",
    ]
    return "\n".join(f"- {line}" for line in lines)


def more_time(page: str) -> Mapping[str, Mapping[str, float]]:
    """How much more time jobs take under the rivals than under MLFS, in percent, by workload and load: a figure's bars.

    Tiresias, which knows nothing of progress or sizes, would leave the others no room.
    """
    rows = table(page, "first")
    names = [name for name in rivals(rows) if name != "tiresias"]
    of = {name: [each.more for each in changes(rows, name)] for name in names}
    labels = [re.sub(r"'s?$", "", row["workload"]) + "\n" + row["load"] for row in rows]
    return {label: {name: of[name][at] for name in names} for at, label in enumerate(labels)}


def table(page: str, name: str) -> list[Row]:
    """The rows of a table that `make_results` makes, but for those whose runs were not made yet, which are empty."""
    return [row for row in _rows(page, f"python -m docs.make_results {name}") if row.get(OURS) != ""]


def _rows(page: str, command: str) -> list[Row]:
    made = page.partition(f"<!-- made by {command} -->")[2].partition("<!-- end -->")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in made.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def rivals(rows: Sequence[Row]) -> list[str]:
    """The policies beside ours whose runs stand in a table."""
    heads = list(rows[0])
    after = heads[heads.index(OURS) + 1 :]
    return [head for head in after if head == head.split()[0] and all(row[head] for row in rows)]


def where(row: Row) -> str:
    """The workload and load of a row."""
    load = row["load"]
    return (
        f"{row['workload']} workload {f'at {load}' if '=' in load else load if load.isalpha() else f'at load {load}'}"
    )


def _whose(rows: Sequence[Row]) -> str:
    """Whose workloads they are."""
    *others, last = dict.fromkeys(re.sub(r"'s?$", "", row["workload"]) for row in rows)
    return f"{', '.join(others)} and {last}"


def changes(rows: Sequence[Row], rival: str) -> list[Change]:
    """How much more this rival takes than MLFS, row by row."""
    found = []
    for row in rows:
        match = CHANGE.search(row[rival])
        assert match, f"{row[rival]} says how much more {rival} takes"
        found.append(Change(where(row), int(match[1]), int(match[2] or 0)))
    return found


def _ranks(rows: Sequence[Row]) -> str:
    by_row = zip(*(changes(rows, name) for name in rivals(rows)), strict=True)
    behind = []
    for row in by_row:
        best, rival = min(zip(row, rivals(rows), strict=True), key=lambda pair: pair[0].more)
        if best.more < 0:
            behind.append(f"{best.where}, where that of `{rival}` is {-best.more}% ± {best.half} shorter")
    text = f"`{OURS}` has the shortest of all at {len(rows) - len(behind)} of {len(rows)} loads"
    return f"{text}, but not at {', '.join(behind)}" if behind else text


def _span(rows: Sequence[Row], rival: str) -> str:
    ordered = sorted(changes(rows, rival), key=lambda change: change.more)
    return f"under `{rival}` jobs take {_more(ordered[0].more)} to {_more(ordered[-1].more)} time"


def _against(rows: Sequence[Row], rival: str) -> str:
    ordered = sorted(changes(rows, rival), key=lambda change: change.more)
    proven = sum(change.proven and change.more > 0 for change in ordered)
    ends = " to ".join(f"{_more(each.more)} time (± {each.half}, {each.where})" for each in (ordered[0], ordered[-1]))
    return f"{ends}; it is more beyond chance at {proven} of {len(ordered)} loads"


def _more(percent: int) -> str:
    return f"{percent}% more" if percent >= 0 else f"{-percent}% less"


def _others(rows: Sequence[Row]) -> list[str]:
    return [name for name in rivals(rows) if name not in ("fair", "srtf")]


def _above(rows: Sequence[Row]) -> str:
    found = [int(match[1]) for row in rows if (match := CHANGE.search(row["mlfs above the fluid"]))]
    ends = " to ".join(str(each) for each in sorted({min(found), max(found)}))
    return f"{ends}% above a fluid schedule that knows the future and resizes without cost"


def _figures(cell: str) -> list[float]:
    """The figures of a cell in which they stand beside each other."""
    return [float(part.rstrip("%")) for part in cell.split(" / ")]


def _kept(rows: Sequence[Row]) -> str:
    text = []
    for at, (what, within, form, unit) in enumerate(KEPT):
        short = []
        for row in rows:
            best, name = max((_figures(row[name])[at], name) for name in rivals(rows))
            less = best - _figures(row[OURS])[at]
            if less > within + 1e-9:
                short.append(f"{where(row)}, where `{name}` has {less:{form}}{unit[:1]} more")
        exceptions = f" except at {', '.join(short)}" if short else f" at all {len(rows)} loads"
        text.append(f"{what}: within {within:g}{unit} of the best rival{exceptions}")
    return "; ".join(text)


def _fairness(rows: Sequence[Row]) -> str:
    def mean(name: str) -> float:
        return sum(_figures(row[name])[0] for row in rows) / len(rows)

    shares = ", ".join(f"{mean(name):.0f}% under `{name}`" for name in (OURS, "fair", "srtf"))
    worst = (_worse(rows, at, what) for at, what in ((1, "by that ratio"), (2, "by JCT over its own run time")))
    return (
        "the jobs that take over 1.1 times as long as with an equal share of the cluster to themselves are"
        f" {shares}, in the mean. The worst job is worse off than the worst under `fair` {'; '.join(worst)}"
    )


def _worse(rows: Sequence[Row], at: int, what: str) -> str:
    """Where the worst of a figure of `first-fairness` is above that under fair, and by how much there."""
    found = [(row, _figures(row[OURS])[at], _figures(row["fair"])[at]) for row in rows]
    worse = [f"{where(row)} ({ours:g}, under `fair` {fair:g})" for row, ours, fair in found if ours > fair]
    return f"{what} at {len(worse)} of {len(rows)} loads" + (f": {', '.join(worse)}" if worse else "")


def _plain(rows: Sequence[Row]) -> str:
    share, jct = "users without directives", "their JCT"
    beside = "the others' policy and jobs"
    rigid = [row for row in rows if "rigid" in row[beside]]
    found = [f"{row[jct]} if they are {row[share]} of the users" for row in rigid]
    proven = [row for row in rigid if (match := CHANGE.search(row[jct])) and abs(int(match[1])) > int(match[2] or 0)]
    judged = "" if proven else ", so neither a loss nor a gain is proven"
    waits = ", ".join(f"{row['their wait']} beside `{row[beside]}`" for row in rows if "elastic" in row[beside])
    return (
        f"compared with Slurm alone, their mean JCT changes by {', '.join(found)}, beside jobs that MLF-H does not"
        f" resize{judged}; if the other half of the users has elastic jobs, their wait changes by {waits}"
    )


def _live(rows: Sequence[Row]) -> str:
    ours = next(row for row in rows if row["policy"] == OURS)
    change, worst = ours["against Slurm alone"], ours["worst job"].partition(" (")[0]
    return f"the mean JCT changes by {change} against Slurm alone; the worst job takes {worst} as long"
