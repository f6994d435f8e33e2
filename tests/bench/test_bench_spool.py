"""What one cycle's reading costs beside users who write very much, and where an honest line goes."""

import os
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from slurmplug.ledger.lock import only_one
from slurmplug.spool.folder import SpoolFolder
from slurmplug.spool.process import SpoolProcess
from slurmplug.spool.report_lines import fold
from slurmplug.spool.values import Points, RunId

LINE = b'{"time":1800000000.125,"iteration":7,"loss":0.25,"accuracy":0.5}\n'
HONEST = RunId(641, 0)
OWNERS = {RunId(job, 0): 3_000 + job % 8 for job in range(1, 641)} | {HONEST: 2_000}
WRITES = {"one line": LINE, "2000 lines": LINE * 2_000, "64 KiB of junk": b'"\n' * (1 << 15)}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "reports").mkdir()
    (tmp_path / "requests").mkdir()
    return tmp_path


def append(spool: Path, run: RunId, data: bytes) -> None:
    path = spool / "reports" / f"{run.job_id}.0.jsonl"
    with path.open("ab") as file:
        file.write(data)
    os.chown(path, OWNERS[run], OWNERS[run])


@pytest.mark.parametrize("written", WRITES)
def test_an_honest_line_beside_640_files_that_grow(benchmark: BenchmarkFixture, spool: Path, written: str) -> None:
    """Reading, and taking what was read into points, as one cycle does."""
    reader = SpoolFolder(spool)
    cycles = []

    def grow() -> None:
        for run in OWNERS:
            append(spool, run, LINE if run == HONEST else WRITES[written])

    def cycle() -> None:
        found = reader.read(OWNERS).lines
        for data in found.values():
            fold(Points(), data, now=1.9e9)
        cycles.append(HONEST in found)

    benchmark.pedantic(cycle, setup=grow, rounds=4)
    benchmark.extra_info["cycles with the honest line"] = f"{sum(cycles)} of {len(cycles)}"


def test_a_cycle_over_10000_runs_in_the_process(benchmark: BenchmarkFixture, spool: Path) -> None:
    owners = {RunId(job, 0): os.getuid() for job in range(1, 10_001)}
    started = dict.fromkeys(owners, 0.0)
    for run in owners:
        (spool / "reports" / f"{run.job_id}.0.jsonl").write_bytes(LINE)
    process = SpoolProcess(spool, only_one)
    process.begin()
    process.read(owners, started)
    assert not benchmark.pedantic(process.read, args=(owners, started), rounds=5).faults
    process.close()
