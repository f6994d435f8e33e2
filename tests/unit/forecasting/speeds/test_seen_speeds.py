"""What is kept of the step times of jobs, and for whom."""

from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey
from slurmplug.forecasting.speeds import seen_speeds
from slurmplug.forecasting.speeds.seen_speeds import (
    MAX_JOBS,
    PlacementShape,
    SeenSpeeds,
    Whose,
    kind_of,
    typed_kind,
    untyped_kind,
)
from tests.builders import CLUSTER, NOW

ADAS = Whose("type mlp", "ada")
ONE, TWO, FOUR, WIDE = PlacementShape(1, 1), PlacementShape(2, 1), PlacementShape(4, 1), PlacementShape(16, 4)


def key(job_id: int) -> JobKey:
    return JobKey(CLUSTER, job_id, int(NOW))


def test_no_name_of_a_job_passes_for_another_kind_on_a_type_of_gpu() -> None:
    others = kind_of("", "bob", "train")
    named = kind_of("", "ada", typed_kind(others, "a100"))
    assert untyped_kind(named) == (named, "")
    assert untyped_kind(kind_of("", "bob", "train", "a100")) == (others, "a100")


def test_a_step_time_is_kept_by_job_and_placement() -> None:
    seen = SeenSpeeds()
    seen.add(ADAS, ONE, key(1), 9.0)
    seen.add(ADAS, TWO, key(1), 5.0)
    seen.add(ADAS, TWO, key(2), 50.0)
    assert seen.of_job(ADAS, key(1)) == {ONE: 9.0, TWO: 5.0}
    assert seen.scaling(ADAS) == {key(1): {ONE: 9.0, TWO: 5.0}}


@pytest.mark.parametrize("wrong", [(TWO, 0.0), (TWO, np.inf), (TWO, np.nan), (PlacementShape(1, 2), 1.0)])
def test_what_cannot_be_is_not_learnt(wrong: Any) -> None:
    seen = SeenSpeeds()
    seen.add(ADAS, wrong[0], key(1), wrong[1])
    assert seen.of_job(ADAS, key(1)) == {}
    assert seen.whose("type mlp", "ada") == Whose("type mlp", "")


def test_a_step_time_that_hardly_changes_is_no_event() -> None:
    seen = SeenSpeeds()
    for step in (1.0, 1.01, 0.99, 1.2):
        seen.add(ADAS, TWO, key(1), step)
    assert seen.events("type mlp") == (2, 0)
    assert seen.of_job(ADAS, key(1)) == {TWO: 1.2}


def test_it_is_saved_with_the_identity_of_its_job_and_is_the_same_again() -> None:
    seen = SeenSpeeds()
    for job in range(3):
        for place, step in ((ONE, 9.0), (FOUR, 3.0 + job)):
            seen.add(ADAS, place, key(job), step)
    again = SeenSpeeds.from_state(seen.state())
    assert again.scaling(ADAS) == seen.scaling(ADAS)
    assert again.of_job(ADAS, key(2)) == {ONE: 9.0, FOUR: 5.0}
    assert again.state()["step_time"].tolist() == seen.state()["step_time"].tolist()
    assert SeenSpeeds.from_state(SeenSpeeds().state()).scaling(ADAS) == {}


@pytest.mark.parametrize("version", ["seen-speeds-2", "other", None])
def test_what_another_version_saved_is_learnt_again(version: str | None) -> None:
    with pytest.raises(ValueError, match="fit it again"):
        SeenSpeeds.from_state({**SeenSpeeds().state(), "version": version})


def test_of_each_user_the_latest_jobs_are_kept_and_those_seen_once_push_out_no_others() -> None:
    seen = SeenSpeeds()
    for place in (ONE, FOUR):
        seen.add(ADAS, place, key(0), 1.0)
    for job in range(1, 3 * MAX_JOBS):
        seen.add(ADAS, ONE, key(job), 1.0)
    assert len(seen.latest(ADAS)) == MAX_JOBS + 1
    assert seen.of_job(ADAS, key(0)) == {ONE: 1.0, FOUR: 1.0}
    assert seen.of_job(ADAS, key(1)) == {}


def test_of_many_kinds_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_speeds, "MAX_KINDS", 3)
    seen = SeenSpeeds()
    for number in range(9):
        seen.add(Whose(f"job ada run{number}", "ada"), TWO, key(number), 1.0)
    assert set(seen.state()["kinds"].tolist()) == {f"job ada run{number}" for number in (6, 7, 8)}


def test_scaling_is_learnt_from_the_widest_ranges() -> None:
    seen = SeenSpeeds()
    for job in range(seen_speeds.GROUPS + 4):
        for place in (ONE, WIDE if job == 0 else TWO):
            seen.add(ADAS, place, key(job), 1.0)
    jobs = seen.scaling(ADAS)
    assert len(jobs) == seen_speeds.GROUPS
    assert WIDE in jobs[key(0)]


def test_ratios_of_others_count_where_enough_agree_and_the_user_has_none() -> None:
    seen = SeenSpeeds()
    for place, step in ((ONE, 8.0), (TWO, 7.0)):
        seen.add(ADAS, place, key(1), step)
    for number, user in enumerate(("bob", "kim", "joe")):
        for place, step in ((ONE, 2.0), (TWO, 1.0), (WIDE, 0.5 + 0.1 * number)):
            seen.add(Whose("type mlp", user), place, key(10 + number), step)
    seen.add(Whose("type mlp", "eve"), PlacementShape(64, 16), key(99), 1e-9)
    seen.add(Whose("type mlp", "eve"), ONE, key(99), 1e9)
    found = seen.scaling(ADAS)
    assert found.pop(key(1)) == {ONE: 8.0, TWO: 7.0}
    assert set(found) == {(ONE, WIDE), (TWO, WIDE)}
    assert found[ONE, WIDE][WIDE] / found[ONE, WIDE][ONE] == pytest.approx(0.6 / 2.0)
    assert found[TWO, WIDE][WIDE] / found[TWO, WIDE][TWO] == pytest.approx(0.6 / 1.0)


def test_others_who_were_nearly_alike_agree() -> None:
    """On 15 to 17 GPUs, each of which does in one iteration a tenth more than on one."""
    seen = SeenSpeeds()
    for user, gpus in (("bob", 15), ("kim", 16), ("joe", 17)):
        for place in (ONE, PlacementShape(gpus, 4)):
            seen.add(Whose("type mlp", user), place, user, (1.1 if place.gpus > 1 else 1.0) / place.gpus)
    [steps] = seen.scaling(seen.whose("type mlp", "ada")).values()
    assert steps == {ONE: 1.0, WIDE: pytest.approx(1.1 / 16)}


def test_two_others_are_not_enough() -> None:
    seen = SeenSpeeds()
    for user in ("bob", "eve"):
        for place in (ONE, TWO):
            seen.add(Whose("type mlp", user), place, user, 1.0)
    assert seen.scaling(seen.whose("type mlp", "ada")) == {}
    assert seen.most_gpus(seen.whose("type mlp", "ada")) == 0
    assert seen.most_gpus(seen.whose("type mlp", "eve")) == 2
