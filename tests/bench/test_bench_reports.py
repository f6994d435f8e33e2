"""CPU time of the reports at 10,000 jobs, from the ledger and through the endpoint: the command's and the endpoint's.

    pytest tests/bench/test_bench_reports.py --benchmark-only --benchmark-columns=median,iqr,rounds

A tenth of the jobs run and have reported 50 times, a third has directives. MUNGE is a script that believes everybody.
What sacct and sprio take themselves is not in it, as they are not called: no job was cancelled, and there is no sprio.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from slurmplug.daemon.queue_forecasting import of_last_queue
from slurmplug.ledger import queue_forecasts
from tests.bench.test_bench_endpoint import serving
from tests.ledgers import Site

JOBS = int(os.environ.get("JOBS", "10000"))
SCRIPT = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --max-iterations=100 --deadline=3h\ntrain\n"
MUNGE = """#!/bin/sh
printf 'MUNGE:%s:\\n' "$({ printf '0:'; cat; } | base64 -w0)"
"""
REPORTS = (
    "queue", "queue --json", "queue -o %i%j%T", "queue -j 5", "prio", "prio -j 5", "acct -a -S uts1000000000",
    "acct -j 5", "why 5",
)  # fmt: skip
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as one:
        for number in range(JOBS):
            script = SCRIPT if number % 3 == 0 else b"#!/bin/sh\ntrain\n"
            one.cluster.submit(script, uid=3000 + number % 40, user=f"user{number % 40}", name=f"train-{number % 7}")
        one.cycle()
        running = list(one.cluster.jobs)[: JOBS // 10]
        for job in running:
            one.cluster.start(job)
        one.cycle()
        for job in running:
            for iteration in range(1, 51):
                one.cluster.say(job, iteration=iteration, accuracy=0.5 + iteration / 200, loss=1 / iteration)
        one.cycle(2)
        if made := of_last_queue(one.ledger):
            queue_forecasts.keep(one.ledger, made)
        yield one


@pytest.fixture(scope="module")
def configs(site: Site) -> Iterator[dict[str, Path]]:
    """Configurations of the controller, and of a login node."""
    folder = site.path.parent
    with serving(site, munge=MUNGE) as port:
        here, there = folder / "here.toml", folder / "there.toml"
        here.write_text(f'[slurm]\nbin = "{folder}"\n[ledger]\npath = "{site.path}"\n')
        there.write_text(
            f'[slurm]\nbin = "{folder}"\n[ledger]\npath = "{folder}/not/here.db"\n'
            f'[endpoint]\nurl = "http://127.0.0.1:{port}"\n'
        )
        yield {"ledger": here, "endpoint": there}


def cpu_seconds() -> float:
    """Those of the children of this process that have ended, and of all that descends from it and lives."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS

    def descends(pid: int) -> bool:
        return parents.get(pid) == os.getpid() or (pid in parents and descends(parents[pid]))

    return ended.ru_utime + ended.ru_stime + sum(seconds for pid, seconds in used.items() if descends(pid))


@pytest.mark.benchmark(timer=cpu_seconds)
@pytest.mark.parametrize("source", ["ledger", "endpoint"])
@pytest.mark.parametrize("report", REPORTS)
def test_report(benchmark: BenchmarkFixture, configs: dict[str, Path], report: str, source: str) -> None:
    name, *options = report.split()
    command = [str(Path(sys.executable).with_name("slurmplug")), name, "--config", str(configs[source]), *options]

    def run() -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
