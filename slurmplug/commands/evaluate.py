"""`slurmplug evaluate`: how well the predictors do, on files or on the site's own jobs, simple methods beside them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from predictors.scoring import ScoreRow
from slurmplug.commands.options import emit, json_option, ledger_options, opened
from slurmplug.console import table
from slurmplug.console.table import Field, Value
from slurmplug.errors import DataError, UsageError

KINDS = ("curves", "loss", "runtime", "speed", "optstop")
_DETAIL = {"mae s": ".0f", "exceeds 0.95": ".1%", "covers 90%": ".1%", "epochs used": ".1%", "best found": ".0%",
           "of the value": ".2%", "of the range": ".2%", "error": ".1%", "log likelihood": ".2f", "regret": ".3f",
           "ms": ".3f"}  # fmt: skip


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
    help="The share of a learning curve that is seen, of five points at least.",
)
@click.option("--from-ledger", is_flag=True, help="What was predicted of the site's own jobs, against what came.")
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
    """Measure the predictors on FILEs whose end is known: curves or losses as JSON lines, job logs as CSV or in the
    Standard Workload Format, step times as CSV; each may be compressed by gzip."""
    if from_ledger == bool(kind or files):
        raise UsageError(f"name a kind ({', '.join(KINDS)}) and its files, or say --from-ledger")
    if kind and not files:
        raise UsageError(f"evaluate {kind} needs at least one FILE")
    if histories and kind not in _WITH_HISTORY:
        raise UsageError(f"--history goes with {', '.join(sorted(_WITH_HISTORY))}")
    tables: Mapping[str, Sequence[ScoreRow]]
    try:
        if kind:
            tables = _TRIALS[kind](files, histories, observe)
        else:
            from slurmplug.learning import backtest  # noqa: PLC0415

            with opened(config_path, ledger_path) as ledger:
                tables = backtest.tables(ledger, observe, perf_counter)
    except ValueError as error:  # what a trial finds too little of
        raise DataError(f"{', '.join(map(str, files)) or 'the ledger'}: {error}") from error
    if wants_json:
        emit([table.as_json({name: [_mapping(line) for line in lines] for name, lines in tables.items()})])
        return
    emit(text for name, lines in tables.items() for text in _shown(name, lines))


# The predictors take a second to load, which `slurmplug --help` and completion need not wait for.


def _curves(files: Sequence[Path], histories: Sequence[Path], observe: float) -> dict[str, list[ScoreRow]]:
    from predictors.trials import curves  # noqa: PLC0415
    from slurmplug.learning import dataset_files  # noqa: PLC0415

    history = dataset_files.accuracy_curves(histories) if histories else None
    runs = dataset_files.accuracy_curves(files)
    return {f"last value, from {observe:.0%} of the curve": curves.trial(runs, observe, perf_counter, history)}


def _optstop(files: Sequence[Path], histories: Sequence[Path], observe: float) -> dict[str, list[ScoreRow]]:  # noqa: ARG001
    from predictors.trials import optstop  # noqa: PLC0415
    from slurmplug.learning import dataset_files  # noqa: PLC0415

    runs = dataset_files.accuracy_curves(files)
    history = dataset_files.accuracy_curves(histories) if histories else None
    searches = optstop.searches(runs, history)
    return {
        f"{name or 'runs'} in {optstop.ORDERS} orders": optstop.trial(tested, past, perf_counter)
        for name, tested, past in searches
    }


def _loss(files: Sequence[Path], histories: Sequence[Path], observe: float) -> dict[str, list[ScoreRow]]:  # noqa: ARG001
    from predictors.trials import loss  # noqa: PLC0415
    from slurmplug.learning import dataset_files  # noqa: PLC0415

    return {f"loss, {loss.AHEAD} iterations ahead": loss.trial(dataset_files.loss_curves(files), perf_counter)}


def _runtime(files: Sequence[Path], histories: Sequence[Path], observe: float) -> dict[str, list[ScoreRow]]:  # noqa: ARG001
    import numpy as np  # noqa: PLC0415

    from predictors.trials import runtime  # noqa: PLC0415
    from slurmplug.learning import dataset_files  # noqa: PLC0415

    if len(histories) > 1:
        raise UsageError("one job log is the --history of another: name one")
    earlier = [dataset_files.job_log(path) for path in histories]
    tables = {}
    for path in files:
        logs = [*earlier, dataset_files.job_log(path)]
        jobs = [job for log in logs for job in log.jobs]
        runtimes = np.concatenate([log.runtimes for log in logs])
        known = len(jobs) - len(logs[-1].jobs)
        if known and float(jobs[known]["submit"]) < float(jobs[known - 1]["submit"]):
            raise DataError(f"{path}: its first job was submitted before the last one of the history")
        tables[f"run time, {path.name}"] = runtime.trial(jobs, runtimes, perf_counter, earlier=known)
    return tables


def _speed(files: Sequence[Path], histories: Sequence[Path], observe: float) -> dict[str, list[ScoreRow]]:  # noqa: ARG001
    from predictors.trials import speed  # noqa: PLC0415
    from slurmplug.learning import dataset_files  # noqa: PLC0415

    return {"step time at other counts of GPUs": speed.trial(dataset_files.speeds(files), perf_counter)}


_TRIALS: Mapping[str, Callable[[Sequence[Path], Sequence[Path], float], dict[str, list[ScoreRow]]]] = {
    "curves": _curves, "loss": _loss, "optstop": _optstop, "runtime": _runtime, "speed": _speed,
}  # fmt: skip
_WITH_HISTORY = frozenset({"curves", "optstop", "runtime"})


def _mapping(line: ScoreRow) -> dict[str, Any]:
    scores = {name: None if value != value else value for name, value in line.scores.items()}
    return {"part": line.part, "method": line.method, "items": line.items, **scores}


def _shown(name: str, lines: Sequence[ScoreRow]) -> Iterator[str]:
    yield f"{table.printable(name)}:"
    fields: list[Field[ScoreRow]] = [
        Field("PART", "text", 48, "", lambda line: line.part, left=True),
        Field("METHOD", "text", 24, "", lambda line: line.method, left=True),
        Field("ITEMS", "integer", 8, "", lambda line: line.items),
        *(_score(each) for each in dict.fromkeys(name for line in lines for name in line.scores)),
    ]
    if not any(line.part for line in lines):
        del fields[0]
    yield from (f"  {text.rstrip()}" for text in table.lines(table.as_wide_as_needed(fields, lines), lines, rule=False))


def _score(name: str) -> Field[ScoreRow]:
    def value(line: ScoreRow) -> Value:
        score = line.scores.get(name, float("nan"))
        return "-" if score != score else format(score, _DETAIL.get(name, ".4f"))

    return Field(name.upper(), "text", 16, "", value)
