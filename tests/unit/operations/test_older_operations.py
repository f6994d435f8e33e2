"""A ledger of an older release with an operation open at each step is migrated, and each operation comes to its end.

`tests/data/make_operations_ledger.py` says how it was made; each job is named after its operation and step.
"""

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster.port import Reservation
from slurmplug.errors import LedgerError
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.schema import MIGRATIONS
from slurmplug.operations import Operation, OperationOutcome
from slurmplug.operations.values import PendingResizeFacts, RestartFacts
from tests.moving import MovingSite

DUMP = Path(__file__).parents[2] / "data" / "operations-0d56d77.sql.gz"
ENDED = {
    "hold of release-rewrite": "done", "hold of release-release": "done",
    "stop-stopped": "stopped", "stop-cancelled": "cancelled", "stop-gave-up": "gave up",
    "resize-done": "done", "resize-lost": "progress lost", "resize-gave-up": "gave up", "resize-withdrawn": "withdrawn",
    "resize-requeued": "requeued meanwhile", "resize-ended": "ended by itself",
    "resize-undo": "withdrawn", "migrate-bound": "done", "migrate-lift": "done",
}  # fmt: skip
"""The outcomes that were settled before the migration; of all other operations none is."""
RESIZED = [
    f"resize-{step}"
    for step in "save signal reserve requeue settle rewrite confirm free unreserve withdraw watch".split()
]
MIGRATED = [f"migrate-{step}" for step in "save reserve confirm watch bound lift".split()]
PREEMPTED = ["preempt-save", "preempt-requeue"]
RELEASED = ["release-rewrite", "release-release"]
ENDS = {
    **{"stop-ask": "stopped", "stop-signal": "stopped", "stop-cancel": "cancelled"},
    **dict.fromkeys([*RESIZED, *MIGRATED, *PREEMPTED, *RELEASED, "resize-waiting", "hold-hold"], "done"),
    "resize-undo": "withdrawn",
}
"""How the operations end that are open."""
NOT_YET_REQUEUED = {
    "resize-save", "resize-signal", "resize-reserve", "migrate-save", "migrate-reserve", "preempt-save",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The ledger as the older release left it."""
    file = tmp_path / "ledger.db"
    with closing(sqlite3.connect(file)) as db:
        db.executescript(gzip.decompress(DUMP.read_bytes()).decode())
    return file


@pytest.fixture
def site(path: Path) -> Iterator[MovingSite]:
    """The ledger, migrated, and the cluster as it was."""
    site = MovingSite(path, nodes=40)
    cluster, state = site.cluster, json.loads(site.ledger.query("SELECT state FROM fixture_cluster")[0]["state"])
    cluster.time = state["time"]
    cluster.jobs = {job["job_id"]: {"nice": 0, **job} for job in state["jobs"]}
    cluster.scripts = {int(job): script.encode() for job, script in state["scripts"].items()}
    cluster.reservations = [
        Reservation(
            each["name"], frozenset(each["nodes"]), frozenset(each["users"]), frozenset(), each["start"], each["end"]
        )
        for each in state["reservations"]
    ]
    cluster.requests = {(job, restart, what) for job, restart, what in state["requests"]}
    site.restart()
    with closing(site.ledger):
        yield site


def selected(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def number(site: MovingSite, name: str) -> int:
    [job_id] = [job["job_id"] for job in site.cluster.jobs.values() if job["name"] == name]
    return int(job_id)


def opened(site: MovingSite) -> dict[str, Operation]:
    """The open operations by the names of their jobs."""
    names = {job_id: job["name"] for job_id, job in site.cluster.jobs.items()}
    return {names[operation.job.job_id]: operation for operation in site.ledger.open_operations()}


def test_the_older_ledger_has_the_schema_before_outcomes_and_an_open_operation_at_each_step(path: Path) -> None:
    assert selected(path, "PRAGMA user_version") == [(3,)]
    found = {step for (step,) in selected(path, "SELECT DISTINCT step FROM operations")}
    assert found == set(
        "ask save signal reserve requeue settle rewrite confirm watch cancel hold release undo free unreserve withdraw "
        "bound lift ended".split()
    )
    assert {
        name
        for (name,) in selected(path, "SELECT name FROM operations JOIN jobs ON jobs.id = job WHERE step != 'ended'")
    } == set(ENDS)


def test_only_a_writer_migrates_it(path: Path) -> None:
    with pytest.raises(LedgerError, match="of an older release"):
        Ledger(path, readonly=True)
    Ledger(path).close()
    assert selected(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    Ledger(path, readonly=True).close()


def test_outcomes_are_read_from_the_messages_of_older_rows(path: Path) -> None:
    Ledger(path).close()
    found = selected(path, "SELECT name, kind, outcome FROM operations JOIN jobs ON jobs.id = job")
    outcomes = {
        f"hold of {name}" if kind == "hold" and name != "hold-hold" else name: outcome for name, kind, outcome in found
    }
    assert outcomes == {name: ENDED.get(name) for name in outcomes}
    assert outcomes.keys() == ENDED.keys() | ENDS.keys()
    assert {outcome for outcome in outcomes.values() if outcome} == {
        outcome.value
        for outcome in OperationOutcome
        if outcome
        not in (OperationOutcome.IGNORED, OperationOutcome.STARTED, OperationOutcome.NO_ROOM)  # told apart since
    }


@pytest.mark.parametrize("view", ["stops", "history"])
def test_the_stops_and_the_history_stay_the_same(path: Path, view: str) -> None:
    columns = ", ".join(name for _, name, *_ in selected(path, f"PRAGMA table_info({view})"))
    before = selected(path, f"SELECT {columns} FROM {view}")
    Ledger(path).close()
    assert before
    assert selected(path, f"SELECT {columns} FROM {view}") == before


def test_the_guardrails_count_what_was_given_up_and_lost(site: MovingSite) -> None:
    past = site.ledger.past(site.cluster.time)
    for found, names in (
        (past.gave_up, ["stop-gave-up"]),
        (past.move_gave_up, ["resize-gave-up"]),
        (past.lost_progress, ["resize-lost"]),
    ):
        assert {key.job_id for key in found} == {number(site, name) for name in names}


def test_the_facts_of_older_rows_are_typed(site: MovingSite) -> None:
    operations = opened(site)
    checkpointed = operations["migrate-watch"].facts
    assert isinstance(checkpointed, RestartFacts)
    [node] = checkpointed.nodes
    assert node.startswith("n")
    assert checkpointed == RestartFacts(
        user="ada", checkpoint=5.0, checkpoint_time=None, gpus_before=2, gpus=2, node_count=1, nodes=(node,),
        reservation_seconds=960,
    )  # fmt: skip
    assert operations["resize-save"].facts == RestartFacts("ada", None, None, gpus_before=2, gpus=4, node_count=1)
    assert operations["preempt-save"].facts == RestartFacts("ada", None, None, gpus_before=2, gpus=2)
    assert operations["resize-waiting"].facts == PendingResizeFacts(gpus_before=2, gpus=1)
    assert {operations[name].facts for name in ("stop-ask", "hold-hold", *RELEASED)} == {None}


def test_facts_keep_every_digit_and_every_node(path: Path) -> None:
    older = {
        "user": "ada", "checkpoint": "12.1", "checkpointed": "1700000005.1234567", "had": "2", "gpus": "8",
        "wanted": "n1,n2", "nodes": "n1,n2", "shape": "2", "seconds": "960",
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE operations SET noted = ? WHERE step = 'save'", [json.dumps(older)])
    with closing(Ledger(path)) as ledger:
        facts = {operation.facts for operation in ledger.open_operations() if operation.step == "save"}
    nodes = ("n1", "n2")
    assert facts == {RestartFacts("ada", 12.1, 1700000005.1234567, 2, 8, 2, nodes, nodes, 960)}


@pytest.mark.parametrize("damage", ["noted = '{}'", "noted = 'x'", "outcome = 'x'"])
def test_an_operation_that_cannot_be_read_is_damage_of_the_ledger(site: MovingSite, damage: str) -> None:
    operation = opened(site)["resize-save"]
    site.ledger.db.execute(f"UPDATE operations SET {damage} WHERE id = ?", [operation.id])
    with pytest.raises(LedgerError, match=f"is damaged, operation {operation.id} cannot be read: restore a backup"):
        site.ledger.open_operations()


def test_what_jobs_asked_for_is_found_in_flight_too(site: MovingSite) -> None:
    """Also of those to which Slurm gave the new size already, while the operation goes on or is being taken back."""
    has = {record.facts.name: record.facts.gpus for record in site.ledger.live_records()}
    in_flight = {f"resize-{step}" for step in "confirm undo free unreserve withdraw watch done lost".split()}
    assert {name for name, gpus in has.items() if gpus == 4} == in_flight
    site.cycle()  # which sees that Slurm carried out `resize-rewrite`, too
    asked = {record.facts.name: record.requested for record in site.ledger.live_records()}
    resized = {name: each for name, each in asked.items() if name.startswith("resize-")}
    assert resized == dict.fromkeys(resized, (2, 2, 1024.0))


@pytest.mark.parametrize(
    ("sizes", "has", "asked"),
    [
        ([(4, 2, "done")], 2, (4, 8, 400.0)),
        ([(4, 2, "done"), (2, 8, None)], 2, (4, 8, 400.0)),
        ([(4, 2, "done"), (2, 8, None)], 8, (4, 8, 400.0)),
        ([(4, 2, "done"), (2, 4, "done")], 4, (4, 8, 400.0)),
        ([(4, 8, "gave up")], 4, (4, 8, 400.0)),
        ([(4, 2, "done")], 6, (6, 12, 600.0)),
    ],
    ids=["resized", "resized again", "resized twice", "given back", "gave up", "its user changed it since"],
)
def test_what_a_job_asked_for_is_what_it_had_before_its_first_resize(
    path: Path, sizes: list[tuple[int, int, str | None]], has: int, asked: tuple[int, int, float]
) -> None:
    """Two CPUs and 100 MiB go with each GPU."""
    with closing(sqlite3.connect(path)) as db, db:
        [(job,)] = db.execute("SELECT id FROM jobs WHERE name = 'resize-done'").fetchall()
        [row] = db.execute("SELECT * FROM operations WHERE job = ?", [job]).fetchall()
        names = [name for _, name, *_ in db.execute("PRAGMA table_info(operations)")]
        db.execute("DELETE FROM operations WHERE job = ?", [job])
        for at, (before, after, outcome) in enumerate(sizes):
            noted = json.dumps(
                {**json.loads(dict(zip(names, row, strict=True))["noted"]), "had": before, "gpus": after}
            )
            changed = {
                "id": f"{at}-resize", "opened": float(at), "noted": noted, "result": outcome or "",
                "step": "ended" if outcome else "watch",
            }  # fmt: skip
            values = {**dict(zip(names, row, strict=True)), **changed}
            db.execute(f"INSERT INTO operations VALUES ({', '.join('?' * len(names))})", list(values.values()))
        db.execute("UPDATE jobs SET gpus = ?, cpus = ?, memory = ? WHERE id = ?", [has, 2 * has, 100.0 * has, job])
    with closing(Ledger(path)) as ledger:
        [found] = [each.requested for each in ledger.live_records() if each.facts.name == "resize-done"]
    assert found == asked


def test_every_open_operation_comes_to_its_end(site: MovingSite) -> None:
    for _ in range(20):
        for name, operation in opened(site).items():
            goes_on(site, number(site, name), operation)
        site.cycle()
        if not opened(site):
            break
    rows = site.ledger.query("SELECT name, outcome FROM operations JOIN jobs ON jobs.id = job ORDER BY opened")
    ends = {row["name"]: row["outcome"] for row in rows}
    assert {name: ends[name] for name in ENDS} == ENDS
    jobs = {name: site.cluster.jobs[number(site, name)] for name in ENDS}
    assert {name: jobs[name]["gpus"] for name in RESIZED} == dict.fromkeys(RESIZED, 4)
    assert {name: jobs[name]["excluded"] for name in MIGRATED} == dict.fromkeys(MIGRATED, "")
    assert {name: jobs[name]["restarts"] for name in RESIZED} == dict.fromkeys(RESIZED, 1)
    assert {name: jobs[name]["state"] for name in PREEMPTED} == dict.fromkeys(PREEMPTED, "PENDING")
    assert {name: jobs[name]["reason"] for name in RELEASED} == dict.fromkeys(RELEASED, "Priority")
    assert (jobs["resize-undo"]["gpus"], jobs["resize-waiting"]["gpus"], jobs["release-rewrite"]["gpus"]) == (2, 1, 2)
    assert jobs["hold-hold"]["reason"] == "JobHeldAdmin"
    requeued = [site.cluster.jobs[done.job_id]["name"] for done in site.cluster.done if done.verb == "requeue"]
    assert sorted(requeued) == sorted(NOT_YET_REQUEUED)
    assert site.cluster.reservations == []
    assert not any(job["reservation"] for job in site.cluster.jobs.values())
    assert not [request for request in site.cluster.requests if site.cluster.jobs[request[0]]["restarts"] == request[1]]


def goes_on(site: MovingSite, job_id: int, operation: Operation) -> None:
    """The job does what its operation waits for."""
    cluster = site.cluster
    job = cluster.jobs[job_id]
    if operation.kind == "stop":
        if job["state"] == "RUNNING":
            cluster.end(job_id)
    elif operation.step in ("save", "signal"):
        site.saves(job_id)
    elif operation.step in ("unreserve", "confirm") and job["state"] == "PENDING":
        reserved = [each.name for each in cluster.reservations]
        if job["reservation"] in reserved or f"slurmplug-{job_id}" not in reserved:
            cluster.start(job_id, ",".join(operation.reserved_nodes))
    elif operation.step == "watch":
        site.trains(job_id, 6)
    elif operation.step == "bound":
        cluster.requeue(job_id)
