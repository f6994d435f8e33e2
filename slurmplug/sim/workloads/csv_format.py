"""The workload format of slurmplug: one CSV of jobs, a column a field of `SimJob`; docs/workloads.md is its page.

Speeds and curves are given in the cell itself or by name: the tables `X.speeds.csv` and `X.curves.csv` beside `X.csv`
hold them. Remarks `# name = ...`, `# nodes = ...` and `# gpus_a_node = ...` before the heading describe the workload.
"""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from predictors.arrays import Floats
from slurmplug.console.table import printable
from slurmplug.sim.engine.job import Part, SimJob, Speed, Workload
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, WorkloadError, as_number, collect, comma_separated, open_lines, quoted

REQUIRED_COLUMNS = ("submit", "name", "gpus", "iterations", "speed")
MOST_POINTS = 100_000
"""of one speed or curve"""
MOST_PARTS = 1_000
MOST_GPUS = 1_000_000
MOST_SECONDS = 1e11
STOPS = ("iterations", "optstop", "target")
_REMARK_LINES = 100
_TEXTS = ("user", "account", "qos", "partition", "kind", "gpu_type", "work")
_AMOUNTS = ("memory", "traffic", "checkpoint_every", "restart", "startup", "runtime_noise", "loss_noise")
_OPTIONAL = ("time_limit", "target", "deadline", "urgency", "params")
_COUNTS = ("gpus_min", "gpus_max", "cpus")
COLUMNS = (
    "submit", "name", "gpus", "iterations", "speed", "curve", *_TEXTS, *_COUNTS, *_AMOUNTS, *_OPTIONAL, "utility",
    "stop", "downgrade", "managed", "parts", "type_speeds",
)  # fmt: skip
_DEFAULTS = {each.name: each.default for each in fields(SimJob)}


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Losses and accuracies (k,) at iterations (k,); NaN where a row gives only the other."""

    at: Floats
    losses: Floats
    accuracies: Floats


def workload(request: WorkloadRequest) -> Workload:
    """The workload of a CSV file, with the speeds and curves in the files beside it.

    Raises:
        WorkloadError
    """
    speeds = _read_speeds(_existing_side_path(request.path, "speeds"))
    curves = _read_curves(_existing_side_path(request.path, "curves"))
    rows = comma_separated(request.path, REQUIRED_COLUMNS, known=(*COLUMNS,))
    jobs, skipped = collect(rows, lambda row: _job(row, speeds, curves), skip_bad=request.skip_bad)
    name, nodes, gpus_a_node = _read_remarks(request.path)
    jobs.sort(key=lambda each: each.submit)
    return Workload(name or _stem(request.path), tuple(jobs), nodes, gpus_a_node, skipped)


def write(workload: Workload, path: Path) -> None:
    """The workload as this format, with its speeds and curves in files beside it, each written once.

    Raises:
        WorkloadError: where a file cannot be written
    """
    speeds: dict[int, tuple[str, Speed]] = {}
    curves: dict[tuple[int, ...], tuple[str, SimJob]] = {}
    lines = []
    for job in workload.jobs:
        speed, _ = speeds.setdefault(id(job.speed), (f"s{len(speeds)}", job.speed))
        shape = tuple(id(each) if len(each) else 0 for each in (job.curve_at, job.losses, job.accuracies))
        curve = curves.setdefault(shape, (f"c{len(curves)}", job))[0] if len(job.curve_at) else ""
        lines.append(_job_cells(job, speed, curve))
    remarks = (
        f"# name = {printable(workload.name)}\n# nodes = {workload.nodes}\n# gpus_a_node = {workload.gpus_a_node}\n"
    )
    points = [
        (name, g, n, repr(r)) for name, speed in speeds.values() for g, n, r in zip(*_speed_columns(speed), strict=True)
    ]
    curve_points = [(name, *cells) for name, job in curves.values() for cells in _curve_rows(job)]
    try:
        path.write_text(remarks + _csv_text(COLUMNS, lines), encoding="utf-8")
        _side_path(path, "speeds").write_text(_csv_text(("speed", "gpus", "nodes", "rate"), points), encoding="utf-8")
        _side_path(path, "curves").write_text(
            _csv_text(("curve", "at", "loss", "accuracy"), curve_points), encoding="utf-8"
        )
    except OSError as error:
        raise WorkloadError(f"{path} cannot be written: {error.strerror}") from error


def _job_cells(job: SimJob, speed: str, curve: str) -> list[str]:
    values = {name: getattr(job, name) for name in (*REQUIRED_COLUMNS[:4], *_TEXTS, *_COUNTS, *_AMOUNTS, *_OPTIONAL)}
    cells = {name: "" if value != value else printable(str(value)) for name, value in values.items()}
    utility = "" if job.utility is None else " ".join(map(repr, job.utility))
    cells |= {"speed": speed, "curve": curve, "utility": utility, "stop": job.stop, "downgrade": job.downgrade}
    cells |= {"managed": "yes" if job.managed else "no", "parts": ";".join(map(_part_text, job.parts))}
    cells["type_speeds"] = " ".join(f"{kind}:{factor!r}" for kind, factor in job.type_speeds.items())
    return [cells[name] for name in COLUMNS]


def _part_text(part: Part) -> str:
    parents = "+".join(map(str, part.parents))
    return f"{part.role}:{part.gpus}:{part.cpus}:{part.memory!r}:{part.share!r}:{parents}"


def _speed_columns(speed: Speed) -> tuple[list[int], list[int], list[float]]:
    return speed.gpus.tolist(), speed.nodes.tolist(), speed.rate.tolist()


def _curve_rows(job: SimJob) -> Iterable[tuple[str, str, str]]:
    def text(values: Floats, row: int) -> str:
        return repr(float(values[row])) if row < len(values) and values[row] == values[row] else ""

    return ((repr(float(at)), text(job.losses, i), text(job.accuracies, i)) for i, at in enumerate(job.curve_at))


def _csv_text(heading: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(lines)
    return text.getvalue()


def _job(row: Row, speeds: Mapping[str, Speed], curves: Mapping[str, LearningCurve]) -> SimJob:
    gpus = row.integer("gpus", most=MOST_GPUS)
    least, most = (row.integer(name, 0, most=MOST_GPUS) for name in ("gpus_min", "gpus_max"))
    if least > (most or gpus) or (most and most < gpus):
        raise row.bad("gpus_max", f"{least} to {most} GPUs is not a range around {gpus}")
    curve = _parse_curve(row, curves)
    submit = row.number("submit", most=MOST_SECONDS)
    return SimJob(
        name=row.text("name"),
        submit=submit,
        gpus=gpus,
        iterations=row.integer("iterations", least=1, most=10**9),
        speed=_parse_speed(row, speeds, max(gpus, 1)),
        gpus_min=least,
        gpus_max=most,
        cpus=row.integer("cpus", 0, most=10**7),
        curve_at=curve.at,
        losses=curve.losses,
        accuracies=curve.accuracies,
        utility=_parse_utility(row),
        stop=_choice(row, "stop", STOPS, "iterations"),
        downgrade=_choice(row, "downgrade", STOPS[1:], ""),
        managed=_choice(row, "managed", ("yes", "no"), "yes") == "yes",
        parts=_parse_parts(row),
        type_speeds=_parse_type_speeds(row),
        **{name: row.text(name, str(_DEFAULTS[name])) for name in _TEXTS},  # type: ignore[arg-type]
        **{name: row.number(name, float(_DEFAULTS[name]), most=1e15) for name in _AMOUNTS},  # type: ignore[arg-type]
        **{name: row.number(name, math.nan, most=1e15) for name in _OPTIONAL},  # type: ignore[arg-type]
    )


def _choice(row: Row, column: str, choices: Sequence[str], default: str) -> str:
    value = row.text(column, default)
    if value != default and value not in choices:
        raise row.bad(column, f"is {quoted(value)}, not one of {', '.join(choices)}")
    return value


def _parse_utility(row: Row) -> tuple[float, float, float] | None:
    values = _numbers(row, "utility", row.cells.get("utility", ""))
    if not values:
        return None
    if len(values) != 3 or min(values) < 0:
        raise row.bad("utility", "is not three numbers: worth, steepness a second, seconds")
    return values[0], values[1], values[2]


def _parse_speed(row: Row, speeds: Mapping[str, Speed], gpus: int) -> Speed:
    """A name, a rate on the requested GPUs, or points `GPUSxNODES:RATE` with spaces between."""
    text = row.text("speed", longest=MOST_POINTS)
    if text in speeds:
        return speeds[text]
    rate = as_number(text)
    if rate is not None and rate > 0:
        return Speed(np.array([gpus]), np.array([1]), np.array([rate]))
    points = []
    for word in text.split():
        placement, _, rate_text = word.partition(":")
        on, _, nodes = placement.partition("x")
        rate = as_number(rate_text)
        if not (on.isdecimal() and nodes.isdecimal() and on.isascii() and nodes.isascii()) or rate is None:
            known = f"; the file beside it has {len(speeds)}" if speeds else ""
            raise row.bad("speed", f"{quoted(text)} is neither a named speed nor a rate nor GPUSxNODES:RATE{known}")
        points.append((int(on[:9]), int(nodes[:9]), rate))
    return _checked_speed(row, points, "speed")


def _checked_speed(row: Row, points: Sequence[tuple[int, int, float]], column: str) -> Speed:
    gpus, nodes, rates = zip(*points, strict=True)
    if min(rates) <= 0 or min(gpus) < 1 or min(nodes) < 1:
        raise row.bad(column, "a speed needs rates above 0 on at least one GPU of one node")
    if len({point[:2] for point in points}) != len(points):
        raise row.bad(column, "gives two rates for the same GPUs and nodes")
    return Speed(np.array(gpus), np.array(nodes), np.array(rates))


def _parse_curve(row: Row, curves: Mapping[str, LearningCurve]) -> LearningCurve:
    """A name, or points `ITERATION:LOSS:ACCURACY` with spaces between, either of the two empty."""
    text = row.text("curve", "", longest=MOST_POINTS)
    if not text or text in curves:
        return curves.get(text) or LearningCurve(np.empty(0), np.empty(0), np.empty(0))
    points = []
    for word in text.split():
        cells = word.split(":")
        numbers = [math.nan if not cell else as_number(cell) for cell in cells]
        if len(cells) != 3 or None in numbers:
            raise row.bad("curve", f"{quoted(text)} is neither a named curve nor points ITERATION:LOSS:ACCURACY")
        points.append(tuple(float(number) for number in numbers if number is not None))
    return _checked_curve(row, points, "curve")


def _checked_curve(row: Row, points: Sequence[tuple[float, ...]], column: str) -> LearningCurve:
    at, losses, accuracies = np.array(points).T
    if not (at[0] >= 0 and (np.diff(at) > 0).all()):
        raise row.bad(column, "the iterations of a curve do not increase from 0 or more")
    if len(points) > MOST_POINTS:
        raise row.bad(column, f"has more than {MOST_POINTS} points")
    quantities = [values if (values == values).any() else np.empty(0) for values in (losses, accuracies)]
    if any(len(values) and (values != values).any() for values in quantities):
        raise row.bad(column, "gives a loss, or an accuracy, at some iterations and not at others")
    return LearningCurve(at, *quantities)


def _parse_type_speeds(row: Row) -> dict[str, float]:
    """`TYPE:FACTOR` with spaces between."""
    factors = {}
    for word in row.text("type_speeds", "", longest=MOST_POINTS).split():
        kind, _, text = word.rpartition(":")
        factor = as_number(text)
        if not kind or factor is None or factor <= 0:
            raise row.bad("type_speeds", f"{quoted(word)} is no TYPE:FACTOR with a factor above 0")
        factors[kind] = factor
    return factors


def _parse_parts(row: Row) -> tuple[Part, ...]:
    """`ROLE:GPUS:CPUS:MEMORY:SHARE:PARENTS` with `;` between, parents as numbers from 0 with `+` between."""
    words = [word for word in row.text("parts", "", longest=MOST_POINTS).split(";") if word]
    if len(words) > MOST_PARTS:
        raise row.bad("parts", f"are more than {MOST_PARTS}")
    parts = []
    for number, word in enumerate(words):
        cells = word.strip().split(":")
        values = [as_number(cell) for cell in cells[1:5]]
        parents = [cell for cell in cells[-1].split("+") if cell]
        whole = all(value is not None and value >= 0 for value in values) and all(
            parent.isdecimal() and len(parent) < 5 and int(parent) < number for parent in parents
        )
        if len(cells) != 6 or not whole:
            raise row.bad("parts", f"{quoted(word)} is no ROLE:GPUS:CPUS:MEMORY:SHARE:PARENTS of parts before it")
        gpus, cpus, memory, share = (value or 0.0 for value in values)
        parts.append(Part(int(gpus), int(cpus), memory, cells[0], share, tuple(map(int, parents))))
    return tuple(parts)


def _numbers(row: Row, column: str, text: str) -> list[float]:
    numbers = [as_number(word) for word in text.split()]
    if len(numbers) > MOST_POINTS or None in numbers:
        raise row.bad(column, f"{quoted(text)} is not a list of numbers with spaces between")
    return [number for number in numbers if number is not None]


def _read_speeds(path: Path | None) -> dict[str, Speed]:
    points: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    last: dict[str, Row] = {}
    if path is not None:
        for row in comma_separated(path, ("speed", "gpus", "nodes", "rate")):
            name = row.text("speed")
            at = row.integer("gpus", least=1, most=MOST_GPUS), row.integer("nodes", least=1, most=MOST_GPUS)
            points[name].append((*at, row.number("rate")))
            last[name] = row
    return {name: _checked_speed(last[name], rates, "rate") for name, rates in points.items()}


def _read_curves(path: Path | None) -> dict[str, LearningCurve]:
    points: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    last: dict[str, Row] = {}
    if path is not None:
        for row in comma_separated(path, ("curve", "at", "loss", "accuracy")):
            name = row.text("curve")
            values = (row.number(column, math.nan, least=-math.inf) for column in ("loss", "accuracy"))
            points[name].append((row.number("at"), *values))
            last[name] = row
    return {name: _checked_curve(last[name], at, "at") for name, at in points.items()}


def _read_remarks(path: Path) -> tuple[str, int, int]:
    remarks: dict[str, str] = {}
    with open_lines(path) as lines:
        for _, line in zip(range(_REMARK_LINES), lines, strict=False):
            if line.startswith("#"):
                key, equals, value = line[1:].partition("=")
                if equals:
                    remarks[key.strip()] = value.strip()
    counts = []
    for key in ("nodes", "gpus_a_node"):
        number = as_number(remarks.get(key, "0"))
        if number is None or number != int(number) or not 0 <= number <= MOST_GPUS:
            raise WorkloadError(f"{path}: # {key} = {quoted(remarks[key])} is not a whole number")
        counts.append(int(number))
    return remarks.get("name", "")[:256], counts[0], counts[1]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv")


def _side_path(path: Path, kind: str) -> Path:
    return path.with_name(f"{_stem(path)}.{kind}.csv")


def _existing_side_path(path: Path, kind: str) -> Path | None:
    plain = _side_path(path, kind)
    return next((each for each in (plain, plain.with_name(f"{plain.name}.gz")) if each.is_file()), None)
