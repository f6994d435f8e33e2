"""Reads the files of `slurmplug evaluate`: learning curves, job logs, measured step times.

What cannot be used is rejected with the file, the line and the reason: scores on half of the data would go unnoticed.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pandas as pd

from predictors.arrays import Floats
from predictors.runtime import Job
from predictors.trials.curves import FinishedCurve
from predictors.trials.gpu_types import TypedStep
from predictors.trials.speed import Profile
from slurmplug.errors import DataError

LINE_BYTES = 64 * 1024 * 1024
"""The longest line of JSON that is read."""
MAX_EPOCHS = 10_000
"""The longest accuracy curve; OptStop predicts from each epoch of it."""
_NOT_METADATA = frozenset({"id", "path", "val_acc", "loss", "time"})
_SWF = ("job", "submit", "wait", "run", "p", "cpu", "mem", "p_requested", "rtime", "mem_requested", "status", "user",
        "group", "exe", "queue", "part", "previous", "think")  # fmt: skip
"""Fields of the Standard Workload Format (Chapin et al. 1999)."""
_TEXTS = {"user": "user", "group": "group", "exe": "exe", "queue": "qos", "part": "partition"}
_STEP_COLUMNS = {"model", "gpu_type", "local_bsz", "step_time_s"}
_PLACEMENT_COLUMNS: tuple[set[str], ...] = ({"placement"}, {"num_nodes", "num_replicas"})


@dataclass(frozen=True)
class JobLog:
    """Finished jobs, in order of submission, their run times (n,) in seconds, and how long they waited, NaN where
    unknown."""

    jobs: Sequence[Job]
    runtimes: Floats
    waits: Floats


def read_accuracy_curves(paths: Sequence[Path]) -> list[FinishedCurve]:
    """The runs with `val_acc` in JSON lines; the other values of a line are the run's metadata.

    Of a group with values above 1 in the same file all are percentages, and are read as shares.

    Raises:
        DataError: a file cannot be read, or has no such run.
    """
    runs = []
    for path in paths:
        read = [_accuracy_run(row, where) for row, where in _json_lines([path]) if "val_acc" in row]
        percentages = {run.group for run in read if run.values.max() > 1}
        runs += [replace(run, values=run.values / 100) if run.group in percentages else run for run in read]
    return _require_some(runs, paths, "a curve of val_acc")


def _accuracy_run(row: Mapping[str, Any], where: str) -> FinishedCurve:
    meta = {name: value for name, value in row.items() if name not in _NOT_METADATA}
    values = _curve(row["val_acc"], "val_acc", where)
    if len(values) > MAX_EPOCHS:
        raise DataError(f"{where}: val_acc has {len(values)} points; at most {MAX_EPOCHS} can be used")
    return FinishedCurve(values, str(row.get("group", "")), meta)


def read_loss_curves(paths: Sequence[Path]) -> dict[str, list[Floats]]:
    """The curves of `loss` in JSON lines, by `algo`, or else by `group`.

    Raises:
        DataError: a file cannot be read, or has no such curve.
    """
    curves: dict[str, list[Floats]] = {}
    for row, where in _json_lines(paths):
        if "loss" in row:
            kind = str(row.get("algo") or row.get("group") or "")
            curves.setdefault(kind, []).append(_curve(row["loss"], "loss", where))
    _require_some(list(curves), paths, "a curve of loss")
    return curves


def read_job_log(path: Path) -> JobLog:
    """The jobs of a log in the Standard Workload Format (.swf), or in CSV with its fields: submit and run, and any of
    wait, p (processors), rtime (requested time), user, group, exe, queue, part. -1 means unknown.

    Raises:
        DataError: the file cannot be read, or no job in it has run.
    """
    swf = path.name.removesuffix(".gz").endswith(".swf")
    table, lines = _swf(path) if swf else _csv(path, {"submit", "run"})
    numbers = {
        name: _numbers(table, name, path, lines)
        for name in ("submit", "run", "wait", "p", "rtime")
        if name in table.columns
    }
    ran = numbers["run"] >= 0
    if not ran.any():
        raise DataError(f"{path}: no job in it has run")
    submit, run = numbers["submit"], numbers["run"]
    wait = numbers.get("wait", np.full(len(run), -1.0))
    columns: dict[str, Sequence[Any]] = {
        "submit": submit.tolist(),
        "end": (submit + np.maximum(wait, 0.0) + run).tolist(),
    }
    for name, called in (("p", "cpus"), ("rtime", "time_limit")):
        if name in numbers:
            columns[called] = [value if value > 0 else None for value in numbers[name].tolist()]
    for name, called in _TEXTS.items():
        if name in table.columns:
            columns[called] = [None if value in {"-1", ""} else value for value in table[name].tolist()]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    order = [i for i in np.argsort(submit, kind="stable").tolist() if ran[i]]
    jobs = [{name: value for name, value in rows[i].items() if value is not None} for i in order]
    return JobLog(jobs, run[order], np.where(wait >= 0, wait, np.nan)[order])


def read_step_times(paths: Sequence[Path]) -> list[Profile]:
    """Measured step times in CSV: model, gpu_type, local_bsz, step_time_s, and the place: num_nodes and num_replicas,
    or placement, the GPUs of each node as digits. A job is one model with one batch size per GPU on one type of GPU.

    Raises:
        DataError: a file cannot be read, or has a row that cannot be used.
    """
    rows = sorted(row for path in paths for row in _step_rows(path))
    profiles = []
    for (model, gpu_type, _), group in groupby(rows, key=lambda row: row[0]):
        _, *columns = zip(*group, strict=True)
        profiles.append(Profile(model, gpu_type, *(np.array(column) for column in columns)))
    return profiles


def _step_rows(path: Path) -> Iterator[tuple[tuple[str, str, str], float, float, float]]:
    """Model, GPU type and batch; GPUs, nodes, seconds."""
    table, lines = _csv(path, _STEP_COLUMNS)
    if not any(place <= set(table.columns) for place in _PLACEMENT_COLUMNS):
        raise DataError(f"{path}:1: there is neither the column placement nor num_nodes and num_replicas")
    times = _numbers(table, "step_time_s", path, lines)
    gpus, nodes = _placements(table, path, lines)
    _check(path, lines, times > 0, lambda i: f"step_time_s is {times[i]:g}")
    _check(path, lines, (nodes >= 1) & (gpus >= nodes), lambda _: "there is no GPU on some node")
    keys = zip(table["model"], table["gpu_type"], table["local_bsz"], strict=True)
    return zip(keys, gpus.tolist(), nodes.tolist(), times.tolist(), strict=True)


def _placements(table: pd.DataFrame, path: Path, lines: Sequence[int]) -> tuple[Floats, Floats]:
    """GPUs and nodes."""
    if "placement" not in table.columns:
        return _numbers(table, "num_replicas", path, lines), _numbers(table, "num_nodes", path, lines)
    places = table["placement"].str.strip().tolist()
    digits = np.array([place.isascii() and place.isdecimal() and len(place) < 1000 for place in places], dtype=bool)
    _check(path, lines, digits, lambda i: f"placement is {places[i][:40]!r}, not digits")
    gpus = np.array([sum(map(int, place)) for place in places], dtype=np.float64)
    return gpus, np.array([len(place) for place in places], dtype=np.float64)


def read_speeds_by_type(paths: Sequence[Path]) -> list[TypedStep]:
    """Measured speeds in CSV: gpu_type, job_type, num_gpus, steps_per_s. Jobs of types that differ in what is in
    parentheses, such as a batch size, are of one kind. Left out are rows of speed 0, of jobs that did not run there,
    and those of types that end in _unconsolidated, which are of other placements.

    Raises:
        DataError: a file cannot be read, or has a row that cannot be used.
    """
    found = []
    for path in paths:
        table, lines = _csv(path, {"gpu_type", "job_type", "num_gpus", "steps_per_s"})
        speeds, gpus = (_numbers(table, name, path, lines) for name in ("steps_per_s", "num_gpus"))
        _check(path, lines, speeds >= 0, lambda _: "steps_per_s is negative")
        _check(path, lines, gpus >= 1, lambda _: "num_gpus is less than 1")
        rows = zip(table["job_type"].tolist(), gpus.tolist(), table["gpu_type"].tolist(), speeds.tolist(), strict=True)
        found += [
            TypedStep(job.partition(" (")[0], job, int(count), kind, 1.0 / speed)
            for job, count, kind, speed in rows
            if speed and not kind.endswith("_unconsolidated")
        ]
    return found


def _json_lines(paths: Sequence[Path]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each object, and its file and line."""
    for path in paths:
        with _as_data_errors(path), _open(path) as file:
            for number in count(1):
                line = file.readline(LINE_BYTES)
                if not line:
                    break
                where = f"{path}:{number}"
                if len(line) == LINE_BYTES:
                    raise DataError(f"{where}: the line is longer than {LINE_BYTES} bytes")
                if line.strip():
                    yield _object(line, where), where


