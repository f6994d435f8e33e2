"""The ledger: a cycle is there whole or not at all, and what goes wrong with the file is said and harms nothing."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, ActionKind, OtherJob, Plan, Reason
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecast
from slurmplug.cluster.port import Command, Outcome
from slurmplug.config.schema import Guardrails, parse
from slurmplug.cycle.record import CycleRecord
from slurmplug.directives.parser import Directives, Target
from slurmplug.errors import LedgerError
from slurmplug.intake.intake import Intake
from slurmplug.intake.job_record import Changes, Point
from slurmplug.ledger import database, job_rows, queries
from slurmplug.ledger.codec import loads, rebuild
from slurmplug.ledger.ledger import DAY, Ledger
from slurmplug.ledger.schema import MIGRATIONS
from slurmplug.operations import Operation, OperationOutcome
from slurmplug.rules.guardrails import Past, check
from slurmplug.spool.trials import Trial
from slurmplug.spool.values import SpoolFault
from tests.builders import CLUSTER, NOW, forecasts, jobs, nodes, snapshot
from tests.fake_cluster import SCRIPT, job_row, reading, report

ACT = parse('[mode]\ndefault = "act"').mode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with closing(Ledger(path)) as opened:
        yield opened


def test_a_new_ledger_is_for_its_owner_and_group_whatever_the_umask_lets_through(path: Path) -> None:
    before = os.umask(0o000)
    try:
        with closing(Ledger(path)) as ledger:
            ledger.set_control("paused", "")
            modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("ledger.db", "ledger.db-wal", "ledger.db-shm"), 0o640)


def key(job_id: int) -> JobKey:
    return JobKey(CLUSTER, job_id, int(NOW))


def changes(*job_ids: int, now: float = NOW, **row: Any) -> Changes:
    """What a first look at these jobs brings."""
    look = reading(*(job_row(job_id, **row) for job_id in job_ids), now=now, scripts=dict.fromkeys(job_ids, SCRIPT))
    return Intake().absorb(look, 1)[1]


def stop(job_id: int, cycle: int = 1, step: Any = "ask", **given: Any) -> Operation:
    facts: dict[str, float | str] = {"achieved": 0.9, "cause": "reached"}
    made = Operation(
        f"{cycle}-stop-{job_id}", "stop", key(job_id), Reason("target", facts), NOW, step, NOW, NOW + 60.0, 0
    )
    return replace(made, **given)


def cycle(
    number: int,
    job_ids: Sequence[int] = (1, 2),
    *,
    commands: Sequence[Command] = (),
    operations: Sequence[Operation] = (),
    actions: Sequence[Action] = (),
    now: float = NOW,
    **given: Any,
) -> CycleRecord:
    """A cycle over these jobs, in mode act."""
    n = len(job_ids)
    seen = snapshot(
        jobs(n, keys=tuple(map(key, job_ids)), target=0.9, state="running"), nodes(2), cycle=number, now=now
    )
    plan = Plan(np.arange(n, dtype=float), {"P": np.arange(n) / 2}, tuple(actions), {"overloaded": np.array([True])})
    made = CycleRecord(
        started=now,
        policy="mlfs",
        modes={"default": "act"},
        snapshot=seen,
        forecasts=forecasts(n, remaining=60.0, final=Forecast.normal(np.full(n, 0.8), 0.1, "curve")),
        memory={"overloaded": np.array([False])},
        decided=plan,
        made_from={},
        plan=plan,
        verdict=check(seen, plan, Past(now), ACT, Guardrails()),
        operations=operations,
        commands=commands,
        changes=changes(*job_ids, now=now),
        postponed=3,
        seconds={"read": 0.1},
    )
    return replace(made, **given)


def site_factor(number: int, job_id: int, value: int = 5) -> Command:
    return Command(f"{number}-label-{job_id}", "update", key(job_id), {"SiteFactor": str(value)})


def ask(operation: Operation, number: int = 1) -> Command:
    fields = {"what": "stop", "restart": "0"}
    return Command(f"{operation.id}-ask-{number}", "ask", operation.job, fields, operation.id)


def count(ledger: Ledger, table: str) -> int:
    return int(ledger.query(f"SELECT count(*) AS n FROM {table}")[0]["n"])


TABLES = (
    "jobs progress faults cycles standing decisions operations steps commands memory models controls directive_changes"
).split()


def content(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    return {table: ledger.query(f"SELECT * FROM {table}") for table in TABLES}


# --- a cycle ----------------------------------------------------------------------------------------------------------


def test_a_cycle_is_written_with_all_that_led_to_it(ledger: Ledger) -> None:
    action = Action("stop", key(1), Reason("target", {"achieved": 0.9}))
    operation = stop(1)
    ledger.begin(cycle(1, actions=[action], operations=[operation], commands=[ask(operation), site_factor(1, 2)]))
    [row] = ledger.query("SELECT * FROM cycles")
    assert {name: row[name] for name in ("id", "policy", "jobs", "running", "managed", "postponed", "finished")} == {
        "id": 1, "policy": "mlfs", "jobs": 2, "running": 2, "managed": 2, "postponed": 3, "finished": None,
    }  # fmt: skip
    assert ledger.query("SELECT cycle FROM standing") == [{"cycle": 1}]
    assert ledger.query("SELECT verdict, rule FROM decisions") == [{"verdict": "allowed", "rule": "target"}]
    assert [row["status"] for row in ledger.query("SELECT * FROM commands")] == ["unknown", "unknown"]
    assert ledger.open_operations() == [operation]
    assert ledger.next_cycle() == 2


def test_what_each_stage_of_a_cycle_took_is_known_with_the_effects_when_it_has_finished(ledger: Ledger) -> None:
    ledger.begin(cycle(1))
    ledger.finish(1, [], {}, NOW, {"read": 0.1, "apply": 0.25})
    last = queries.last_cycle(ledger)
    assert last is not None
    assert last.seconds == {"read": 0.1, "apply": 0.25}


def test_the_inputs_of_a_cycle_that_commanded_something_come_back_whole(ledger: Ledger) -> None:
    record = cycle(1, commands=[site_factor(1, 2)])
    ledger.begin(record)
    ledger.finish(1, [], {}, NOW, {})
    ledger.begin(cycle(2, changes=Changes(NOW)))
    ledger.finish(2, [], {}, NOW, {})
    commanded, quiet = ledger.query("SELECT inputs FROM cycles ORDER BY id")
    assert quiet["inputs"] is None
    seen, _, memory, *_ = loads(commanded["inputs"])
    again = rebuild(Snapshot, seen)
    assert (again.jobs.keys, again.cycle, again.now) == (record.snapshot.jobs.keys, 1, NOW)
    assert memory["overloaded"].tolist() == [False]
    assert ledger.recall("mlfs")["overloaded"].tolist() == [True]
    assert ledger.recall("another") == {}


def test_a_cycle_whose_outcomes_were_never_written_has_no_inputs_and_leaves_none_to_the_next(ledger: Ledger) -> None:
    ledger.begin(cycle(1, commands=[site_factor(1, 2)]))
    ledger.begin(cycle(2, changes=Changes(NOW)))
    ledger.finish(2, [], {}, NOW, {})
    assert [row["inputs"] for row in ledger.query("SELECT inputs FROM cycles")] == [None, None]


def test_where_each_job_stands_comes_back_as_it_was_and_without_what_is_not_known(ledger: Ledger) -> None:
    assert queries.cycle_rankings(ledger) is None
    nan = float("nan")
    plan = Plan(
        np.array([2.5, nan, np.inf]),
        {"P": np.array([0.5, nan, 1.0]), "Q": np.full(3, nan), "given": np.array([True, False, True])},
        notes={key(2): Reason("parent-missing", {"by": 7, "why": "gone"})},
    )
    record = cycle(1, (1, 2, 3), plan=plan)
    seen = replace(record.snapshot, jobs=replace(record.snapshot.jobs, priority=np.array([10.0, nan, 30.0])))
    final = Forecast.assemble(3, [([0], Forecast.certain([0.8], "last report"))])
    verdict = check(
        seen, plan, Past(NOW), parse('[mode]\ndefault = "observe"').mode, Guardrails(exclude_users=frozenset({"ada"}))
    )
    predicted = forecasts(3, remaining=[60.0, nan, 60.0], final=final)
    ledger.begin(replace(record, snapshot=seen, forecasts=predicted, verdict=verdict))
    stood = queries.cycle_rankings(ledger)
    assert stood is not None
    rows = {row["job_id"]: row["id"] for row in ledger.query("SELECT id, job_id FROM jobs")}
    assert set(stood.jobs) == set(rows.values())
    first, second, third = (rows[job_id] for job_id in (1, 2, 3))

    def of(job: int) -> tuple[Any, ...]:
        return tuple(stood.columns[name][job] for name in ("rank", "allowed", "spared", "priority"))

    assert of(first) == (2.5, False, "excluded", 10.0)
    assert stood.terms(first) == {"P": 0.5, "given": True}
    assert stood.note(first) is None
    names = ("source", "remaining_high", "final_low", "reach", "iteration", "done", "start", "total_low")
    assert [stood.forecasts[name][first] for name in names] == ["test", 60.0, 0.8, 0.0, 0.0, None, None, None]
    assert (of(second)[0], of(second)[3], stood.terms(second)) == (None, None, {"given": False})
    assert stood.note(second) == {"rule": "parent-missing", "facts": {"by": 7, "why": "gone"}}
    assert stood.forecasts["remaining"][second] is None
    assert (of(third)[0], stood.forecasts["remaining"][third]) == (np.inf, 60.0)
    ledger.begin(cycle(2, (2,), changes=Changes(NOW)))
    again = queries.cycle_rankings(ledger)
    assert again is not None
    assert list(again.jobs) == [rows[2]]


def test_the_first_prediction_of_a_run_time_is_kept_and_of_a_final_value_the_last_until_half(ledger: Ledger) -> None:
    def predicted() -> list[tuple[Any, ...]]:
        rows = ledger.query("SELECT predicted, predicted_by, foreseen, foreseen_at FROM jobs ORDER BY job_id")
        return [tuple(row.values()) for row in rows]

    def begin(number: int, iteration: float, total: Any, final: float) -> None:
        record = cycle(number, (1, 2), changes=changes(1, 2) if number == 1 else Changes(NOW))
        seen = replace(record.snapshot.jobs, iteration=np.array([iteration, 0.0]), max_iterations=np.full(2, 10.0))
        forecast = forecasts(2, total=total, final=Forecast.certain([final, np.nan], ["curve", ""]))
        ledger.begin(replace(record, snapshot=replace(record.snapshot, jobs=seen), forecasts=forecast))

    begin(1, 1.0, [60.0, np.nan], 0.5)
    assert predicted() == [(60.0, "test", 0.5, 1.0), (None, None, None, None)]
    begin(2, 5.0, [70.0, 80.0], 0.6)
    assert predicted() == [(60.0, "test", 0.6, 5.0), (80.0, "test", None, None)]
    begin(3, 6.0, [70.0, 80.0], 0.7)
    assert predicted() == [(60.0, "test", 0.6, 5.0), (80.0, "test", None, None)]


def test_what_came_of_the_commands_is_written_to_them_their_operation_and_their_jobs(ledger: Ledger) -> None:
    operation = stop(1)
    ledger.begin(cycle(1, operations=[operation], commands=[ask(operation), site_factor(1, 1), site_factor(1, 2)]))
    outcomes = [
        Outcome(ask(operation).id, "refused", "no space"),
        Outcome("1-label-1", "done"),
        Outcome("1-label-2", "unknown", "timed out"),
    ]
    ledger.finish(1, outcomes, {key(1): 5.0, key(2): np.nan}, NOW + 2.0, {})
    values = {row["id"]: (row["status"], row["message"]) for row in ledger.query("SELECT * FROM commands")}
    assert values == {outcome.command: (outcome.status, outcome.message) for outcome in outcomes}
    assert [each.last_status for each in ledger.open_operations()] == ["refused"]
    assert ledger.query("SELECT label FROM jobs ORDER BY job_id") == [{"label": 5.0}, {"label": None}]
    assert ledger.query("SELECT finished FROM cycles") == [{"finished": NOW + 2.0}]


def test_a_cycle_that_could_not_read_is_noted(ledger: Ledger) -> None:
    ledger.record_failed_read("mlfs", "squeue did not answer", NOW)
    assert ledger.query("SELECT id, error FROM cycles") == [{"id": 1, "error": "squeue did not answer"}]
    assert ledger.next_cycle() == 2


@pytest.mark.parametrize(("kind", "kept"), [("preempt", 0.92), ("stop", 0.90)])
def test_a_decision_that_stays_the_same_is_one_row_and_a_stop_keeps_its_first_facts(
    ledger: Ledger, kind: ActionKind, kept: float
) -> None:
    for number, achieved in enumerate((0.90, 0.91, 0.92), 1):
        action = Action(kind, key(1), Reason("rule", {"achieved": achieved}))
        ledger.begin(cycle(number, actions=[action], now=NOW + 60 * number))
    [row] = ledger.query("SELECT * FROM decisions")
    assert (row["first_cycle"], row["last_cycle"], json.loads(row["facts"])) == (1, 3, {"achieved": kept})


def test_faults_are_counted(ledger: Ledger) -> None:
    for number in (1, 2):
        look = replace(
            changes(1, now=NOW + number), faults=(SpoolFault(1, "owner", "uid 5", 2), SpoolFault(0, "spool", "", 1))
        )
        ledger.begin(cycle(number, [1], changes=look))
    rows = ledger.query("SELECT job_id, count, first, last FROM faults ORDER BY job_id DESC")
    assert rows[0] == {"job_id": 1, "count": 4, "first": NOW + 1, "last": NOW + 2}


def test_a_crash_between_begin_and_finish_leaves_commands_unknown_and_labels_in_doubt(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        operation = stop(1)
        ledger.begin(cycle(1, commands=[site_factor(1, 1), site_factor(1, 2)]))
        ledger.finish(
            1, [Outcome("1-label-1", "done"), Outcome("1-label-2", "done")], {key(1): 5.0, key(2): 5.0}, NOW, {}
        )
        ledger.begin(
            cycle(2, operations=[operation], commands=[ask(operation), site_factor(2, 1, 9)], changes=Changes(NOW))
        )
    with closing(Ledger(path)) as ledger:
        assert [each.last_status for each in ledger.open_operations()] == [""]
        site_factors = {record.key.job_id: record.site_factor for record in ledger.live_records()}
        assert np.isnan(site_factors[1])
        assert site_factors[2] == 5.0
        ledger.begin(cycle(3, commands=[site_factor(3, 1, 7)], changes=Changes(NOW)))
        ledger.finish(3, [Outcome("3-label-1", "done")], {key(1): 7.0}, NOW, {})
        assert {record.site_factor for record in ledger.live_records()} == {7.0, 5.0}


def test_a_refused_write_leaves_no_doubt_about_the_label(ledger: Ledger) -> None:
    ledger.begin(cycle(1, [1], commands=[site_factor(1, 1)]))
    ledger.finish(1, [Outcome("1-label-1", "refused", "held")], {}, NOW, {})
    assert [record.site_factor for record in ledger.live_records()] == [0.0]


def test_a_cycle_that_fails_half_way_leaves_nothing(ledger: Ledger) -> None:
    ledger.begin(cycle(1))
    before = content(ledger)
    twice = [site_factor(2, 3), site_factor(2, 3)]
    with pytest.raises(LedgerError, match=r"ledger\.db cannot be used: UNIQUE constraint failed"):
        ledger.begin(cycle(2, [3], commands=twice))
    assert content(ledger) == before
    ledger.begin(cycle(2, [4, 3], commands=twice[:1]))  # job 3 has another row number now
    assert ledger.query("SELECT jobs.job_id FROM commands JOIN jobs ON jobs.id = commands.job") == [{"job_id": 3}]


@pytest.mark.parametrize("name", ["a\0b", "'; DROP TABLE jobs; --", "☃" * 1000])
def test_a_hostile_name_is_kept_as_it_is(ledger: Ledger, name: str) -> None:
    ledger.begin(cycle(1, [1], changes=changes(1, name=name, comment=name)))
    assert [record.facts.name for record in ledger.live_records()] == [name]


# --- what guardrails and predictors ask -------------------------------------------------------------------------------


def test_the_past_counts_stops_failures_and_what_was_given_back(ledger: Ledger) -> None:
    assert ledger.past(NOW) == Past(NOW)
    early = stop(1, 1, opened=NOW - 7200.0)
    ledger.begin(cycle(1, operations=[early], commands=[ask(early)], now=NOW - 7200.0))
    ledger.finish(1, [Outcome(ask(early).id, "done")], {}, NOW, {})
    late = stop(2, 2)
    ledger.begin(cycle(2, operations=[late], commands=[ask(late, 2)]))
    ledger.finish(2, [Outcome(ask(late, 2).id, "refused")], {}, NOW, {})
    ledger.begin(cycle(3, commands=[site_factor(3, 1)], now=NOW + 60.0))
    ledger.set_control("paused", "maintenance")
    ledger.give_back([2])
    past = ledger.past(NOW + 120.0)
    assert (past.stops_last_hour, past.failures_in_a_row, past.last_failure) == ({"ada": 1}, 2, NOW + 60.0)
    assert (past.paused, past.given_back) == (True, frozenset({2}))
    ledger.finish(3, [Outcome("3-label-1", "done")], {}, NOW, {})
    ledger.set_control("paused", None)
    assert (ledger.past(NOW).failures_in_a_row, ledger.past(NOW).paused) == (0, False)
    assert ledger.past(NOW + 3601.0).stops_last_hour == {}


def test_a_fact_about_another_job_is_stored_and_read_as_such(ledger: Ledger) -> None:
    other = OtherJob(key(2), 0.5)
    reason = Reason("gives way", {"by": other, "rank": 0.25})
    ledger.begin(cycle(1, operations=[replace(stop(1, 1), reason=reason)]))
    [operation] = ledger.open_operations()
    assert operation.reason == reason
    [record] = [each for each in ledger.live_records() if each.key == key(1)]
    [row] = queries.job_audit(ledger, 1, record).operations
    assert row["facts"] == reason.facts
    assert queries.owners(ledger, [key(2), key(99)]) == {key(2): record.facts.uid}


def test_a_job_is_fresh_for_some_time_after_it_was_first_seen(ledger: Ledger) -> None:
    ledger.begin(cycle(1, changes=changes(1, 2)))
    asked = [key(1), key(3)]
    assert ledger.past(NOW + 59.0, 60.0, asked).fresh == frozenset(asked)
    assert ledger.past(NOW + 60.0, 60.0, asked).fresh == frozenset({key(3)})  # as is one that is not written yet
    assert ledger.past(NOW, 0.0, asked).fresh == frozenset()


def test_what_was_given_back_stays_so_when_the_job_changes(ledger: Ledger) -> None:
    ledger.begin(cycle(1))
    ledger.give_back([1, 99])
    ledger.begin(cycle(2, changes=changes(1, 2, reason="Resources")))
    assert ledger.past(NOW).given_back == frozenset({1})


def test_the_history_is_of_runs_that_completed_by_themselves(ledger: Ledger) -> None:
    look = [
        job_row(1, state="COMPLETED", start=NOW, end=NOW + 60.0),
        job_row(2, state="COMPLETED", start=NOW, end=NOW + 60.0),
        job_row(3, state="FAILED", start=NOW, end=NOW + 60.0),
        job_row(4, state="RUNNING", start=NOW, end=NOW + 60.0),
        job_row(5, state="COMPLETED", end=NOW + 60.0),
        job_row(6, state="COMPLETED", start=NOW, end=NOW + 60.0, suspended=60.0),
    ]
    stopped = stop(2, step="ended", outcome=OperationOutcome.STOPPED, result="stopped")
    everything = Intake().absorb(reading(*look), 1)[1]
    ledger.begin(cycle(1, operations=[stopped], changes=everything))
    assert ledger.query("SELECT job_id, runtime FROM history") == [{"job_id": 1, "runtime": 60.0}]


def test_a_model_is_kept_without_pickle_with_the_version_of_what_made_it(ledger: Ledger) -> None:
    state = {"version": "svr-1", "types": ["a", "b"], "weights": np.arange(3.0), "none": None}
    ledger.save_model("runtime", "svr-0", {}, NOW)
    ledger.save_model("runtime", "svr-1", state, NOW + 1.0)
    kept = ledger.model("runtime")
    assert kept is not None
    version, trained_at, again = kept
    assert (version, trained_at, again["types"], again["weights"].tolist()) == (
        "svr-1",
        NOW + 1.0,
        ["a", "b"],
        [0, 1, 2],
    )
    assert ledger.model("curves") is None


# --- upkeep -----------------------------------------------------------------------------------------------------------


def test_what_is_older_than_the_retention_is_forgotten_with_its_story(ledger: Ledger) -> None:
    operation = stop(1)
    action = Action("stop", key(1), Reason("target"))
    over = changes(1, state="COMPLETED", start=NOW, end=NOW + 60.0)
    result = Intake().absorb(reading(job_row(2, state="RUNNING", start=NOW), reports={2: report(iteration=1)}), 1)[1]
    both = replace(
        over, records=over.records + result.records, points=result.points, faults=(SpoolFault(1, "link", "", 1),)
    )
    ledger.begin(
        cycle(1, actions=[action], operations=[operation], commands=[ask(operation), site_factor(1, 2)], changes=both)
    )
    ledger.finish(1, [], {}, NOW, {})
    ledger.begin(cycle(2, [2], commands=[site_factor(2, 2)], changes=Changes(NOW), now=NOW + 20 * DAY))
    ledger.finish(2, [], {}, NOW + 20 * DAY, {})
    ledger.delete_old(NOW + 21 * DAY, keep_days=400, keep_inputs_days=14)
    assert [row["inputs"] is None for row in ledger.query("SELECT inputs FROM cycles ORDER BY id")] == [True, False]
    assert count(ledger, "jobs") == 2
    ledger.delete_old(NOW + 400 * DAY + 1, keep_days=400, keep_inputs_days=14)
    assert [row["job_id"] for row in ledger.query("SELECT job_id FROM jobs")] == [2]
    counts = {table: count(ledger, table) for table in TABLES}
    assert {name: n for name, n in counts.items() if n} == {
        "jobs": 1, "progress": 1, "cycles": 1, "standing": 1, "commands": 1, "memory": 1,
    }  # fmt: skip
    ledger.begin(cycle(3, [1, 2], now=NOW + 401 * DAY))
    assert ledger.db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_cycles_are_numbered_on_although_all_were_forgotten(ledger: Ledger) -> None:
    for number in (1, 2, 3):
        ledger.begin(cycle(number))
    ledger.delete_old(NOW + 1000 * DAY, keep_days=1, keep_inputs_days=1)
    assert ledger.next_cycle() == 4


def test_a_backup_of_a_ledger_in_use_is_a_ledger(ledger: Ledger, tmp_path: Path) -> None:
    ledger.begin(cycle(1))
    ledger.backup(tmp_path / "backup.db")
    with closing(Ledger(tmp_path / "backup.db", readonly=True)) as copy:
        assert content(copy) == content(ledger)
    with pytest.raises(LedgerError, match="does its folder exist"):
        ledger.backup(tmp_path / "missing" / "backup.db")


def test_a_ledger_that_is_opened_again_is_as_it_was(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.begin(cycle(1))
        before = content(ledger)
    for _ in range(2):
        with closing(Ledger(path)) as ledger:
            assert content(ledger) == before
            assert ledger.db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
            assert ledger.db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


OPENER = """
import sys
from pathlib import Path
from slurmplug.ledger.ledger import Ledger
sys.stdin.readline()
Ledger(Path(sys.argv[1])).close()
"""


def test_processes_that_open_a_new_ledger_at_once_make_one(path: Path) -> None:
    command = [sys.executable, "-c", OPENER, str(path)]
    openers = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for opener in openers:
        assert opener.stdin
        opener.stdin.write("\n")
        opener.stdin.flush()
    assert [opener.communicate()[1] for opener in openers] == [""] * 4
    with closing(Ledger(path)) as ledger:
        assert count(ledger, "cycles") == 0


def test_an_older_ledger_is_brought_up_to_date_and_keeps_what_it_has(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.begin(cycle(1))
        before = content(ledger)
    later = "\nALTER TABLE jobs ADD COLUMN colour TEXT;\nCREATE TABLE colours (name TEXT);\n"
    monkeypatch.setattr(database, "MIGRATIONS", (*MIGRATIONS, later))
    with pytest.raises(LedgerError, match="of an older release, or empty: start the daemon"):
        Ledger(path, readonly=True)
    with closing(Ledger(path)) as ledger:
        assert ledger.db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS) + 1
        assert count(ledger, "colours") == 0
        assert [{**row, "colour": None} for row in before["jobs"]] == ledger.query("SELECT * FROM jobs")


def test_directives_that_an_older_release_stored_are_read_without_those_that_came_later(ledger: Ledger) -> None:
    ledger.begin(cycle(1, (1, 2)))
    stored = '{"urgency": 7.0, "target": {"quantity": "loss", "relation": "<=", "value": 1}, "problems": []}'
    ledger.db.execute("UPDATE jobs SET directives = ? WHERE job_id = 1", [stored])
    ledger.db.execute("UPDATE jobs SET directives = 'null' WHERE job_id = 2")
    first, second = ledger.live_records()
    assert first.directives == Directives(urgency=7.0, target=Target("loss", "<=", 1.0))
    assert second.directives is None


def write_older(ledger: Ledger, of: Changes) -> None:
    """Write the jobs and their points as a release did whose tables lacked some of today's columns."""
    columns = {row["name"] for table in ("jobs", "progress") for row in ledger.query(f"PRAGMA table_info({table})")}
    records = map(partial(job_rows.record_row, now=NOW), of.records)
    ledger._put("jobs", ({name: each[name] for name in each if name in columns} for each in records))
    for key, point in job_rows.point_rows(of.points):
        ledger._put("progress", [{"job": ledger._id(key), **{name: point[name] for name in point if name in columns}}])


