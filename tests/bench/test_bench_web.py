"""CPU time of each web page at 100,000 ended jobs and 1,000 live ones: no page is to take more than 0.3 s.

    pytest tests/bench/test_bench_web.py --benchmark-only --benchmark-columns=median,iqr,rounds

The ledger has what real cycles wrote of 200 jobs, again and again with other ids and times, spread over 60 days: each
has reported 20 times, and a tenth was stopped. What was decided and done of them is there, too, and 43,200 cycles.
"""

import os
import time
from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.ledgers import Site
from tests.web_site import WebSite, visited

JOBS = int(os.environ.get("JOBS", "100000"))
REAL, LIVE, CYCLES = 200, 1_000, 43_200
SPREAD = 60 * 86_400.0
TARGET = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=40 --type=digits\ntrain\n"
PLAIN = b"#!/bin/sh\n#PLUG --max-iterations=20 --type=digits\ntrain\n"
PAGES = (
    "/", "/?from=800", "/job?id={stopped}", "/job?id={live}", "/nodes", "/nodes?last=week", "/load", "/load?last=month",
    "/savings", "/forecasts",
)  # fmt: skip


def end_some(site: Site) -> None:
    """REAL jobs that have ended: of ten one was stopped at its target, and the others did all their iterations."""
    jobs = [site.cluster.submit(PLAIN if n % 10 else TARGET, user=f"user{n % 10}", gpus=4) for n in range(REAL)]
    site.cycle()
    for number, job in enumerate(jobs):
        site.cluster.start(job, f"n{number % 50 + 1}")
    site.cycle()
    runs = list(jobs)
    for iteration in range(1, 21):
        site.cluster.time += 60.0
        for job in runs:
            site.cluster.say(job, iteration=iteration, accuracy=0.5 + iteration / 40, loss=1 / iteration)
        if iteration % 2 == 0:
            site.cycle()
        for job in filter(site.cluster.asked, list(runs)):
            site.cluster.end(job)
            runs.remove(job)
    for job in runs:
        site.cluster.end(job)
    site.cycle(2)
    for job in jobs:
        site.cluster.purge(job)
    site.cycle(2)


def multiply(site: Site) -> None:
    """The jobs that have ended, and all that hangs on them, as often as makes JOBS, at times before."""
    db, times = site.ledger.db, JOBS // REAL

    def columns(table: str) -> list[str]:
        return [row[1] for row in db.execute(f"PRAGMA table_info({table})").fetchall()]

    def copies(table: str, changed: dict[str, str]) -> str:
        names = columns(table)
        values = ", ".join(changed.get(name, f'"{name}"') for name in names)
        return f"INSERT INTO {table} SELECT {values} FROM {table} WHERE {{which}}"

    first, most = db.execute("SELECT min(id), max(id) FROM jobs").fetchone()
    of_job = {"job": "job + :rows"}
    with db:
        for number in range(1, times):
            given = {"rows": 1_000_000 + number * REAL, "back": SPREAD * number / times, "suffix": f"-{number}"}
            shifted = ("submit", "eligible", "start", "end", "last_seen", "first_seen", "foreseen_at")
            moved = {name: f'"{name}" - :back' for name in shifted}
            ids = {
                "id": "id + :rows",
                "job_id": "job_id + :rows",
                "first_submit": "first_submit - CAST(:back AS INTEGER)",
            }
            for table, changed in (
                ("jobs", {**moved, **ids}),
                ("progress", {**of_job, "time": "time - :back"}),
                ("operations", {**of_job, "id": "id || :suffix", "opened": "opened - :back", "since": "since - :back"}),
                ("decisions", {**of_job, "first": "first - :back", "last": "last - :back"}),
            ):
                key = "id" if table == "jobs" else "job"
                sql = copies(table, changed).format(which=f"{key} BETWEEN {first} AND {most}")
                db.execute(sql, given)
        began = db.execute("SELECT min(started) FROM cycles").fetchone()[0]
        cycles = [(-number, began - 60.0 * number, number % 900, number % 70) for number in range(1, CYCLES)]
        db.executemany("INSERT INTO cycles (id, started, jobs, pending, running) VALUES (?, ?, 1000, ?, ?)", cycles)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    with visited(tmp_path_factory.mktemp("site")) as one:
        site = one.site
        end_some(site)
        multiply(site)
        live = [site.cluster.submit(PLAIN if n % 3 else TARGET, user=f"user{n % 10}") for n in range(LIVE)]
        site.cycle()
        for number, job in enumerate(live[:200]):
            site.cluster.start(job, f"n{number % 50 + 1}")
            for iteration in range(1, 11):
                site.cluster.say(job, iteration=iteration, accuracy=0.5 + iteration / 40, loss=1 / iteration)
        site.cycle(2)
        yield one


def test_the_ledger_is_as_large_as_it_says(web: WebSite) -> None:
    counts = web.site.ledger.query("SELECT count(*) AS n FROM jobs WHERE ended = 1")[0]["n"]
    stops = web.site.ledger.query("SELECT count(*) AS n FROM stops")[0]["n"]
    assert (counts, stops) == (JOBS, JOBS // 10)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("path", PAGES)
def test_page(benchmark: BenchmarkFixture, web: WebSite, path: str) -> None:
    live = web.site.ledger.query("SELECT max(job_id) AS n FROM jobs WHERE ended = 0 AND state = 'RUNNING'")[0]["n"]
    stopped = web.site.ledger.query("SELECT max(job_id) AS n FROM jobs JOIN stops ON job = id")[0]["n"]
    where = path.format(live=live, stopped=stopped)
    while "being computed" in web.page(where):
        time.sleep(1.0)
    page = benchmark.pedantic(lambda: web.page(where), rounds=10, warmup_rounds=1)
    assert "<h1>" in page
