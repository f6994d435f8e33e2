"""`slurmplug evaluate`: how accurate the predictors are, on files or on the site's own jobs, beside simple methods."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from predictors.scoring import ScoreRow
from slurmplug.commands.opened import open_ledger
from slurmplug.commands.options import emit, json_option, ledger_options
from slurmplug.console import progress, table
from slurmplug.console.table import Field, Value
from slurmplug.errors import UsageError

KINDS = ("curves", "loss", "runtime", "speed", "gpu-types", "optstop", "stops", "wait")
_DETAIL = {"mae s": ".0f", "exceeds 0.95": ".1%", "covers 90%": ".1%", "epochs used": ".1%", "best found": ".0%",
           "of the value": ".2%", "of the range": ".2%", "error": ".1%", "log likelihood": ".2f", "regret": ".3f",
           "ms": ".3f",
           "covers 80%": ".1%", "published": ".1%",
           "stopped": ".1%", "wrongly": ".1%", "reports": ".0f"}  # fmt: skip


@click.command()
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--history",
    "histories",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Learn from this file, rather than from other parts of the data: curves, optstop, runtime.",
)
@click.option(
    "--observe",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.25,
    show_default=True,
    help="The share of a learning curve that is observed, at least five points.",
)
@click.option("--from-ledger", is_flag=True, help="Compare predictions of the site's own jobs with what happened.")
@ledger_options
@json_option
def evaluate(
    *,
    kind: str | None,
    files: tuple[Path, ...],
    histories: tuple[Path, ...],
    observe: float,
    from_ledger: bool,
    config_path: Path,
    ledger_path: Path | None,
    wants_json: bool,
) -> None:
    """Evaluate the predictors on FILEs whose outcome is known: curves or losses as JSON lines, job logs as CSV, in
    the Standard Workload Format or as a workload of `slurmplug simulate`, step times as CSV; each may be compressed by
    gzip."""
    from slurmplug.learning import evaluation, wait_trial  # noqa: PLC0415  the predictors take a second to load
    from slurmplug.sim.workloads.job_log import job_log  # noqa: PLC0415

    if from_ledger == bool(kind or files):
        raise UsageError(f"name a kind ({', '.join(KINDS)}) and its files, or give --from-ledger")
    if kind and not files:
        raise UsageError(f"evaluate {kind} needs at least one FILE")
    with progress.spinner(f"evaluating {kind or 'the predictions of the ledger'}"):
        tables = (
            evaluation.evaluate_files(kind, files, histories, observe, perf_counter, read=job_log)
            if kind
            else _backtest(config_path, ledger_path, observe)
        )
    if wants_json and kind == "wait":
        emit([table.to_json(wait_trial.summary(next(iter(tables.values()))))])
        return
    if wants_json:
        emit([table.to_json({name: [_mapping(line) for line in lines] for name, lines in tables.items()})])
        return
    emit(text for name, lines in tables.items() for text in _table_lines(name, lines))


def _backtest(config_path: Path, ledger_path: Path | None, observe: float) -> Mapping[str, Sequence[ScoreRow]]:
    from slurmplug.learning import backtest  # noqa: PLC0415  the predictors take a second to load

    with open_ledger(config_path, ledger_path) as ledger:
        return backtest.score_tables(ledger, observe, perf_counter)


def _mapping(line: ScoreRow) -> dict[str, Any]:
    scores = {name: None if value != value else value for name, value in line.scores.items()}
    return {"part": line.part, "method": line.method, "items": line.items, **scores}


def _table_lines(name: str, lines: Sequence[ScoreRow]) -> Iterator[str]:
    yield f"{table.printable(name)}:"
    fields: list[Field[ScoreRow]] = [
        Field("PART", "text", 48, "", lambda line: line.part, left=True),
        Field("METHOD", "text", 24, "", lambda line: line.method, left=True),
        Field("ITEMS", "integer", 8, "", lambda line: line.items),
        *(_score(each) for each in dict.fromkeys(name for line in lines for name in line.scores)),
    ]
    if not any(line.part for line in lines):
        del fields[0]
    shown = table.format_lines(fields, table.columns(fields, lines), rule=False, fit=True)
    yield from (f"  {text.rstrip()}" for text in shown)


def _score(name: str) -> Field[ScoreRow]:
    def value(line: ScoreRow) -> Value:
        score = line.scores.get(name, float("nan"))
        return "-" if score != score else format(score, _DETAIL.get(name, ".4f"))

    return Field(name.upper(), "text", 16, "", value)