def test_the_points_of_a_ledger_of_the_fourth_version_are_of_the_jobs_only_training(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = JobKey(CLUSTER, 1, int(NOW))
    told = [Point(key, run, 0, at, NOW + at, {"loss": at}) for run, at in ((0, 0.0), (0, 1.0), (1, 1.0), (1, 2.0))]
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:4])
        with closing(Ledger(path)) as ledger, ledger._transaction():
            write_older(ledger, replace(changes(1, 2), points=tuple(told)))
    with closing(Ledger(path)) as ledger:
        first, second = ledger.live_records()
        assert first.all_points.iterations.tolist() == [0.0, 1.0, 2.0]
        assert (first.points.trials, first.points.first, first.trials) == ((Trial("", NOW),), 0.0, "")
        assert (second.points.trials, str(second.points.first)) == ((), "nan")


def test_a_ledger_of_the_second_version_is_upgraded_and_tells_where_jobs_stand_from_the_next_cycle_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:2])
        with closing(Ledger(path)) as ledger, ledger._transaction():
            write_older(ledger, changes(1, 2))
            ledger.db.execute("UPDATE jobs SET given_back = 1 WHERE job_id = 2")
            ledger.db.execute("INSERT INTO standing VALUES (1, 1, 0.5, 1, '', 9.0, '{}', '{}', NULL)")
    with closing(Ledger(path)) as ledger:
        assert ledger.db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        assert [record.key.job_id for record in ledger.live_records()] == [1, 2]
        assert ledger.past(NOW).given_back == frozenset({2})
        assert queries.cycle_rankings(ledger) is None
        ledger.begin(cycle(1, changes=Changes(NOW)))
        stood = queries.cycle_rankings(ledger)
        assert stood is not None
        assert len(stood.jobs) == 2
    with closing(sqlite3.connect(path.with_name(f"{path.name}.version-2"))) as kept:
        assert kept.execute("SELECT rank FROM standing").fetchall() == [(0.5,)]


