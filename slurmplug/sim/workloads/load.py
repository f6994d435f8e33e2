"""Where workloads come from: files of many formats, generators, and small ones of our own."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads.rows import WorkloadError, as_number, open_lines, quoted

__all__ = ["FORMATS", "GENERATORS", "Options", "WorkloadError", "WorkloadRequest", "load", "packaged"]

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "csv": "slurmplug.sim.workloads.csv_format",
        "pollux": "slurmplug.sim.workloads.importers.pollux",
        "philly": "slurmplug.sim.workloads.importers.philly",
        "elasticflow": "slurmplug.sim.workloads.importers.elasticflow",
        "tiresias": "slurmplug.sim.workloads.importers.tiresias",
        "swf": "slurmplug.sim.workloads.importers.swf",
        "sacct": "slurmplug.sim.workloads.importers.sacct",
        "ubhpc": "slurmplug.sim.workloads.importers.ubhpc",
        "ledger": "slurmplug.sim.workloads.importers.ledger",
    }
)
GENERATORS: Mapping[str, str] = MappingProxyType(
    {
        "mlfs": "slurmplug.sim.workloads.generators.mlfs",
        "slaq": "slurmplug.sim.workloads.generators.slaq",
        "dl2": "slurmplug.sim.workloads.generators.dl2",
        "oasis": "slurmplug.sim.workloads.generators.oasis",
        "ml-sjf": "slurmplug.sim.workloads.generators.ml_sjf",
    }
)
PACKAGED = Path(__file__).parent / "data"
MOST_JOBS = 1_000_000
_FRACTION = re.compile(r"(\d{1,9})/([1-9]\d{0,8})", re.ASCII)


class Options:
    """The options behind the question mark of a workload's name: `x=1/4&jobs=100`."""

    def __init__(self, text: str, name: str) -> None:
        """
        Raises:
            WorkloadError: for what is no KEY=VALUE, or a repeated key
        """
        self._name = name
        self._values: dict[str, str] = {}
        self._known: list[str] = []
        for item in filter(None, text.split("&")):
            key, equals, value = item.partition("=")
            if not equals or key in self._values:
                raise WorkloadError(f"{quoted(name)}: {quoted(item)} is not an option KEY=VALUE, or is given twice")
            self._values[key] = value

    def text(self, key: str, default: str = "", choices: tuple[str, ...] = ()) -> str:
        """A word, one of the choices where there are any.

        Raises:
            WorkloadError
        """
        self._known.append(key)
        value = self._values.pop(key, default)
        if choices and value not in choices:
            raise WorkloadError(f"{quoted(self._name)}: {key} is {quoted(value)}, not one of {', '.join(choices)}")
        return value

    def number(self, key: str, default: float, *, least: float = 0.0, most: float = 1e12) -> float:
        """A number, or a fraction of two whole ones as in 1/4.

        Raises:
            WorkloadError
        """
        self._known.append(key)
        if key not in self._values:
            return default
        text = self._values.pop(key)
        fraction = _FRACTION.fullmatch(text)
        number = int(fraction[1]) / int(fraction[2]) if fraction else as_number(text)
        if number is None or not least <= number <= most:
            raise WorkloadError(f"{quoted(self._name)}: {key} is {quoted(text)}, not from {least:g} to {most:g}")
        return number

    def integer(self, key: str, default: int, *, least: int = 0, most: int = MOST_JOBS) -> int:
        """A whole number.

        Raises:
            WorkloadError
        """
        number = self.number(key, default, least=least, most=most)
        if number != int(number):
            raise WorkloadError(f"{quoted(self._name)}: {key} is not a whole number")
        return int(number)

    def done(self) -> None:
        """Check that every option was used.

        Raises:
            WorkloadError
        """
        if self._values:
            others = ", ".join(sorted(map(quoted, self._values)))
            known = ", ".join(sorted(set(self._known)))
            raise WorkloadError(f"{quoted(self._name)}: no such option: {others}; there are {known}")


@dataclass(frozen=True)
class WorkloadRequest:
    """The arguments of a reader or a generator. `jobs` is for generators; what is read is cut afterwards."""

    options: Options
    seed: int = 0
    path: Path = Path()
    jobs: int | None = None
    skip_bad: bool = False
    data: Path | None = None


class Source(Protocol):
    """A module that makes workloads: a reader of one format, or a generator."""

    def workload(self, request: WorkloadRequest) -> Workload:
        """Read or generate a workload; its jobs may be in any order.

        Raises:
            WorkloadError
        """
        ...