def _object(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not a line of JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object")
    return row


def _curve(value: Any, name: str, where: str) -> Floats:
    numbers = isinstance(value, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    if not numbers or not value:
        raise DataError(f"{where}: {name} is not a list of numbers")
    if not all(abs(v) < 1e100 for v in value):
        raise DataError(f"{where}: {name} holds a number that is not finite, or beyond 1e100")
    return np.array(value, dtype=np.float64)


def _csv(path: Path, wanted: set[str]) -> tuple[pd.DataFrame, Sequence[int]]:
    """The table as text, and the line of each row."""
    table, lines = _table(path, "", header=0, sep=",")
    table.columns = table.columns.str.strip()
    if missing := wanted - set(table.columns):
        raise DataError(f"{path}:1: the column {min(missing)} is missing; it has {', '.join(table.columns)[:200]}")
    return table, lines[1:]


def _swf(path: Path) -> tuple[pd.DataFrame, Sequence[int]]:
    return _table(path, ";", header=None, sep=r"\s+", names=_SWF)


def _table(path: Path, comment: str, **how: Any) -> tuple[pd.DataFrame, Sequence[int]]:
    """The lines that are neither blank nor comments, and their numbers; missing fields are empty texts."""
    with _as_data_errors(path), _open(path) as file, io.TextIOWrapper(file, encoding="utf-8") as content:
        lines = [
            (n, line)
            for n, line in enumerate(content, start=1)
            if line.strip() and not (comment and line.lstrip().startswith(comment))
        ]
        columns = lines[0][1].count(",") if lines else 0
        if wide := next((n for n, line in lines if not comment and line.count(",") > columns), None):
            raise DataError(f"{path}:{wide}: there are more fields than columns in the heading")
        text = io.StringIO("".join(line for _, line in lines))
        table = pd.read_csv(text, dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE, index_col=False, **how)
    if not len(table):
        raise DataError(f"{path}: there is no row in it")
    return table.fillna(""), [n for n, _ in lines]


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


@contextmanager
def _as_data_errors(path: Path) -> Iterator[None]:
    """Raises DataError for errors of the file system, gzip, the encoding and pandas."""
    try:
        yield
    except (OSError, EOFError, zlib.error, ValueError) as error:
        what = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"{path} cannot be read: {what}") from error


def _numbers(table: pd.DataFrame, name: str, path: Path, lines: Sequence[int]) -> Floats:
    """A column of numbers. Raises DataError for a value that is not a finite number."""
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=np.float64)
    texts = table[name].tolist()
    _check(path, lines, np.isfinite(values), lambda i: f"{name} is {texts[i][:40]!r}, not a number")
    return values


def _check(path: Path, lines: Sequence[int], good: Any, reason: Callable[[int], str]) -> None:
    bad = np.flatnonzero(~good)
    if len(bad):
        raise DataError(f"{path}:{lines[bad[0]]}: {reason(int(bad[0]))}")


def _require_some(found: list[Any], paths: Sequence[Path], what: str) -> list[Any]:
    if not found:
        raise DataError(f"{', '.join(map(str, paths))}: there is not one line with {what}")
    return found