def test_an_upgrade_forgets_the_numbers_and_scores_of_other_jobs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"by": 2.0, "by_rank": 5.0, "rank": 2.0, "lost": 60.0}
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:4])
        with closing(Ledger(path)) as ledger, closing(ledger.db) as db:
            db.execute(
                "INSERT INTO jobs (id, cluster, job_id, first_submit, ended, listed, last_seen) "
                "VALUES (1, 'c', 1, 1, 0, 1, 0)"
            )
            db.execute(
                "INSERT INTO operations (id, job, kind, rule, facts, opened, step, since, until, restarts, told, "
                "tries, result, noted) "
                "VALUES ('1', 1, 'preempt', 'gives way', ?, 0, 'save', 0, 1, 0, 'done', 1, '', 'null')",
                (json.dumps(before),),
            )
    with closing(Ledger(path)) as ledger:
        [operation] = ledger.open_operations()
    assert operation.reason == Reason("gives way", {"rank": 2.0, "lost": 60.0})


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.begin(cycle(1))
    broken = "\nCREATE TABLE colours (name TEXT);\nALTER TABLE missing ADD COLUMN x;\n"
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", (*MIGRATIONS, broken))
        with pytest.raises(LedgerError, match="no such table: missing"):
            Ledger(path)
    with closing(Ledger(path)) as ledger:
        assert ledger.db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        assert ledger.query("SELECT name FROM sqlite_master WHERE name = 'colours'") == []