def load(
    name_or_path: str,
    *,
    seed: int = 0,
    load: float = 1.0,
    jobs: int | None = None,
    skip_bad: bool = False,
    data: Path | None = None,
) -> Workload:
    """The workload of that name: a path, FORMAT:PATH, gen:NAME, or a small one of our own; options behind a `?`.

    Jobs come in order of submission, the first at its own time. Under `load` X they arrive X times as fast; deadlines
    move with their jobs. `jobs`: so many, the first ones of a file. `data`: the folder with measured profiles.

    Raises:
        WorkloadError: naming file, line, column and reason
    """
    if not 1e-6 <= load <= 1e6:
        raise WorkloadError(f"a load of {load:g} is out of range: give one from 1e-6 to 1e6")
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise WorkloadError(f"{jobs} jobs are out of range: give 1 to {MOST_JOBS}")
    if seed < 0:
        raise WorkloadError(f"the seed {seed} is negative: give 0 or more")
    source, path, options = _source(name_or_path)
    job_options = _JobOptions.of(options)
    request = WorkloadRequest(options, seed, path, jobs, skip_bad, data)
    made = source.workload(request)
    options.done()
    if not made.jobs:
        bad = f": {made.skipped} rows cannot be used, and without --skip-bad the first says why" if made.skipped else ""
        raise WorkloadError(f"{quoted(name_or_path)}: no job is left in it{bad}")
    ordered = sorted(made.jobs, key=lambda job: job.submit)[:jobs]
    return at_load(replace(made, jobs=tuple(map(job_options.applied, ordered))), load)


def at_load(workload: Workload, load: float) -> Workload:
    """The same jobs, arriving `load` times as fast; deadlines move with them."""
    return workload if load == 1 else replace(workload, jobs=tuple(_at_load(job, load) for job in workload.jobs))


def is_workload(name: str) -> bool:
    """Whether the name says that it is a workload, or the file's first lines do; SWF is a log as well."""
    scheme, colon, _ = name.partition(":")
    if colon and (scheme == "gen" or scheme in FORMATS):
        return scheme != "swf"
    try:
        return _format(Path(name)) != "swf"
    except WorkloadError:
        return name in packaged()


def packaged() -> tuple[str, ...]:
    """The names of the small workloads that come with slurmplug."""
    return tuple(sorted(path.stem for path in PACKAGED.glob("*.csv") if path.stem.isidentifier()))


def _at_load(job: SimJob, load: float) -> SimJob:
    submit = job.submit / load
    return replace(job, submit=submit, deadline=job.deadline - job.submit + submit)


@dataclass(frozen=True)
class _JobOptions:
    """Options that every workload has: fields of each job that are set whatever was read."""

    fields: Mapping[str, float]

    @classmethod
    def of(cls, options: Options) -> "_JobOptions":
        given = {
            name: options.number(name, -1, most=1e9)
            for name in ("runtime_noise", "loss_noise", "restart", "startup", "checkpoint_every")
        }
        return cls({name: value for name, value in given.items() if value >= 0})

    def applied(self, job: SimJob) -> SimJob:
        return replace(job, **self.fields) if self.fields else job  # type: ignore[arg-type]


def _source(name: str) -> tuple[Source, Path, Options]:
    scheme, colon, rest = name.partition(":")
    plain, _, query = (rest if colon else name).partition("?")
    if scheme == "gen" and colon:
        if plain not in GENERATORS:
            raise WorkloadError(f"no generator {quoted(plain)}; there are {', '.join(GENERATORS)}")
        return _module(GENERATORS[plain]), Path(), Options(query, name)
    if colon and scheme in FORMATS:
        return _module(FORMATS[scheme]), Path(plain), Options(query, name)
    whole = Path(name)
    path, options = (
        (whole, Options("", name)) if whole.is_file() else (Path(name.partition("?")[0]), Options(query, name))
    )
    if str(path) in packaged() and not path.exists():
        path = PACKAGED / f"{path.name}.csv"
    return _module(FORMATS[_format(path)]), path, options


def _module(name: str) -> Source:
    source: Source = import_module(name)
    return source


_HEADINGS: tuple[tuple[str, frozenset[str]], ...] = (
    ("csv", frozenset({"name", "submit", "gpus", "iterations", "speed"})),
    ("pollux", frozenset({"time", "name", "application", "num_replicas", "batch_size"})),
    ("philly", frozenset({"num_gpus", "submit_s", "duration_s"})),
    ("elasticflow", frozenset({"submit_time", "model_name", "ddl", "batch_size", "num_gpu", "duration"})),
    ("tiresias", frozenset({"num_gpu", "submit_time", "duration"})),
    ("tiresias", frozenset({"gpu_time_s"})),
    ("ubhpc", frozenset({"submit_s", "run_s", "timelimit_s", "gpus_per_node"})),
)


def _format(path: Path) -> str:
    """The format that the first lines show.

    Raises:
        WorkloadError
    """
    if not path.exists():
        raise WorkloadError(f"no workload {quoted(str(path))}: name a file, {_known_names()}")
    with open_lines(path) as lines:
        first = next(_content_lines(lines), "")
    if first.startswith("-dt "):
        return "ubhpc"
    if "|" in first:
        return "sacct"
    names = {word.strip() for word in first.split(",")}
    for format_, needed in _HEADINGS:
        if needed <= names:
            return format_
    if first.startswith(";") or (first and all(as_number(word) is not None for word in first.split())):
        return "swf"
    raise WorkloadError(f"{path}: unknown format; name it by {', '.join(f'{each}:' for each in FORMATS)}")


def _content_lines(lines: Iterator[str]) -> Iterator[str]:
    return (line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _known_names() -> str:
    ours = packaged()
    return f"gen:{'|'.join(GENERATORS)}" + (f", or one of {', '.join(ours)}" if ours else "")
