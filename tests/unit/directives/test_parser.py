"""Directives read from scripts and comments."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from slurmplug.directives.grammar import MAX_PROBLEMS, TABLE, Directive
from slurmplug.directives.parser import Checkpoint, Directives, GpuRange, Target, Utility, parse

BERLIN = ZoneInfo("Europe/Berlin")
SUBMITTED = datetime(2026, 11, 21, 8, 30, tzinfo=BERLIN).timestamp()
HOUR = 3600.0


def directives(script: str | bytes = "", comment: str | bytes = "") -> Directives:
    return parse(script, comment, submitted=SUBMITTED, zone=BERLIN)


def one(setting: str) -> Directives:
    """The directives of a script with this line, which is good."""
    found = directives(f"#PLUG {setting}\n")
    assert found.problems == ()
    return found


def wrong(setting: str) -> str:
    """What is said of a script with this line, which alone is wrong."""
    found = directives(f"#!/bin/sh\n#PLUG {setting}\n#PLUG --manage=off\n")
    (problem,) = found.problems
    assert found == Directives(manage="off", problems=(problem,))
    return str(problem)


def test_a_job_without_directives_asks_for_nothing_and_is_managed() -> None:
    assert directives("#!/bin/bash\n#SBATCH -N1\nsrun train\n") == Directives()
    assert Directives().managed


def test_the_directives_of_a_script_are_typed_values() -> None:
    script = """#!/bin/bash
#SBATCH --gres=gpu:4 --requeue
#PLUG --deadline=tomorrow 18:00        # when the paper is due

