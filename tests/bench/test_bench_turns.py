"""What users who write as much as they can into the spool add to a cycle of a large cluster, which comes once a minute.

Between two cycles each adds a line to the report file of each of its jobs, of which 1,000 run:

    JOBS=48000 pytest tests/bench/test_bench_turns.py --benchmark-only --benchmark-columns=median,iqr,rounds
"""

import os
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from slurmplug.cluster.parse import JOB_FIELDS
from slurmplug.spool.folder import SpoolFolder
from slurmplug.spool.report_files import NewReports
from slurmplug.spool.values import RunId
from tests.bench import scale
from tests.bench.made_up_slurm import MadeUpClient
from tests.bench.test_bench_read import made_up_job, record_of
from tests.reading import ReaderOnceAMinute

JOBS = int(os.environ.get("JOBS", "6000"))
WRITERS, HELD = 8, int(os.environ.get("HELD", "1000"))
"""users who write, and jobs of each that run"""
FIRST_UID = 9_000


class WithWriters(MadeUpClient):
    """The made-up cluster, and beside its jobs those of the writers."""

    def __init__(self) -> None:
        super().__init__(JOBS)
        draw = random.Random(8)
        for number in range(WRITERS * HELD):
            job = made_up_job(JOBS + 1 + number, draw)
            uid = str(FIRST_UID + number // HELD)
            state = {"State": "RUNNING", "NodeList": "n1", "UserID": uid, "UserName": f"writer{uid}"}
            began = dict.fromkeys(("SubmitTime", "EligibleTime", "StartTime"), "1700000000")
            self.add(record_of(JOB_FIELDS, job | state | began))


class Cluster:
    """The daemon's cycle, and who writes."""

    def __init__(self, folder: Path) -> None:
        self._reports = folder / "reports"
        self._reports.mkdir()
        (folder / "requests").mkdir()
        self.scheduler = scale.made_up_scheduler(folder, WithWriters())
        spool = SpoolFolder(folder)
        self._reader = ReaderOnceAMinute(folder)
        spool.read = self._read  # type: ignore[assignment]
        self.scheduler.port._spool = spool  # type: ignore[attr-defined]
        self._iteration = 0
        self.read: list[int] = []
        """of how many runs, in each cycle"""
        for _ in range(3):
            self.scheduler.run()

    def _read(self, owners: Mapping[RunId, int], started: Mapping[RunId, float]) -> NewReports:
        """In this process, so that its costs are counted, too."""
        costs = self.scheduler.intake.merge_costs.by_run()  # type: ignore[attr-defined]
        new = self._reader.read(owners, started, merge_costs=costs)
        self.read.append(len(new.lines))
        return new

    def write(self, writers: int, lines: int) -> None:
        """So many users add so many lines to each of their files, each line of another trial."""
        for number in range(writers * HELD):
            path = self._reports / f"{JOBS + 1 + number}.0.jsonl"
            with path.open("ab") as file:
                for at in range(self._iteration, self._iteration + lines):
                    file.write(b'{"iteration":%d,"trial":%d,"loss":0.5}\n' % (at, at))
            os.chown(path, FIRST_UID + number // HELD, -1)
        self._iteration += lines


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = Cluster(tmp_path_factory.mktemp("spool"))
    yield one
    one.scheduler.ledger.close()  # type: ignore[attr-defined]


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("writers", [0, 1, WRITERS])
@pytest.mark.parametrize("lines", [1, 20])
def test_a_cycle_beside_users_who_write(
    benchmark: BenchmarkFixture, cluster: Cluster, writers: int, lines: int
) -> None:
    cluster.read.clear()
    benchmark.pedantic(cluster.scheduler.run, setup=lambda: cluster.write(writers, lines), rounds=4, warmup_rounds=1)
    benchmark.extra_info["runs read"] = list(cluster.read)
