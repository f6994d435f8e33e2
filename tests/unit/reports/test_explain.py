"""Sentences out of reasons."""

import json
import re
from collections.abc import Sequence
from string import Formatter

import pytest

from policies.plan import OtherJob, Reason
from policies.snapshot import JobKey
from slurmplug.reports import explain
from slurmplug.reports.explain import SENTENCES, VARIANTS, About, background, sentence
from slurmplug.rules import guardrails
from slurmplug.spool import report_lines
from slurmplug.spool.trials import MAX_TRIALS
from slurmplug.spool.values import Points
from tests.builders import forecasts, jobs, nodes, snapshot

STOP: dict[str, float | str] = {
    "asked": "target", "in_force": "target", "overload": "no", "overload_degree": 0.5, "waiting": 3.0,
    "achieved": 0.921, "target": 0.92, "target_of": "job", "probability": 1.0, "predicted": 0.95,
    "predicted_maximum": 0.951, "tolerance": 0.0046, "confidence": 0.95, "cause": "reached", "iteration": 41.0,
    "max_iterations": 90.0,
}  # fmt: skip


def test_a_stop_at_the_target_names_value_target_and_iteration() -> None:
    assert sentence(Reason("target", STOP)) == (
        "Its accuracy of 0.921 meets the target of 0.92 that the job set, after iteration 41 of 90"
    )


def test_a_stop_names_the_iteration_of_the_best_value_where_that_is_an_earlier_one() -> None:
    assert sentence(Reason("target", {**STOP, "achieved_at": 38.0})) == (
        "Its accuracy of 0.921 at iteration 38 meets the target of 0.92 that the job set, after iteration 41 of 90"
    )


def test_admission_tells_what_a_job_costs_and_what_it_is_worth() -> None:
    refused = Reason("rejected", {"price": 12.0, "payoff": -4.5, "utility": 7.5, "needs": "a lower price"})
    assert sentence(refused) == (
        "It is not admitted for now: the best schedule costs 12, and completion by then is worth 7.5; "
        "it needs a lower price"
    )
    nowhere = Reason("rejected", {"utility": 7.5, "needs": "more free GPUs within the horizon"})
    assert sentence(nowhere) == "It is not admitted for now; it needs more free GPUs within the horizon"
    assert sentence(Reason("admitted", {"price": 1.5, "payoff": 6.0})) == (
        "It is admitted: its GPUs cost 6 less than its completion is worth"
    )
    assert sentence(Reason("admitted")) == "It is admitted"


def test_a_maximum_names_what_is_still_expected() -> None:
    output = sentence(Reason("optstop", {**STOP, "cause": "maximum"}))
    assert output == (
        "Its accuracy gets no better: it has reached 0.921, 0.951 is the most that is expected, within the tolerance "
        "of 0.0046, after iteration 41 of 90"
    )


def test_a_miss_names_the_probability() -> None:
    output = sentence(Reason("optstop", {**STOP, "cause": "misses", "probability": 0.0123}))
    assert "will miss the target of 0.92" in output
    assert "the probability to reach the target is 1.2%" in output


def test_a_quantity_that_is_better_when_lower_is_told_with_its_own_sign() -> None:
    facts = {**STOP, "achieved": -0.08, "target": -0.1, "predicted": -0.05}
    assert sentence(Reason("target", facts), About("loss", -1.0)).startswith("Its loss of 0.08 meets the target of 0.1")


def test_facts_that_are_not_known_leave_no_hole() -> None:
    few = {name: STOP[name] for name in ("cause", "achieved", "target", "iteration")}
    assert sentence(Reason("target", few)) == "Its accuracy of 0.921 meets the target of 0.92, after iteration 41"


def test_a_rule_that_is_not_known_is_told_with_its_facts() -> None:
    assert sentence(Reason("full moon", {"phase": 1.0, "where": "here"})) == 'Rule "full moon": phase 1, where here'
    assert sentence(Reason("full moon")) == 'Rule "full moon"'


def test_a_known_rule_whose_facts_are_of_another_kind_is_told_with_them() -> None:
    assert sentence(Reason("stops per cycle", {"limit": "many"})) == 'Rule "stops per cycle": limit many'
    assert sentence(Reason("target", {"cause": "reached"})) == 'Rule "target": cause reached'


def test_nothing_of_a_reason_reaches_a_terminal_raw() -> None:
    evil = "\x1b[2J\n\u202e"
    for reason in (Reason(evil, {evil: evil}), Reason("size", {"detail": evil}), Reason("mode", {"mode": evil})):
        assert sentence(reason, About(evil)).isprintable()


def test_braces_in_a_fact_are_only_braces() -> None:
    assert sentence(Reason("size", {"detail": "{achieved} {0.__class__}"})).endswith("({achieved} {0.__class__})")


OTHER = JobKey("testing", 777_777, 1_699_999_999)


