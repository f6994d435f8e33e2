"""Directives given after the submission: read by the same grammar, and combined with those of the script."""

from datetime import UTC, datetime

import pytest

from slurmplug.directives.changes import Change, check, in_force
from slurmplug.directives.grammar import TABLE, Directive
from slurmplug.directives.parser import NAMES, Directives, Target, parse, parse_change
from slurmplug.errors import UsageError

NOW = datetime(2026, 11, 21, 7, 30, tzinfo=UTC).timestamp()


def change(*written: str) -> Change:
    given, taken_back = parse_change(written, now=NOW, zone=UTC)
    return Change(1, NOW, 1001, "ada", "", given, taken_back)


def submitted(line: str) -> Directives:
    return parse(f"#!/bin/sh\n#PLUG {line}\n", submitted=NOW - 7_200, zone=UTC)


@pytest.mark.parametrize("row", [row for row in TABLE if not row.fixed], ids=lambda row: row.name)
def test_what_may_change_is_read_as_in_a_script(row: Directive) -> None:
    text = f"--{row.name}={row.example}"
    name = row.name.replace("-", "_")
    in_script = parse(f"#PLUG {text}\n#PLUG --target=accuracy>=0.5\n", submitted=NOW, zone=UTC)
    given, taken_back = parse_change([text], now=NOW, zone=UTC)
    assert getattr(given, name) == getattr(in_script, name)
    assert [each for each in NAMES if getattr(given, each) is not None] == [name]
    assert taken_back == ()


@pytest.mark.parametrize("row", [row for row in TABLE if row.fixed], ids=lambda row: row.name)
def test_what_may_not_change_is_refused_with_the_reason(row: Directive) -> None:
    for value in (row.example, ""):
        with pytest.raises(UsageError) as refused:
            parse_change([f"--{row.name}={value}"], now=NOW)
        assert str(refused.value) == (f"--{row.name}={value}: cannot change after the submission: {row.fixed}")


def test_a_span_counts_from_the_change_and_a_time_of_day_is_the_next_one() -> None:
    assert change("--deadline=2h").given.deadline == NOW + 7_200
    assert change("--deadline=18:00").given.deadline == NOW + 10.5 * 3_600
    assert change("--deadline=07:00").given.deadline == NOW + 23.5 * 3_600


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("--deadline=2026-11-21T07:29", "--deadline=2026-11-21T07:29: lies in the past"),
        ("--deadline=5000d", "--deadline=5000d: lies more than 3650 days ahead"),
        ("--deadline=90", "--deadline=90: expected a span (2h, 90m, 1d12h, 1-12:00:00), a time of day"),
        ("--deadline= ", "--deadline= : expected a span"),
        ("--stop=traget", "for example --stop=optstop; did you mean --stop=target?"),
        ("--urgencey=7", "--urgencey=7: no such directive; did you mean --urgency?"),
        ("--urgency", "--urgency: write --name=value"),
        ("--urgency=nan", "expected a number from 0 to 10"),
        ("--urgency=1e99", "expected a number from 0 to 10"),
        ("--target=accuracy>=9e999", "expected a reported quantity"),
        ("--target=a\u0301>=1", "has a character that is not plain ASCII"),
        ("--urgency=" + "1" * 2_000, "expected a number from 0 to 10"),
    ],
)
def test_a_mistake_is_named_as_in_a_script_and_printable(written: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_change([written], now=NOW, zone=UTC)
    assert message in str(refused.value)
    assert str(refused.value).isprintable()


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(UsageError, match=r"^--stop=never: .*; --type=x: cannot change .*; --urgency=2: given twice"):
        parse_change(["--stop=never", "--type=x", "--urgency=1", "--urgency=2"], now=NOW)


def test_changes_override_the_script_in_their_order_and_can_be_taken_back() -> None:
    script = submitted("--urgency=3 --deadline=4h --max-iterations=90")
    first, second = change("--urgency=9", "--stop=optstop"), change("--urgency=", "--max-iterations=10", "--deadline=")
    assert in_force(script, [first]).urgency == 9
    both = in_force(script, [first, second])
    assert (both.urgency, both.stop, both.max_iterations) == (3, "optstop", 10)
    assert both.deadline == script.deadline == NOW + 7_200
    assert in_force(script, [first, second, change("--stop=")]).stop is None
    assert in_force(script, []) == script


def test_a_job_left_to_slurm_can_be_managed_and_back() -> None:
    script = submitted("--manage=off")
    assert not script.managed
    assert in_force(script, [change("--manage=on")]).managed
    assert not in_force(script, [change("--manage=on"), change("--manage=")]).managed


def test_a_change_that_contradicts_what_is_in_force_is_refused() -> None:
    plain = submitted("--urgency=3")
    with pytest.raises(UsageError, match="--stop: needs --target"):
        check(plain, [], change("--stop=target"))
    targeted = change("--target=accuracy>=0.9", "--stop=target")
    assert check(plain, [], targeted).stop == "target"
    with pytest.raises(UsageError, match="--stop: needs --target"):
        check(plain, [targeted], change("--target="))
    assert check(plain, [targeted], change("--target=", "--stop=")) == plain
    with pytest.raises(UsageError, match="--allow-downgrade: goes no further than --stop already does"):
        check(plain, [targeted], change("--allow-downgrade=target"))


def test_a_stop_by_a_quantity_is_not_lost_by_a_target_of_another_one_or_of_none() -> None:
    script = submitted("--stop=optstop:val_acc")
    with pytest.raises(UsageError, match="--stop: names another quantity than --target"):
        check(script, [], change("--target=val_loss<=0.1"))
    assert check(script, [], change("--target=val_acc>=0.9")).stop == "optstop:val_acc"
    own = change("--target=my_figure>=1", "--stop=optstop:my_figure")
    with pytest.raises(UsageError, match="--stop: whether more or less of it is better is not known"):
        check(submitted("--urgency=3"), [own], change("--target="))


def test_a_permission_to_downgrade_that_a_new_stop_covers_is_left_out_and_comes_back_with_the_old_one() -> None:
    script = submitted("--target=accuracy>=0.9 --allow-downgrade=optstop")
    further = change("--stop=optstop")
    assert check(script, [], further).allow_downgrade is None
    assert check(script, [further], change("--stop=")) == script
    assert script.target == Target("accuracy", ">=", 0.9)
