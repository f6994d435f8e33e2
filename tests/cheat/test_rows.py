"""The simulated cheaters, with the seeds for which their bounds are stated; `make cheat` also has the live ones."""

import pytest

from tests.cheat.harness import HONEST, SEEDS, Outcome, Row, Stage, judge, rows, table


@pytest.mark.parametrize("row", [row for row in rows() if not row.live], ids=lambda row: row.name)
def test_no_claim_gains_more_than_its_bound_over_the_truth_or_harms_others_more(row: Row) -> None:
    verdict = judge(row, [Stage(seed) for seed in range(SEEDS)])
    assert verdict.ok, table([verdict])


def _row(gain: float = 1.0, harm: float = 1.0) -> Row:
    outcomes = {HONEST: Outcome(2.0, 3.0), "shy": Outcome(2.0, 1.5), "bold": Outcome(5.0, 3.0)}
    return Row("1", "a claim", "a score", ("shy", "bold"), lambda attempt, stage: outcomes[attempt], gain, harm)


def test_the_cheater_keeps_its_best_attempt_and_the_worst_harm_counts() -> None:
    verdict = judge(_row(), [Stage(0), Stage(1)])
    assert verdict.best == "bold"
    assert [verdict.gain, verdict.harm] == pytest.approx([2.5, 2.0])


def test_a_broken_bound_of_either_kind_is_found() -> None:
    assert judge(_row(gain=2.6, harm=2.1), [Stage()]).ok
    assert not judge(_row(gain=2.4, harm=2.1), [Stage()]).ok
    assert not judge(_row(gain=2.6, harm=1.9), [Stage()]).ok


def test_names_of_rows_are_their_own() -> None:
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