def placeholders(segments: Sequence[str]) -> set[str]:
    """The facts that a sentence is made of."""
    return {name.partition(".")[0] for segment in segments for _, name, _, _ in Formatter().parse(segment) if name}


@pytest.mark.parametrize("name", [*SENTENCES, "a rule of a policy from elsewhere"])
def test_no_sentence_tells_of_a_job_that_its_reader_does_not_see(name: str) -> None:
    first, _, last = name.rpartition(" ")
    rule, cause = (first, {"cause": last}) if first in VARIANTS else (name, {})
    facts = dict.fromkeys(placeholders(SENTENCES.get(name, ())) | {"other"}, OtherJob(OTHER, 987.654321))
    reason = Reason(rule, {**facts, **cause})
    for about in (None, About(), About("loss", -1.0)):
        for text in (sentence(reason, about), background(reason)):
            assert not re.search("777|987|988|169", text), text


def test_one_thing_is_told_of_in_the_singular() -> None:
    told = [sentence(Reason("share", {"gpus": gpus, "had": 4.0})) for gpus in (1.0, 2.0, float("inf"))]
    assert told == [f"Its share is {gpus} now; it was 4" for gpus in ("1 GPU", "2 GPUs", "inf GPUs")]


def test_another_job_is_told_of_only_to_who_sees_it() -> None:
    reason = Reason("gives way", {"by": OtherJob(OTHER, 5.0), "rank": 2.0, "lost": 60.0})
    assert sentence(reason, About(sees=OTHER.__eq__)) == (
        "It is preempted by job 777777, whose score of 5 is above its own of 2; 60 s of its training are lost"
    )
    assert sentence(reason) == ("It is preempted by a job that Slurm does not show you; 60 s of its training are lost")
    unknown = Reason("full moon", {"of": OtherJob(OTHER, 5.0)})
    assert sentence(unknown, About(sees=OTHER.__eq__)) == 'Rule "full moon": of job 777777'
    assert sentence(unknown) == 'Rule "full moon": of a job that Slurm does not show you'


def test_a_job_that_an_earlier_release_recorded_by_its_number_is_not_told_of() -> None:
    assert sentence(Reason("gives way", {"rank": 2.0, "lost": 60.0})) == (
        "It is preempted; 60 s of its training are lost"
    )


@pytest.mark.parametrize(
    ("overload", "in_force", "told"),
    [("yes", "target", True), ("yes", "iterations", False), ("no", "target", False)],
)
def test_overload_is_told_of_only_where_it_took_the_job_further_than_it_asked(
    overload: str, in_force: str, told: bool
) -> None:
    facts = {**STOP, "asked": "iterations", "in_force": in_force, "overload": overload}
    assert bool(background(Reason("target", facts))) == told
    if told:
        assert "3 jobs waited for resources, and the nodes were 50% in use" in background(Reason("target", facts))


class TestEveryRuleHasItsSentence:
    def test_those_of_the_guardrails_that_protect(self) -> None:
        assert {each.rule for each in guardrails.PROTECTIONS} <= SENTENCES.keys()

    def test_those_of_reports(self) -> None:
        doubted = {
            b"x" * 20_000, b"nonsense", b'{"loss": 1}', b'{"iteration": -1}', b'{"iteration": "x"}',
            b'{"iteration": 2, "time": -1}', b'{"iteration": 2, "a b": 1}', b'{"iteration": 2, "loss": null}',
            b'{"iteration": 2, "loss": 1}\n{"iteration": 2, "loss": 2}\n{"iteration": 1, "loss": 2}',
            b'{"iteration": 1, "trial": [1]}',
            b"\n".join(b'{"iteration": 1, "trial": %d}' % i for i in range(MAX_TRIALS + 1)),
            json.dumps({"iteration": 3, **{f"q{i}": i for i in range(40)}}).encode(),
            b"\n".join(b'{"iteration": %d}' % i for i in range(report_lines.MAX_POINTS + 1)),
        }  # fmt: skip
        rules = {rule for data in doubted for rule in report_lines.fold(Points(), data, now=9.0)[1]}
        assert len(rules) == 14
        assert rules <= SENTENCES.keys()

    def test_those_of_the_policy(self) -> None:
        from policies.mlfs.mlfs import MLFS

        queue = snapshot(jobs(2, parents=[(0, 0), (1, -1)]), nodes())
        notes = MLFS().decide(queue, forecasts(2), {}).notes
        assert {reason.rule for reason in notes.values()} == {"dependency-cycle", "parent-missing"} <= SENTENCES.keys()


def test_every_term_of_the_policy_has_its_words() -> None:
    from policies.mlfs.mlfs import MLFS

    assert MLFS().decide(snapshot(jobs(1), nodes()), forecasts(1), {}).terms.keys() == explain.TERMS.keys()


def test_every_sentence_is_one_of_a_rule_and_reads_as_one() -> None:
    for segments in SENTENCES.values():
        assert segments[0][0].isupper() or segments[0].startswith("{")
        assert not segments[-1].endswith(".")
