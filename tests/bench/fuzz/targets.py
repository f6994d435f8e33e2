"""Every parser of what is not slurmplug's own, with valid inputs, its words, and the errors that it declares."""

import gzip
import io
import json
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from policies.model import Model
from slurmplug.cluster import hostlist, parse, site_client, tres
from slurmplug.cluster.parse import Separators
from slurmplug.config import model_files, schema
from slurmplug.config.schema import Config
from slurmplug.directives.grammar import TABLE
from slurmplug.directives.parser import parse_change
from slurmplug.endpoint import answers, wire
from slurmplug.errors import ConfigError, DataError, EndpointError, ReadFailed, UsageError
from slurmplug.ledger import codec, differences
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports.service import LedgerReports
from slurmplug.spool import json_lines, run_files
from slurmplug.spool.report_lines import fold
from slurmplug.spool.values import Points
from tests.bench.test_bench_read import squeue as made_up_squeue
from tests.builders import NOW
from tests.unit.directives.test_submit_check import INTERPRETERS, VALUES, Lua, expected

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
MARKED = Separators("fMARKED", "rMARKED")
NEXT = b"\x1cNEXT\x1c"
"""between the parts of an input of several"""
FEW = 3
"""records of one sample: what parses in a moment is tried more often"""
MARKS = (b"fMARKED", b"rMARKED\n", b"N/A", b"(null)", b"UNLIMITED", b"1-02:03:04", b"gres/gpu:a100=2", b"mem=4G")


@dataclass(frozen=True)
class Target:
    """A parser. `of`: what it is given; `declared`: the errors that its docstring names."""

    name: str
    of: Callable[[bytes], object]
    samples: Sequence[bytes]
    words: Sequence[bytes] = ()
    declared: tuple[type[Exception], ...] = ()


def targets(resources: ExitStack) -> list[Target]:
    """All of them; what they hold is released by `resources`."""
    return [*_of_slurm(), *_of_jobs(resources), *_of_endpoint(resources), *_of_disk()]


# --- what Slurm's clients print ---------------------------------------------------------------------------------------


def recorded(name: str) -> list[bytes]:
    """An answer of each release."""
    return [path.read_bytes() for path in sorted(DATA.glob(f"slurm-*/{name}.txt"))]


def pieces(texts: Sequence[bytes], end: bytes) -> list[bytes]:
    """Some records of each."""
    found = []
    for text in texts:
        records = text.split(end)[:-1]
        found += [b"".join(record + end for record in records[at : at + FEW]) for at in range(0, len(records), FEW)]
    return found


def text(data: bytes) -> str:
    """As the clients' answers are decoded."""
    return data.decode("utf-8", "replace")


def parts(data: bytes, count: int) -> list[str]:
    """An input of several."""
    return [text(part) for part in [*data.split(NEXT), *[b""] * count][:count]]


def _twice(data: bytes) -> None:
    """Of two queues by one reader, the second one as if it were alone."""
    first, second = parts(data, 2)
    reader = parse.QueueReader(MARKED)
    with suppress(ReadFailed):
        reader.read(first, NOW)
    found, alone = reader.read(second, NOW), parse.queue(second, MARKED, NOW)
    if found.rows.job_id.tolist() != alone.rows.job_id.tolist() or found.addresses != alone.addresses:
        raise AssertionError("what was read before changes what is read")


def _requests(data: bytes) -> None:
    printed, lists, shown = parts(data, 3)
    parse.resource_requests(printed, lists, dict.fromkeys(range(10), shown), MARKED)
    parse.addresses(printed, MARKED)


def _tres(data: bytes) -> None:
    word = text(data)
    tres.gpus(word), tres.shards(word), tres.sharded_gpus(word), tres.is_mig(word), tres.total_gpus(word)
    tres.nodes(word), tres.memory(word)


def _facts(data: bytes) -> None:
    word = text(data)
    site_client.parse_slurm_conf(word), site_client.parse_admin_levels(word), site_client.parse_controllers(word)
    site_client.parse_private_data([word])