def test_sqlite_writes_no_temporary_files(path: Path) -> None:
    """Their folder may be full, or not writable: that would fail a cycle."""
    with closing(Ledger(path)) as ledger, closing(Ledger(path, readonly=True)) as reader:
        for each in (ledger, reader):
            assert each.db.execute("PRAGMA temp_store").fetchone()[0] == 2


# --- what goes wrong with the file ------------------------------------------------------------------------------------


def test_a_ledger_of_a_newer_release_is_left_alone(path: Path) -> None:
    Ledger(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = path.read_bytes()
    for readonly in (False, True):
        with pytest.raises(LedgerError, match="newer slurmplug: upgrade this one"):
            Ledger(path, readonly=readonly)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "first page", "a page"])
def test_a_corrupt_file_is_said_to_be_and_not_touched(path: Path, damage: str) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.begin(cycle(1, range(1, 200)))
    data = bytearray(path.read_bytes())
    if damage == "text":
        data = bytearray(b"years of work\n" * 1000)
    else:
        start = 0 if damage == "first page" else 4096
        data[start:] = b"\xff" * (len(data) - start)
    path.write_bytes(data)
    with pytest.raises(LedgerError, match=r"ledger\.db cannot be used: .*; restore a backup, or move it away"):
        Ledger(path).live_records()
    assert path.read_bytes() == data


