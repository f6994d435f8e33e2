"""Writes operations-0d56d77.sql.gz: a ledger with an open operation at each step, and the cluster that belongs to it.

It was made with the code of commit 0d56d77, whose ledgers have schema version 3:

    git worktree add --detach ../at-0d56d77 0d56d77
    PYTHONPATH=../at-0d56d77 python tests/data/make_operations_ledger.py tests/data/operations-0d56d77.sql.gz

Each job is named after its operation and the step at which that is open, or after how it ended.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.moving import ADMITTED, ELASTIC, SIGNALLED, MovingSite

CYCLES = 24
NODES = 40
HELD = {"priority": 0.0, "reason": "JobHeldUser"}
GROW, MOVE, PREEMPT, STOP = ({"kind": "resize", "gpus": 4}, {"kind": "migrate"}, {"kind": "preempt"}, {"kind": "stop"})
LIMITS = dict.fromkeys(("requeues_per_cycle", "requeues_per_hour", "requeues_per_user"), 1000)
TABLE = "CREATE TABLE fixture_cluster (state TEXT NOT NULL)"
"""Beside the ledger's own tables: the state of tests.fake_cluster.FakeCluster."""


@dataclass(frozen=True)
class Scenario:
    """A job that runs, what the policy wants of it, in which cycle, and what the job does so many cycles later."""

    name: str
    action: Mapping[str, Any]
    begin: int
    events: Mapping[int, str]
    script: bytes = ELASTIC


SAVES = {1: "saves"}
STARTS = {**SAVES, 6: "starts"}
SCENARIOS = (
    Scenario("stop-ask", STOP, CYCLES, {}),
    Scenario("stop-signal", STOP, CYCLES - 10, {}, SIGNALLED),
    Scenario("stop-cancel", STOP, CYCLES - 10, {}),
    Scenario("stop-stopped", STOP, 6, {2: "ends"}),
    Scenario("stop-cancelled", STOP, 6, {}),
    Scenario("stop-gave-up", STOP, 1, {}),
    Scenario("resize-save", GROW, CYCLES, {}),
    Scenario("resize-signal", GROW, CYCLES, {}, SIGNALLED),
    Scenario("resize-reserve", GROW, CYCLES - 1, SAVES),
    Scenario("resize-requeue", GROW, CYCLES - 2, SAVES),
    Scenario("resize-settle", GROW, CYCLES - 3, SAVES),
    Scenario("resize-rewrite", GROW, CYCLES - 4, SAVES),
    Scenario("resize-confirm", GROW, CYCLES - 5, SAVES),
    Scenario("resize-undo", GROW, CYCLES - 6, {**SAVES, 6: "is held"}),
    Scenario("resize-free", GROW, CYCLES - 6, STARTS),
    Scenario("resize-unreserve", GROW, CYCLES - 7, STARTS),
    Scenario("resize-withdraw", GROW, CYCLES - 8, STARTS),
    Scenario("resize-watch", GROW, CYCLES - 9, STARTS),
    Scenario("resize-done", GROW, CYCLES - 12, {**STARTS, 10: "goes on"}),
    Scenario("resize-lost", GROW, CYCLES - 12, {**STARTS, 10: "begins again"}),
    Scenario("resize-gave-up", GROW, 1, {}),
    Scenario("resize-withdrawn", GROW, CYCLES - 6, {**SAVES, 4: "is held"}),
    Scenario("resize-requeued", GROW, CYCLES - 6, {1: "is requeued"}),
    Scenario("resize-ended", GROW, CYCLES - 6, {1: "ends"}),
    Scenario("migrate-save", MOVE, CYCLES, {}),
    Scenario("migrate-reserve", MOVE, CYCLES - 1, SAVES),
    Scenario("migrate-confirm", MOVE, CYCLES - 5, SAVES),
    Scenario("migrate-watch", MOVE, CYCLES - 9, STARTS),
    Scenario("migrate-bound", MOVE, CYCLES - 12, {**STARTS, 10: "goes on"}),
    Scenario("migrate-lift", MOVE, CYCLES - 12, {**STARTS, 10: "goes on", 12: "is requeued"}),
    Scenario("preempt-save", PREEMPT, CYCLES, {}),
    Scenario("preempt-requeue", PREEMPT, CYCLES - 1, SAVES),
)