def _of_slurm() -> Iterator[Target]:
    failed = (ReadFailed,)
    ends = MARKED.record.encode() + b"\n"
    queues = pieces(recorded("squeue"), ends)
    twice = [a + NEXT + b for a, b in zip(queues, [*queues[1:], queues[0]], strict=True)]
    yield Target("squeue", _twice, [*twice, made_up_squeue(4).encode()], MARKS, failed)
    yield Target("sinfo", lambda data: parse.nodes(text(data), MARKED), pieces(recorded("sinfo"), ends), MARKS, failed)
    yield Target(
        "reservations",
        lambda data: parse.reservations(text(data)),
        recorded("reservations"),
        (b"ReservationName=", b" StartTime=1795249517", b" Nodes=n[1-3]", b" Flags=", b" Users=-a"),
        failed,
    )
    config = recorded("config")
    lines = [b"\n".join(line for line in each.splitlines() if _is_read(line)) + b"\n" for each in config]
    yield Target("config", lambda data: parse.site(text(data)), lines, (b" = ", b"SLURM_VERSION", b"priority/"), failed)
    yield Target("facts", _facts, [*lines, b"Slurmctld(primary) at host is UP\n", b"ada|Operator\n"], (b" = ", b"|"))
    yield Target("sacct", lambda data: parse.endings(text(data)), recorded("sacct"), (b"COMPLETED", b"|0:9|"), failed)
    sprio = [b"7 100 0.0002\n8 0 0.1\n", b"9 1073741824 1.0000\n"]
    yield Target("sprio", lambda data: parse.site_factors(text(data)), sprio, (), failed)
    identities = [_row(parse.RUN_IDENTITY_FIELDS, "7", "1000", "1795249517", "0")]
    yield Target("runs", lambda data: parse.run_identities(text(data), MARKED), identities, MARKS, failed)
    request = _row(
        parse.RESOURCE_REQUEST_FIELDS,
        *"7 7_1 2 4 cpu=4,mem=100M,node=2 N/A (null) gres/gpu:a100:2 N/A N/A N/A".split(),
        *"4 2 1 1 100M N/A N/A 1 1-00:00:00 0 PENDING".split(),
    )
    shown = b"JobId=7 NumNodes=2-2 NtasksPerTRES:0 MinMemoryNode=100M"
    yield Target("requests", _requests, [request + NEXT + b"7 n1 n[2-3]\n" + NEXT + shown], MARKS, failed)
    limits = [
        b"normal|gres/gpu=4,mem=1T|||cpu=4|1-00:00:00|8|2||OverPartQOS\n",
        b"vision|ada||gres/gpu=8||1:00:00|root|4|2|normal\n",
        b"PartitionName=gpu QoS=N/A MaxTime=1-00:00:00 Nodes=n[1-4]\n",
    ]
    sample, words = NEXT.join(limits), (b"gres/gpu=", b"|", b"=-1")
    yield Target("limits", lambda data: parse.limits(*parts(data, 3)), [sample], words, (ValueError,))
    hosts = [b"n[1-3,07],login", b"r[1-2]n[01-10]-ib,x"]
    marks = (b"[1-", b"]", b",n", b"000")
    yield Target("hostlist", lambda data: hostlist.expand(text(data)), hosts, marks, (ValueError,))
    gres = [
        b"cpu=2,mem=100M,node=2,gres/gpu:a100=2",
        b"gpu:a100:4(IDX:0-1,3),shard:a100:7(4/4,3/4)",
        b"gpu:a100_1g.10gb:1K",
    ]
    yield Target("tres", _tres, gres, (b"gpu:", b"shard:", b"(IDX:", b"gres/gpu=", b"mem=", b"node="), (ValueError,))


def _is_read(line: bytes) -> bool:
    """Whether it is of a setting that slurmplug looks at, or one in eight of the others."""
    return bool(re.match(rb"Priority|Cluster|SLURM|BOOT|Private|Config", line)) or len(line) % 8 == 0


def _row(fields: Sequence[str], *values: str) -> bytes:
    padded = [*values, *["0"] * len(fields)][: len(fields)]
    return (MARKED.field.join(padded) + MARKED.record + "\n").encode()


# --- what jobs and their users write ----------------------------------------------------------------------------------


def _report_lines(data: bytes) -> None:
    points, _ = fold(Points(), data, now=NOW)
    again, _ = fold(points, data, now=NOW, started=NOW - 50)
    if not np.isfinite(again.times).all() or len(again.quantities) > 32:
        raise AssertionError("points that cannot be")
    for line in data.split(b"\n"):
        json_lines.fault_of(line)
        json_lines.time_of(line)
    json_lines.lines_since(data, NOW)