def test_a_damaged_value_in_the_ledger_is_said_to_be(ledger: Ledger) -> None:
    ledger.begin(cycle(1))
    ledger.save_model("runtime", "svr-1", {}, NOW)
    for table, column in (("memory", "state"), ("models", "state"), ("standing", "told")):
        ledger.db.execute(f"UPDATE {table} SET {column} = substr({column}, 1, 40)")
    for asked in (
        lambda: ledger.recall("mlfs"),
        lambda: ledger.model("runtime"),
        lambda: queries.cycle_rankings(ledger),
    ):
        with pytest.raises(LedgerError, match=r"is damaged, not a value of this codec.*restore a backup"):
            asked()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for readonly in (False, True):
        with pytest.raises(LedgerError, match=r"missing/ledger\.db cannot be used: .*does its folder exist"):
            Ledger(tmp_path / "missing" / "ledger.db", readonly=readonly)


def test_a_locked_ledger_is_waited_for_and_then_an_error(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.begin(cycle(1))
    before = content(ledger)
    ledger.db.execute("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writes: tuple[Callable[[], None], ...] = (
            lambda: ledger.begin(cycle(2, [3])),
            lambda: ledger.finish(1, [], {}, NOW, {}),
            lambda: ledger.record_failed_read("mlfs", "", NOW),
            lambda: ledger.set_control("paused", "x"),
        )
        for write in writes:
            with pytest.raises(LedgerError, match="database is locked; another process has held it"):
                write()
        assert content(ledger) == before
        assert len(ledger.live_records()) == 2
        other.execute("ROLLBACK")
    ledger.begin(cycle(2, [3]))
    assert count(ledger, "cycles") == 2


def test_a_write_waits_for_another_ones_end_although_it_reads_first(ledger: Ledger, path: Path) -> None:
    ledger.begin(cycle(1))
    with closing(Ledger(path)) as other:
        with other._transaction():
            other.db.execute("INSERT INTO controls VALUES ('paused', 'x')")
        ledger.record_failed_read("mlfs", "x", NOW)
    assert ledger.next_cycle() == 3


def test_a_full_disk_leaves_no_half_cycle_and_the_next_one_writes(ledger: Ledger) -> None:
    ledger.begin(cycle(1))
    before = content(ledger)
    pages = ledger.db.execute("PRAGMA page_count").fetchone()[0]
    ledger.db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerError, match="database or disk is full; make room on its disk"):
        ledger.begin(cycle(2, range(10, 400), commands=[site_factor(2, 10)]))
    assert content(ledger) == before
    ledger.db.execute("PRAGMA max_page_count = 100000")
    ledger.begin(cycle(2, range(10, 400), commands=[site_factor(2, 10)]))
    assert count(ledger, "jobs") == 392
    assert ledger.db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


