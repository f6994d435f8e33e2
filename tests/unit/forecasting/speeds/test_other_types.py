"""Speeds on types of GPU on which a job, or its kind, was not seen."""

from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey
from predictors.forecast import Forecast
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.seen_speeds import PlacementShape, SeenSpeeds, Whose, typed_kind, untyped_kind
from slurmplug.forecasting.speeds.speed_fans import SpeedFans
from tests.builders import CLUSTER, NOW, jobs, nodes, snapshot

BERT, RESNET = "type bert", "type resnet"


def seen(
    *runs: tuple[str, str, float], user: str = "ada", times: int = 8, into: SeenSpeeds | None = None
) -> SeenSpeeds:
    """Of each (kind, type of GPU, seconds an iteration) as many jobs on two GPUs."""
    made = SeenSpeeds() if into is None else into
    for kind, gpu_type, step in runs:
        for run in range(times):
            made.add(Whose(typed_kind(kind, gpu_type), user), PlacementShape(2, 1), (user, kind, gpu_type, run), step)
    return made


def speed(known: SeenSpeeds, gpu_type: str, kind: str = "bert", user: str = "ada", **columns: Any) -> Any:
    """Median, and the ends of the 90% interval, of iterations a second of a waiting job on two GPUs."""
    waits = snapshot(jobs(user=user, kind=kind, gpus=2, gpus_max=8, gpu_type=gpu_type, max_iterations=90, **columns))
    fan = SpeedFans(KindPaces(known)).speeds(waits, Forecast.unknown(1))
    return fan.at([0], 2).quantile([0.5, 0.05, 0.95])[0] if fan.known.any() else None


def test_runs_on_different_types_are_never_taken_for_one() -> None:
    known = seen((BERT, "v100", 0.1), (BERT, "k80", 2.0))
    assert speed(known, "v100")[0] == pytest.approx(10.0, rel=0.05)
    assert speed(known, "k80")[0] == pytest.approx(0.5, rel=0.05)


def test_a_kind_that_never_ran_on_a_type_goes_by_others_that_ran_on_both() -> None:
    known = seen((RESNET, "v100", 0.1), (RESNET, "k80", 1.0), ("type lm", "v100", 1.0), ("type lm", "k80", 9.0))
    seen((BERT, "v100", 0.1), into=known)
    median, low, high = speed(known, "k80")
    assert 1.0 < median < 5.0  # ten times as slow, were all kinds alike; 10 it/s, were types
    assert low < 1.0
    _, low_seen, high_seen = speed(known, "v100")
    assert high / low > 1.5 * high_seen / low_seen


def test_before_any_kind_ran_on_both_types_only_little_is_known() -> None:
    median, low, high = speed(seen((BERT, "v100", 0.1)), "k80")
    assert median == pytest.approx(10.0, rel=0.05)
    assert high / low > 20.0


def test_a_job_whose_type_is_not_known_goes_by_all_types() -> None:
    median, low, high = speed(seen((BERT, "v100", 0.1), (BERT, "k80", 1.6)), "")
    assert 0.625 < median < 10.0
    assert (low < 0.625, high > 10.0) == (True, True)


def test_a_job_that_moves_to_another_type_takes_its_own_size_along() -> None:
    known = seen((BERT, "v100", 0.1), (BERT, "k80", 1.0))
    fans = SpeedFans(KindPaces(known))
    key = (JobKey(CLUSTER, 77, int(NOW)),)
    columns: dict[str, Any] = {"keys": key, "kind": "bert", "gpus": 2, "gpus_max": 8, "max_iterations": 90}
    trains = snapshot(
        jobs(1, state="running", started=NOW - 1000.0, iteration=9, iteration_time=3.0, gpu_type="v100", **columns),
        nodes(1),
        runs_on=np.array([[0, 0, 2]]),
    )
    fans.speeds(trains, Forecast.unknown(1))
    waits = snapshot(jobs(1, gpu_type="k80", **columns))
    again = fans.speeds(waits, Forecast.unknown(1)).at([0], 2).median[0]
    assert 1 / 60 < again < 1 / 15  # 3 s on a v100; others take ten times as long on a k80, but .1 s to 1 s


def test_one_users_ratios_say_nothing_of_anothers() -> None:
    known = seen((BERT, "v100", 0.1))
    alone = speed(known, "k80")
    for liar in ("eve", "bob"):
        seen(
            (RESNET, "v100", 0.1), (RESNET, "k80", 1e6), (BERT, "v100", 0.1), (BERT, "k80", 1e6), user=liar, into=known
        )
    assert speed(known, "k80").tolist() == alone.tolist()
    for honest in ("kim", "lee", "max"):
        seen((RESNET, "v100", 0.1), (RESNET, "k80", 1.0), user=honest, into=known)
    assert 1.0 < speed(known, "k80")[0] < 10.0


def test_kinds_are_kept_with_their_types_over_a_restart() -> None:
    known = SeenSpeeds()
    known.add(Whose(typed_kind(BERT, "v100"), "ada"), PlacementShape(2, 1), JobKey(CLUSTER, 1, 2), 0.5)
    again = SeenSpeeds.from_state(known.state())
    assert again.gpu_types(BERT) == ["v100"]
    assert speed(again, "v100")[0] == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("kind", [BERT, "job ada a\x1fb", "job ada "])
@pytest.mark.parametrize("gpu_type", ["a100", "1g.10gb"])
def test_a_type_is_read_from_a_kind_whatever_users_call_their_jobs(kind: str, gpu_type: str) -> None:
    assert untyped_kind(typed_kind(kind, gpu_type)) == (kind, gpu_type)