def _names(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    for pattern in (run_files.REPORT_NAME, run_files.REQUEST_NAME):
        run = run_files.run_of(name, pattern)
        if run and not (name.startswith(f"{run.job_id}.{run.restart}.") and 0 < run.job_id < 10**10):
            raise AssertionError(f"{name!r} is not of {run}")


def _submitted(lua: Lua, data: bytes) -> None:
    """What job_submit's check says of a script and a comment, and what the daemon's parser says."""
    script, comment = [*data.split(NEXT), b""][:2]
    says = lua.found(script, comment, int(NOW))
    finds = expected(script, comment, int(NOW))
    if says != finds:
        raise AssertionError(f"job_submit says {says}, the daemon finds {finds}")


def _changed(data: bytes) -> None:
    parse_change(text(data).split("\n"), now=NOW)


def _is_change(data: bytes) -> bool:
    try:
        _changed(data)
    except UsageError:
        return False
    return True


def _of_jobs(resources: ExitStack) -> Iterator[Target]:
    with gzip.open(DATA / "curves.jsonl.gz") as file:
        told = [json.loads(line) for _, line in zip(range(3), file, strict=False)]
    reports = [
        b"".join(
            b'{"time": %f, "iteration": %d, "loss": %f, "accuracy": %f}\n' % (NOW - 9, at, 1 / (at + 1), at / 9)
            for at in range(4)
        ),
        b'{"time": %f, "iteration": 3, "trial": "fold 1", "val_loss": "nan"}\n{"checkpoint": 3, "load": {"gpu": 0.5}}\n'
        % NOW,
        json.dumps(told[0]).encode()[:2000] + b"\n",
    ]
    words = (b'"time": ', b'"iteration": ', b'"trial": ', b'"checkpoint": ', b'"load": ', b'"loss": ', b"}\n{", b"1e12")
    yield Target("report lines", _report_lines, reports, words)
    names = [b"4711.0.0a1b2c.jsonl", b"4711.12.jsonl", b"4711.0.stop", b"4711.3.checkpoint.new"]
    yield Target("report names", _names, names, (b".jsonl", b".new", b".stop", b".notice", b"0.", b"1" * 11))
    settings = [f"--{name}={value}".encode() for name, values in VALUES.items() for value in values]
    grammar = [f"--{row.name}=".encode() for row in TABLE]
    grammar += [b"#PLUG ", b"\n#PLUG ", b"plug: ", b"\n", b">=", b"<=", b"..", b"@", b"tomorrow ", b"T18:00"]
    scripts = [b"#!/bin/sh\n#SBATCH --gres=gpu:1\n#PLUG %s\n#PLUG %s\ntrue\n" % pair for pair in _pairs(settings)]
    samples = [script + NEXT + b"plug: " + b.removeprefix(b"--") for script, b in zip(scripts, settings, strict=False)]
    folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
    lua = Lua(INTERPRETERS[0], folder, "CET-1CEST,M3.5.0,M10.5.0/3")
    resources.enter_context(lua.process)
    yield Target("directives", partial(_submitted, lua), samples, [*settings, *grammar])
    changes = [each for each in settings if _is_change(each)]
    yield Target("changes", _changed, changes, grammar, (UsageError,))


def _pairs(items: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(items, [*items[7:], *items[:7]], strict=True))


# --- the endpoint -----------------------------------------------------------------------------------------------------


def _asks(reports: LedgerReports, data: bytes) -> None:
    """A request's body, of each kind of request."""
    report, _, body = data.partition(b"\n")
    answers.is_later_page(text(report), body)
    answers.answer(text(report), body, reports, NOW)


def _answers(data: bytes) -> None:
    """A daemon's answer, which may be of another release."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return
    for read in (partial(wire.columns, fields=["jobid", "rank"]), wire.explanations, wire.sentences):
        try:
            read(answer)
        except EndpointError:
            continue


def _of_endpoint(resources: ExitStack) -> Iterator[Target]:
    path = Path(resources.enter_context(tempfile.TemporaryDirectory())) / "ledger.db"
    ledger = Ledger(path)
    resources.callback(ledger.close)
    which = b'{"fields": ["jobid"], "jobs": [[7, null], [8, 2]], "users": ["ada"], "states": ["R"], "start": 1.5}'
    asked = [report + b"\n" + which for report in (b"jobs", b"queue")]
    asked += [b'story\n{"job": [7, null]}', b'user\n{"user": "ada"}', b"status\n{}"]
    words = (b'"jobs": ', b'"users": ', b'"start": ', b'"end": ', b'"first": ', b"[7, null]", b"queue\n", b"1e300")
    ask = partial(_asks, LedgerReports(ledger, path, Config()))
    yield Target("requests to the endpoint", ask, asked, words, (UsageError,))
    change = b'{"job": [7, null], "written": ["--urgency=3"], "id": "%s", "cluster": "c"}' % (b"0a" * 16)
    yield Target("changes by the endpoint", answers.change_request, [change], (*words, b'"written": '), (UsageError,))
    given = [b'{"columns": [["7", "8"], [1.5, null]], "more": false}', b'{"changed": ["x"]}']
    yield Target("answers of the endpoint", _answers, given, (b'"explained": ', b'"story": ', *words))


# --- files ------------------------------------------------------------------------------------------------------------


def _members(value: Any) -> list[bytes]:
    """A value of the codec as its skeleton and its arrays, without the archive, which has checksums."""
    skeleton, arrays = codec.parts(value)
    members = [skeleton]
    for array in arrays:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array)
        members.append(buffer.getvalue())
    return [NEXT.join(members), b'{"n": [1, 2.5, null, true]}']


def _zipped(data: bytes) -> bytes:
    """The codec's archive of a skeleton and some members."""
    skeleton, *members = data.split(NEXT)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        written = io.BytesIO()
        np.lib.format.write_array(written, np.frombuffer(skeleton, dtype=np.uint8))
        archive.writestr("skeleton.npy", written.getvalue())
        for at, member in enumerate(members):
            archive.writestr(f"{at}.npy", member)
    return buffer.getvalue()


def _restored(base: bytes, data: bytes) -> None:
    differences.restored(zlib.compress(data, 1), base)


def _of_disk() -> Iterator[Target]:
    filled = (ROOT / "site_config" / "slurmplug.toml").read_text()
    tables = [table.encode() for table in re.split(r"\n(?=# [A-Z].*\n\[)", filled)]
    tables += [
        b'interval = 5.0\n[mode]\ndefault = "act"\n[guardrails]\nexclude_users = ["a"]\n',
        b"[guardrails.urgency_of]\nvision = 3\n[policies.mlfs]\nx = 1\n",
        b'[endpoint]\nlisten = "[::1]:80"\nurl = "http://a:1"\n[log]\nformat = "json"\n',
    ]
    words = [f"{name} = ".encode() for name in Config.settings]
    words += [b"[mode]\n", b"= true\n", b"= []\n", b'= ""\n', b"1979-05-27"]
    yield Target("configuration", lambda data: schema.parse(text(data)), tables, words, (ConfigError,))
    value: Mapping[str, Any] = {"x": np.arange(3), "text": np.array(["a", "b"]), "n": [1, 2.5, None, True]}
    words = [b"@array", b"@texts", b"@rows", b"(99999999999,)", b"|O", b"<U9"]
    words.append(b"{'descr': '<f8', 'fortran_order': False, 'shape': (")
    yield Target("ledger codec", lambda data: codec.loads(_zipped(data)), _members(value), words, (ValueError,))
    words = [b"PK\x03\x04", b"PK\x01\x02"]
    yield Target("ledger codec, bytes", codec.loads, [codec.dumps(value)], words, (ValueError,))
    base = differences.parts(_inputs(0.0, 3), range(3))
    given = differences.parts(_inputs(60.0, 4), (2, 1, 7, 9))
    inputs, stored = zlib.decompress(differences.difference(given, base)), differences.whole(base)
    words = [b'"<f8"', b'"|O"', b"[9999999999]", b"[-1]", b"0.rows", b"0.added", b"@array"]
    restored = partial(_restored, stored)
    yield Target("ledger differences", restored, [inputs], words, (ValueError,))
    words = [b"F32", b"__metadata__"]
    yield Target("model files", lambda data: model_files.parse(data, "m"), [_model()], words, (DataError,))


def _inputs(added: float, n: int) -> Mapping[str, Any]:
    """A value of which a part is the same for any arguments, a part grows, and a part is of jobs."""
    return {
        "same": np.arange(50.0),
        "times": np.arange(float(n)) + added,
        "texts": np.array([f"job {job}" for job in range(n)]),
        "rows": np.arange(2 * n).reshape(n, 2),
        "n": [n, None],
    }


def _model() -> bytes:
    """A small file of a learnt policy's model."""
    shipped = model_files.shipped("dl2")
    assert shipped is not None
    return model_files.encode(Model("dl2", 1, {"w": np.zeros((2, 2), dtype=np.float32)}, shipped.facts))