READER = """
import sys
from pathlib import Path
from slurmplug.ledger.ledger import Ledger
from slurmplug.errors import LedgerError
ledger = Ledger(Path(sys.argv[1]), readonly=True)
print(len(ledger.live_records()), flush=True)
sys.stdin.readline()
print(len(ledger.live_records()), flush=True)
try:
    ledger.set_control("paused", "x")
except LedgerError as error:
    print(error, flush=True)
"""


def test_another_process_reads_while_the_daemon_writes(ledger: Ledger, path: Path) -> None:
    ledger.begin(cycle(1))
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin
        assert reader.stdout
        assert reader.stdout.readline() == "2\n"
        with ledger._transaction():
            ledger._write_changes(changes(3))
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == "2\n"
        assert "cannot be used: attempt to write a readonly database" in reader.stdout.readline()
    assert reader.returncode == 0
    assert count(ledger, "jobs") == 3


def test_a_killed_daemon_leaves_whole_cycles_only(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.begin(cycle(1))
    killed = f"""
import os, signal
from pathlib import Path
from tests.unit.ledger.test_ledger import Ledger, changes
ledger = Ledger(Path({str(path)!r}))
with ledger._transaction():
    ledger._write_changes(changes(*range(10, 300)))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", killed], check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == -9
    with closing(Ledger(path)) as ledger:
        assert [record.key.job_id for record in ledger.live_records()] == [1, 2]
        assert ledger.db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_ledger_that_was_moved_away_is_written_to_no_more(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    (tmp_path / "ledger.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(LedgerError, match="moved or removed"):
        ledger.set_control("paused", "")
    (tmp_path / "elsewhere.db").rename(tmp_path / "ledger.db")
    ledger.set_control("paused", "")
    assert ledger.control("paused") == ""
    ledger.close()


def test_jobs_of_the_fifteenth_version_are_taken_for_never_suspended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = job_row(1, state="COMPLETED", start=NOW, end=NOW + 60.0)
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:15])
        with closing(Ledger(path)) as ledger, ledger._transaction():
            write_older(ledger, Intake().absorb(reading(row), 1)[1])
    with closing(Ledger(path)) as ledger:
        found = ledger.query("SELECT suspended, runtime FROM history")
        assert found == [{"suspended": 0.0, "runtime": 60.0}]


def test_of_jobs_of_the_seventeenth_version_it_is_not_known_that_their_gpus_were_idle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:17])
        with closing(Ledger(path)) as ledger, ledger._transaction():
            write_older(ledger, changes(1))
            ledger.db.execute("UPDATE jobs SET gpu_use = '[0.5, 9]'")
    with closing(Ledger(path)) as ledger:
        assert [tuple(record.points.gpu_use) for record in ledger.live_records()] == [(0.5, 9, NOW)]
