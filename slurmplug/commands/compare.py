"""`slurmplug compare`: differences between simulated policies, with confidence intervals over seeds."""

import math
from collections.abc import Sequence
from pathlib import Path

import click

from slurmplug.commands.options import emit
from slurmplug.console import table
from slurmplug.console.table import Field
from slurmplug.errors import UsageError


@click.command()
@click.argument("first_path", metavar="A.json", type=click.Path(path_type=Path))
@click.argument("second_path", metavar="[B.json]", required=False, type=click.Path(path_type=Path))
@click.option("--against", default="", metavar="POLICY", help="The policy of A.json that the others are compared with.")
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals.",
)
@click.option("--figure", "figures", multiple=True, metavar="NAME", help="Only this figure; repeated for several.")
@click.option("--json", "wants_json", is_flag=True, help="JSON: shares as numbers, null for unknown values.")
def compare(
    *,
    first_path: Path,
    second_path: Path | None,
    against: str,
    confidence: float,
    figures: tuple[str, ...],
    wants_json: bool,
) -> None:
    """Compare what `slurmplug simulate --json` wrote: the policies of A.json with those of the same name in B.json,
    or, with one file or --against, with one of them. Runs of the same seed are pairs."""
    from slurmplug.sim.experiment import comparison  # noqa: PLC0415  scipy.stats takes a second to load

    first = comparison.read(first_path)
    second = comparison.read(second_path) if second_path else None
    pairs = comparison.pairs(first, second, against)
    rows = [row for before, after in pairs for row in comparison.compare_figures(before, after, confidence)]
    known = list(dict.fromkeys(row.figure for row in rows))
    if unknown := next((name for name in figures if name not in known), ""):
        raise UsageError(f"no such figure: {unknown!r}; known: {', '.join(known)}")
    rows = [row for row in rows if not figures or row.figure in figures]
    if wants_json:
        compared = {
            "workload": first.workload,
            "confidence": confidence,
            "compared": [row.as_json() for row in rows],
        }
        emit([table.to_json(compared)])
        return
    emit([f"{table.printable(first.workload)}, {confidence:.0%} intervals over seeds"])
    emit(text.rstrip() for text in table.format_lines(_FIELDS, table.columns(_FIELDS, rows), rule=False, fit=True))
    for before, after in pairs:
        if comparison.identical(before, after):
            names = " and ".join(table.printable(next(iter(each.values())).policy) for each in (after, before))
            emit([f"{names} are identical: every figure of every seed is the same, but for the measured times"])
    if all(math.isnan(row.low) for row in rows):
        emit(["one seed gives no confidence interval: simulate with --seed 0 --seed 1 and so on"])


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def _share(value: float) -> str:
    return "-" if value != value else f"{value:+.1%}"


_FIELDS: Sequence[Field] = (  # type: ignore[type-arg]
    Field("FIGURE", "text", 24, "", lambda row: row.figure, left=True),
    Field("POLICY", "text", 24, "", lambda row: row.policy, left=True),
    Field("AGAINST", "text", 24, "", lambda row: row.against, left=True),
    Field("SEEDS", "integer", 8, "", lambda row: row.seeds),
    Field("BEFORE", "text", 14, "", lambda row: _number(row.before)),
    Field("AFTER", "text", 14, "", lambda row: _number(row.after)),
    Field("CHANGE", "text", 10, "", lambda row: _share(row.change)),
    Field("LOW", "text", 10, "", lambda row: _share(row.low)),
    Field("HIGH", "text", 10, "", lambda row: _share(row.high)),
    Field("P", "text", 8, "", lambda row: "-" if row.p != row.p else f"{row.p:.3f}"),
)