# remarks and blank lines may stand between
#PLUG --target=accuracy>=0.92 --max-iterations=90
#PLUG --stop=optstop --allow-downgrade=target
#PLUG --gpus=2..8 --checkpoint=USR1:batch@2m --urgency=7
#PLUG --type=resnet50 --ml-job=resnet50-run7 --params=25.6M --role=worker --utility=50,0.5,12
srun python train.py
# PLUG --urgency=1
"""
    assert directives(script) == Directives(
        deadline=datetime(2026, 11, 22, 18, tzinfo=BERLIN).timestamp(),
        target=Target("accuracy", ">=", 0.92),
        max_iterations=90,
        stop="optstop",
        allow_downgrade="target",
        gpus=GpuRange(2, 8),
        checkpoint=Checkpoint("USR1", "batch", 120),
        urgency=7,
        type="resnet50",
        ml_job="resnet50-run7",
        params=25.6e6,
        role="worker",
        utility=Utility(50, 0.5, 12),
    )


@pytest.mark.parametrize(
    ("value", "hours"),
    [
        ("2h", 2),
        ("90m", 1.5),
        ("1d12h", 36),
        ("1-12:00:00", 36),
        ("0-1:30", 1.5),
        ("2-0", 48),
        ("18:00", 9.5),
        ("today 18:00", 9.5),
        ("8:30", 24),
        ("08:00", 23.5),
        ("tomorrow 18:00", 33.5),
        ("2026-11-21T18:00", 9.5),
        ("2026-11-21 18:00:36", 9.51),
        ("2026-11-21T18:00Z", 10.5),
        ("2026-11-21T18:00+02:00", 8.5),
        ("2026-11-21T18:00-0130", 12),
        ('"tomorrow 18:00"', 33.5),
    ],
)
def test_a_deadline_counts_from_submission_on_the_clusters_clock(value: str, hours: float) -> None:
    assert one(f"--deadline={value}").deadline == pytest.approx(SUBMITTED + hours * HOUR)


def test_tomorrow_at_six_is_at_six_on_the_day_the_clocks_change() -> None:
    before = datetime(2026, 10, 24, 18, tzinfo=BERLIN).timestamp()
    found = parse("#PLUG --deadline=tomorrow 18:00", submitted=before, zone=BERLIN)
    assert found.deadline == before + 25 * HOUR


@pytest.mark.parametrize(
    "value", ["120", "12:00:00", "2 hours", "2026-12-01", "2026-02-30T10:00", "25:00", "1e9h", "٢h"]
)
def test_a_deadline_that_says_no_time_is_wrong(value: str) -> None:
    assert wrong(f"--deadline={value}").startswith("line 2: --deadline=")


@pytest.mark.parametrize("value", ["0h", "today 08:00", "2026-11-21T08:30", "2020-01-01T00:00Z"])
def test_a_deadline_before_the_submission_is_wrong(value: str) -> None:
    assert wrong(f"--deadline={value}").endswith("lies before the submission")


@pytest.mark.parametrize("value", ["999999d", "9999-23:59:59", "2999-12-31T23:59"])
def test_a_deadline_beyond_all_plans_is_wrong(value: str) -> None:
    assert wrong(f"--deadline={value}").endswith("lies more than 3650 days ahead")


@pytest.mark.parametrize("submitted", [float("nan"), float("inf"), -float("inf"), 1e300, -1e300])
def test_a_submission_time_that_is_none_spoils_only_the_deadline(submitted: float) -> None:
    found = parse("#PLUG --deadline=18:00 --urgency=3", submitted=submitted, zone=UTC)
    assert (found.deadline, found.urgency) == (None, 3)
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("accuracy>=0.92", Target("accuracy", ">=", 0.92)),
        ("val_loss <= -1e-3", Target("val_loss", "<=", -0.001)),
        ("perplexity<=+12.", Target("perplexity", "<=", 12)),
    ],
)
def test_a_target_names_a_quantity_a_direction_and_a_number(value: str, target: Target) -> None:
    assert one(f"--target={value}").target == target


def test_a_target_is_reached_from_its_side_and_by_equality() -> None:
    assert [Target("accuracy", ">=", 0.5).reached(value) for value in (0.4, 0.5, 0.6)] == [False, True, True]
    assert [Target("loss", "<=", 0.5).reached(value) for value in (0.4, 0.5, 0.6)] == [True, True, False]


@pytest.mark.parametrize(
    ("value", "checkpoint"),
    [
        ("USR1", Checkpoint("USR1", "steps", None)),
        ("sigterm:full", Checkpoint("TERM", "full", None)),
        ("USR2:batch@90", Checkpoint("USR2", "batch", 90)),
        ("file", Checkpoint(None, "steps", None)),
        ("file@5m", Checkpoint(None, "steps", 300)),
    ],
)
def test_a_checkpoint_says_how_it_is_asked_for(value: str, checkpoint: Checkpoint) -> None:
    assert one(f"--checkpoint={value}").checkpoint == checkpoint


def test_a_number_of_gpus_is_a_range_of_one() -> None:
    assert one("--gpus=4").gpus == GpuRange(4, 4)


@pytest.mark.parametrize(("value", "params"), [("25600000", 25.6e6), ("25.6m", 25.6e6), ("1.3B", 1.3e9), ("1e6", 1e6)])
def test_parameters_may_have_a_suffix(value: str, params: float) -> None:
    assert one(f"--params={value}").params == pytest.approx(params)


def test_parameters_may_say_what_the_run_time_depends_on() -> None:
    alone, both, number = (one(f"--params={text}") for text in ("rows:2k,operation:sort", "25.6M, rows:.5", "25.6M"))
    assert (alone.model_params, alone.work) == (None, "operation:sort,rows:2000")
    assert (both.model_params, both.work) == (25.6e6, "rows:0.5")
    assert (number.model_params, number.work) == (25.6e6, "")


@pytest.mark.parametrize("text", ["rows:1,25M", "25M,25M", "rows:1,rows:2", "rows:-1", "rows:", "25M,", "a b:1"])
def test_parameters_that_say_two_things_or_none_are_refused(text: str) -> None:
    assert parse(f"#PLUG --params={text}\n", submitted=0.0).problems


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_example_of_the_table_is_good(row: Directive) -> None:
    name, example = row.name, row.example
    target = "" if name == "target" else "--target=x>=1 "
    found = one(f"{target}--{name}={example}")
    assert getattr(found, name.replace("-", "_")) is not None


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row.choices and row.kind == "choice"], ids=lambda row: row.name
)
def test_every_choice_of_the_table_is_good(row: Directive) -> None:
    for choice in row.choices:
        one(f"--target=x>=1 --{row.name}={choice}")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "0x7", "1_0", "7;", "٧", "７", "", " ", "7" * 100])
def test_what_is_no_plain_number_is_wrong(number: str) -> None:
    wrong(f"--urgency={number}")


def test_the_nearest_word_is_named() -> None:
    assert wrong("--urgencey=7") == "line 2: --urgencey=7: no such directive; did you mean --urgency?"
    assert wrong("--stop=optstp").endswith("; did you mean --stop=optstop?")
    assert wrong("--zzz=7") == "line 2: --zzz=7: no such directive"


@pytest.mark.parametrize("written", ["--urgency 7", "--urgency = 7", "--urgency =7", "--urgency"])
def test_a_directive_in_another_form_is_answered_with_the_right_one(written: str) -> None:
    assert wrong(written) == f"line 2: {written}: write --name=value"


def test_a_wrong_value_is_answered_with_what_is_expected_and_an_example() -> None:
    assert wrong("--urgency=11") == ("line 2: --urgency=11: expected a number from 0 to 10, for example --urgency=7")


def test_the_first_of_two_counts() -> None:
    found = directives("#PLUG --urgency=1\n#PLUG --urgency=2\n")
    assert found.urgency == 1
    assert [str(problem) for problem in found.problems] == [
        "line 2: --urgency=2: given twice: leave one out (of an accepted job the first one counts)"
    ]


def test_a_wrong_one_does_not_stand_in_the_way_of_a_right_one() -> None:
    found = directives("#PLUG --urgency=x\n#PLUG --urgency=2\n")
    assert (found.urgency, len(found.problems)) == (2, 1)


def test_the_comment_overrides_the_script() -> None:
    found = directives("#PLUG --urgency=1 --type=mlp\n", "plug: urgency=2 deadline=tomorrow 18:00")
    assert (found.urgency, found.type, found.problems) == (2, "mlp", ())
    assert found.deadline == SUBMITTED + 33.5 * HOUR


def test_a_comment_of_another_purpose_is_nobodys_directive() -> None:
    assert directives(comment="urgency=2") == Directives()


def test_a_problem_in_the_comment_says_so() -> None:
    assert str(directives(comment="plug: urgency=99").problems[0]).startswith("comment: urgency=99: expected")


@pytest.mark.parametrize("setting", ["--stop=target", "--allow-downgrade=target"])
def test_stopping_at_a_target_needs_one(setting: str) -> None:
    assert wrong(setting) == f"line 2: {setting}: needs --target"


def test_a_percentage_is_a_share() -> None:
    for written in ("accuracy>=92%", "accuracy >= 92 %"):
        assert directives(f"#PLUG --target={written}\n").target == Target("accuracy", ">=", 0.92)


def test_stop_may_name_the_quantity_that_it_looks_at() -> None:
    found = directives("#PLUG --stop=optstop:val_loss\n")
    assert (found.stop, found.stop_option, found.stop_quantity) == ("optstop:val_loss", "optstop", "val_loss")
    assert directives("").stop_option == "iterations"


def test_stop_names_the_quantity_of_the_target_if_there_is_one() -> None:
    assert directives("#PLUG --stop=optstop:purity --target=purity>=0.9\n").stop == "optstop:purity"
    found = directives("#PLUG --stop=optstop:val_loss --target=accuracy>=0.9\n")
    assert (found.stop, found.target) == (None, Target("accuracy", ">=", 0.9))
    assert [problem.rule for problem in found.problems] == ["other-quantity"]


def test_the_direction_of_a_quantity_that_stop_names_must_be_known() -> None:
    assert wrong("--stop=optstop:purity").endswith("is not known: name it in --target")


@pytest.mark.parametrize(("stop", "downgrade"), [("optstop", "optstop"), ("target", "target")])
def test_a_downgrade_that_goes_no_further_than_stop_is_a_contradiction(stop: str, downgrade: str) -> None:
    found = directives(f"#PLUG --target=a>=1 --stop={stop} --allow-downgrade={downgrade}\n")
    assert (found.stop, found.allow_downgrade) == (stop, None)
    assert [problem.rule for problem in found.problems] == ["no-further"]


@pytest.mark.parametrize(("stop", "downgrade"), [("target", "optstop"), ("optstop", "target")])
def test_a_downgrade_may_name_another_option_than_stop(stop: str, downgrade: str) -> None:
    found = directives(f"#PLUG --target=a>=1 --stop={stop} --allow-downgrade={downgrade}\n")
    assert (found.stop, found.allow_downgrade, found.problems) == (stop, downgrade, ())


def test_a_contradiction_between_comment_and_script_names_the_directive_that_falls() -> None:
    found = directives("#PLUG --allow-downgrade=optstop\n", "plug: stop=optstop")
    assert [problem.line for problem in found.problems] == [1]


@pytest.mark.parametrize(
    "script", ["#PLUG\n", "#PLUG urgency=7\n", "#PLUG --urgency\n", "#PLUG # nothing\n", "#plug --urgency=7\n"]
)
def test_a_line_of_another_form_is_told(script: str) -> None:
    found = directives(script)
    assert (found.urgency, len(found.problems)) == (None, 1)


@pytest.mark.parametrize(
    "script", ["#PLUGIN --urgency=7\n", "##PLUG --urgency=7\n", "#Plug in the cable\n", "# PLUG\n"]
)
def test_a_remark_that_only_looks_alike_is_a_remark(script: str) -> None:
    assert directives(script) == Directives()


def test_terminal_escapes_and_control_characters_never_reach_a_message() -> None:
    script = b"#PLUG --type=\x1b[2J\x9b31m\x07 --ml-job=a\x00b --urgency=\xff\n#PLUG --role=\xe2\x80\xae\n"
    found = directives(script)
    assert len(found.problems) == 4
    assert all(32 <= ord(char) < 127 for problem in found.problems for char in str(problem))


def test_windows_line_ends_are_line_ends() -> None:
    assert directives(b"#!/bin/sh\r\n\r\n#PLUG --urgency=7\r\necho\r\n").urgency == 7


def test_very_many_problems_are_counted_and_the_good_directives_count() -> None:
    found = directives("#PLUG --bad=1\n" * 100 + "#PLUG --urgency=7\n")
    assert found.urgency == 7
    assert len(found.problems) == MAX_PROBLEMS + 1
    assert str(found.problems[-1]) == "90 more"


def test_only_the_head_of_a_long_script_is_read_and_a_script_with_directives_says_so() -> None:
    found = directives("#PLUG --urgency=7\n" + "#\n" * 5_000 + "#PLUG --type=late\n")
    assert (found.urgency, found.type) == (7, None)
    assert [problem.rule for problem in found.problems] == ["head"]
    assert directives("#\n" * 5_000) == Directives()
