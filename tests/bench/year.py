"""How large the ledger becomes in a year: `python -m tests.bench.year`.

Two ledgers are filled by real cycles, with the upkeep of the daemon, and measured table by table, with their indexes
(dbstat): one by the jobs of 40 days of a fiftieth of the site, in few cycles, and one by an eighth of a day of cycles,
each 10 s, of a twentieth of it. What grows with jobs is taken from the first, what grows with cycles from the second.

The site: 1,000 GPUs, 500 jobs that run and 500 that wait, 1,000 jobs a day with 200 reports of two quantities each, and
commands in every cycle.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from slurmplug.ledger import budgets
from slurmplug.ledger.budgets import DAY
from tests.ledgers import Site

KEEP_DAYS, KEEP_INPUTS_DAYS = 400.0, 14.0
A_DAY, AT_A_TIME = 1_000, 1_000
"""Jobs that end in a day, and that run or wait."""
YEAR_SHARE, DAY_SHARE, PART_OF_DAY = 50, 20, 8
OF_JOBS = ("jobs", "progress", "progress_size", "decisions", "operations", "steps", "faults")


def tables(site: Site) -> Counter[str]:
    """The bytes of each table with its indexes."""
    site.ledger.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sql = "SELECT tbl_name AS name, sum(pgsize) AS bytes FROM dbstat JOIN sqlite_master USING (name) GROUP BY 1"
    return Counter({row["name"]: row["bytes"] for row in site.ledger.query(sql)})


def upkeep(site: Site) -> None:
    site.ledger.thin(site.cluster.time)
    site.ledger.delete_old(site.cluster.time, KEEP_DAYS, KEEP_INPUTS_DAYS)


def of_a_year(folder: Path, days: int) -> Counter[str]:
    """What the jobs of so many days leave."""
    with Site(folder) as site:
        for day in range(days):
            jobs = [
                site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={n % 10}\n".encode(), user=f"user{n % 10}")
                for n in range(A_DAY // YEAR_SHARE)
            ]
            site.cycle()
            for job in jobs:
                site.cluster.start(job)
            for part in range(4):
                values = {at: 0.0123456789012345 * at for at in range(50 * part + 1, 50 * part + 51)}
                for job in jobs:
                    site.train(job, values, loss=1.2345678901234567 / (part + 1))
                site.cycle()
            for job in jobs:
                site.cluster.end(job)
            site.cycle()
            for job in jobs:
                site.cluster.purge(job)
            site.cycle()
            site.cluster.time = max(site.cluster.time, (day + 1) * DAY)
            site.cluster.time += DAY - site.cluster.time % DAY
            upkeep(site)
        return tables(site)


def of_a_day(folder: Path, cycles: int) -> tuple[Counter[str], Mapping[str, float]]:
    """What so many cycles with commands leave; and the bytes of their inputs, those stored whole and the others."""
    with Site(folder) as site:
        for number in range(AT_A_TIME // DAY_SHARE):
            job = site.cluster.submit(f"#!/bin/sh\n#PLUG --urgency={number % 10}\n".encode(), user=f"user{number % 10}")
            if number % 2:
                site.cluster.start(job)
                site.train(job, {at: 0.01 * at for at in range(1, 6)})
        for number in range(cycles):
            newest = site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=9\n", priority=1.0)
            site.cycle(seconds=10.0)
            site.cluster.end(newest, "CANCELLED")
            if number % 360 == 359:
                upkeep(site)
        sql = (
            "SELECT inputs_base IS NULL AS whole, sum(length(inputs)) AS n FROM cycles WHERE inputs NOT NULL GROUP BY 1"
        )
        sizes = {("differences", "whole")[row["whole"]]: row["n"] for row in site.ledger.query(sql)}
        return tables(site), sizes


def main() -> None:
    """Print the MiB of each table after a year."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        jobs = of_a_year(Path(one), options.days)
        cycles, inputs = of_a_day(Path(other), round(DAY / 10 / PART_OF_DAY))
    year = {name: jobs[name] * YEAR_SHARE * KEEP_DAYS / options.days for name in OF_JOBS}
    year["progress"] = min(year["progress"], budgets.POINTS)
    month = PART_OF_DAY * budgets.COMMANDS_KEPT / DAY
    rows = cycles["cycles"] - sum(inputs.values())
    year["cycles"] = rows * month
    year["commands"] = cycles["commands"] * month
    kept = inputs["differences"] + inputs["whole"] * KEEP_INPUTS_DAYS
    year["cycles.inputs"] = min(kept * PART_OF_DAY * DAY_SHARE, budgets.INPUTS)
    for name, size in sorted(year.items(), key=lambda each: -each[1]):
        print(f"{name:14} {size / 2**20:8.0f} MiB")
    print(f"{'all':14} {sum(year.values()) / 2**30:8.2f} GiB")


if __name__ == "__main__":
    main()
