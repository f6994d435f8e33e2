"""The run times of jobs by the type of their GPUs."""

from predictors.runtime import Job, RuntimePredictor

RUNS = 80


def job(kind: str, number: int) -> Job:
    return {
        "user": "ada", "account": "lab", "type": "resnet", "name": "train", "gpus": 2, "gpu_type": kind, "cpus": 4,
        "mem": 1000.0, "time_limit": 86_400.0, "submit": 1e9 + 1e5 * number, "end": 1e9 + 1e5 * number + 5e4,
    }  # fmt: skip


def trained(*kinds: str) -> RuntimePredictor:
    """On runs of one program with one request, which take ten times as long on a k80 as on a v100."""
    seconds = {"v100": 3_000.0, "k80": 30_000.0}
    runs = [(kind, number) for number in range(RUNS) for kind in kinds]
    return RuntimePredictor().fit(
        [job(kind, n) for kind, n in runs], [seconds[kind] * (1 + n % 3 / 50) for kind, n in runs]
    )


def test_a_job_goes_by_the_runs_on_its_type_of_gpu() -> None:
    fast, slow = trained("v100", "k80").predict_many([job("v100", RUNS + 10), job("k80", RUNS + 10)]).median
    assert 2_500 < fast < 4_000
    assert 25_000 < slow < 40_000


def test_a_job_whose_type_was_never_seen_or_is_not_known_goes_by_all_of_them() -> None:
    predictor = trained("v100")
    seen, unseen, unknown = predictor.predict_many([job(kind, RUNS + 10) for kind in ("v100", "k80", "")]).median
    assert seen == unseen == unknown


def test_a_job_of_any_type_is_less_certain_where_types_differ() -> None:
    predictor = trained("v100", "k80")
    low, high = predictor.predict_many([job("", RUNS + 10), job("v100", RUNS + 10)]).quantile([0.05, 0.95]).T
    assert high[0] / low[0] > high[1] / low[1]