def made(path: Path) -> MovingSite:
    """The site after the last cycle."""
    site = MovingSite(path, nodes=NODES, guardrails=LIMITS)
    jobs = {scenario.name: site.training(scenario.script, name=scenario.name) for scenario in SCENARIOS}
    for number, job in enumerate(jobs.values(), 1):
        site.cluster.jobs[job]["node_list"] = f"n{number}"
    waiting = site.cluster.submit(ELASTIC, gpus=2, name="resize-waiting", eligible=1e12)
    for name in ("release-rewrite", "release-release"):
        jobs[name] = site.cluster.submit(ADMITTED, name=name, gpus=1, **HELD)
    for cycle in range(1, CYCLES + 1):
        # Requests are refused at first, so that two operations are given up after five tries.
        site.cluster.refuse = frozenset({"ask"}) if cycle <= 5 else frozenset()
        site.policy.wanted = {
            jobs[scenario.name]: dict(scenario.action) for scenario in SCENARIOS if scenario.begin == cycle
        }
        for scenario in SCENARIOS:
            if cycle - scenario.begin in scenario.events:
                happens(site, jobs[scenario.name], scenario.events[cycle - scenario.begin])
        if cycle == CYCLES:
            site.cluster.submit(ADMITTED, name="hold-hold", **HELD)
            site.policy.wanted |= {
                waiting: {"kind": "resize", "gpus": 1},
                jobs["release-rewrite"]: {"kind": "release", "gpus": 2},
                jobs["release-release"]: {"kind": "release"},
            }
        site.cycle()
    return site


def happens(site: MovingSite, job: int, event: str) -> None:
    """Before a cycle, on the cluster."""
    cluster = site.cluster
    if event == "saves":
        site.saves(job)
    elif event == "starts":
        [place] = [each.nodes for each in cluster.reservations if each.name == cluster.jobs[job]["reservation"]]
        cluster.start(job, ",".join(sorted(place)))
    elif event == "goes on":
        site.trains(job, 6)
    elif event == "begins again":
        site.trains(job, 1)
    elif event == "is held":
        cluster.jobs[job] |= HELD
    elif event == "is requeued":
        cluster.requeue(job)
    else:
        cluster.end(job)


def state(site: MovingSite) -> dict[str, Any]:
    """What `FakeCluster` needs to go on from here."""
    cluster = site.cluster
    return {
        "time": cluster.time,
        "nodes": NODES,
        "jobs": list(cluster.jobs.values()),
        "scripts": {job: script.decode() for job, script in cluster.scripts.items()},
        "reservations": [
            {name: sorted(value) if isinstance(value, frozenset) else value for name, value in asdict(each).items()}
            for each in cluster.reservations
        ],
        "requests": sorted(cluster.requests),
    }


def dump(site: MovingSite) -> Iterator[str]:
    """The ledger as SQL, without the inputs of its cycles, which are the larger part."""
    connection = site.ledger.db
    connection.execute("UPDATE cycles SET inputs = NULL")
    connection.execute(TABLE)
    connection.execute("INSERT INTO fixture_cluster VALUES (?)", [json.dumps(state(site))])
    connection.commit()
    yield from connection.iterdump()
    yield f"PRAGMA user_version = {connection.execute('PRAGMA user_version').fetchone()[0]};"


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        site = made(Path(folder) / "ledger.db")
        with gzip.GzipFile(sys.argv[1], "wb", mtime=0) as file:
            file.write("\n".join(dump(site)).encode())
        for row in site.ledger.query("SELECT name, kind, step, result FROM operations JOIN jobs ON jobs.id = job"):
            print("{name:18} {kind:8} {step:10} {result}".format(**row))
        site.ledger.close()
