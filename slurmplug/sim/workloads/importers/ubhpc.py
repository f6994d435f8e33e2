"""Events of UB-HPC's Slurm simulator, `-dt SECONDS -e submit_batch_job | OPTIONS`, or the same as a CSV.

Its columns: job_id, submit_s, user, account, partition, qos, nodes, ntasks, gpus_per_node, mem, timelimit_s, run_s.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from slurmplug.cluster import tres
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads.importers.recorded import NAN, RecordedJob, job, parse_duration
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, collect, comma_separated, open_lines, quoted

_COLUMNS = ("job_id", "submit_s", "nodes", "ntasks", "gpus_per_node", "timelimit_s", "run_s")
_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "-dt": "submit_s", "-J": "job_id", "-jid": "job_id", "-sim-walltime": "run_s", "--uid": "user", "-t": "limit",
        "-n": "ntasks", "-N": "nodes", "--ntasks-per-node": "per_node", "-A": "account", "-p": "partition", "-q": "qos",
        "--mem": "mem", "--gres": "gres", "--gpus-per-node": "gpus_per_node",
    }
)  # fmt: skip
"""the options of an event, by the column of the CSV"""
_MEMORY = re.compile(r"(\d{1,12})([KMGT]?)", re.ASCII)
_MIB: Mapping[str, float] = MappingProxyType({"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2})


def workload(request: WorkloadRequest) -> Workload:
    """Jobs with GPUs; `?cpu_jobs=on` those of CPUs alone too. Jobs that take no time are left out.

    Raises:
        WorkloadError
    """
    wants_all = request.options.text("cpu_jobs", "off", ("off", "on")) == "on"

    def read(row: Row) -> SimJob | None:
        made = _job(row)
        return made if made is None or made.gpus or wants_all else None

    rows = _events(request.path) if _is_events(request.path) else comma_separated(request.path, _COLUMNS)
    jobs, skipped = collect(rows, read, skip_bad=request.skip_bad)
    return Workload(str(request.path), tuple(jobs), skipped=skipped)


def _is_events(path: Path) -> bool:
    with open_lines(path) as lines:
        first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    return first.startswith("-dt")


def _events(path: Path) -> Iterator[Row]:
    with open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                words = shlex.split(line.replace("|", " "), posix=True)
            except ValueError as error:
                yield Row(str(path), number, {}, f"is no event: {error}")
                continue
            if words[0] != "-dt" or "submit_batch_job" not in words:
                yield Row(str(path), number, {}, f"is no event -dt SECONDS -e submit_batch_job: {quoted(line)}")
                continue
            yield Row(str(path), number, _options(words))


def _options(words: list[str]) -> dict[str, str]:
    """The options that are known, written `--name=value` or `-name value`."""
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in _OPTIONS:
            options[_OPTIONS[name]] = value if equals else following
    return options


def _job(row: Row) -> SimJob | None:
    run = row.number("run_s")
    tasks = row.integer("ntasks", 1, least=1, most=10**6)
    nodes = row.integer("nodes", -(-tasks // row.integer("per_node", tasks, least=1)), least=1, most=10**5)
    gpus = nodes * (_gres(row) if row.text("gres", "") else row.integer("gpus_per_node", 0, most=1_000))
    if run <= 0:
        return None
    limit = row.number("timelimit_s", NAN) if row.text("timelimit_s", "") else parse_duration(row, "limit")
    return job(
        RecordedJob(
            name=row.text("job_id", f"line{row.line}"),
            submit=row.number("submit_s"),
            seconds=run,
            gpus=gpus,
            cpus=max(tasks, nodes),
            memory=nodes * _memory(row),
            time_limit=max(limit, run) if limit == limit else NAN,
            user=row.text("user", "user"),
            account=row.text("account", "account"),
            qos=row.text("qos", "normal"),
            partition=row.text("partition", "gpu"),
        )
    )


def _gres(row: Row) -> int:
    text = row.text("gres")
    try:
        gpus = tres.total_gpus(text) or 0
    except ValueError as error:
        raise row.bad("gres", f"{quoted(text)}: {error}") from error
    if not 0 <= gpus <= 1_000:
        raise row.bad("gres", f"{gpus} GPUs a node are out of range")
    return gpus


def _memory(row: Row) -> float:
    """MiB a node."""
    text = row.text("mem", "0")
    match = _MEMORY.fullmatch(text.upper().removesuffix("B"))
    if match is None:
        raise row.bad("mem", f"is not an amount of memory: {quoted(text)}")
    return int(match[1]) * _MIB[match[2]]
