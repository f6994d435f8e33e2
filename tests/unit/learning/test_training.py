"""What the predictors are trained on: the runs that completed by themselves, and their curves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey
from predictors.forecast import Forecast
from predictors.runtime import RuntimePredictor
from slurmplug.forecasting.speeds.seen_speeds import PlacementShape, SeenSpeeds, Whose
from slurmplug.learning.training import last_trained, load_saved, train
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.run_queries import finished_run_counts, latest_finished_runs, latest_run_times
from tests.ledgers import Site


def finished(site: Site, curve: list[float], script: bytes = b"#PLUG --max-iterations=9\n", **columns: Any) -> int:
    """A job that reported this curve and completed."""
    job_id = site.cluster.submit(script, **columns)
    site.cluster.start(job_id)
    for iteration, value in enumerate(curve, 1):
        site.cluster.time += 10.0
        site.cluster.say(job_id, iteration=iteration, accuracy=value, loss=1.0 - value)
    site.cycle()
    site.cluster.end(job_id)
    site.cycle()
    return job_id


class Notes:
    """What the curve predictor is fitted on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.curves: list[list[float]] = []
        self.metas: list[Any] = []
        monkeypatch.setattr("slurmplug.learning.training.LearningCurvePredictor.fit", self.fit)

    def fit(self, curves: list[np.ndarray], meta: Any = None) -> None:
        self.curves = [curve.round(9).tolist() for curve in curves]
        self.metas = meta


def test_curves_are_learnt_from_runs_that_were_never_requeued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    with Site(tmp_path) as site:
        finished(site, [0.1, 0.3, 0.5, 0.6, 0.65])
        finished(site, [0.9, 0.8, 0.7, 0.6, 0.5], b"#PLUG --target=loss<=0.1\n")
        train(site.ledger, "stack", site.cluster.time)
        assert sorted(notes.curves) == [[-0.1, -0.2, -0.3, -0.4, -0.5], [0.1, 0.3, 0.5, 0.6, 0.65]]
        assert finished_run_counts(site.ledger, 0.0) == (2, 2)
        assert finished_run_counts(site.ledger, last_trained(site.ledger)) == (0, 2)


def test_what_a_run_told_again_after_a_requeue_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    with Site(tmp_path) as site:
        job_id = site.cluster.submit(b"#PLUG --max-iterations=9\n")
        for values in ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.5, 0.6, 0.7]):
            site.cluster.start(job_id)
            for iteration, value in enumerate(values, 1):
                site.cluster.say(job_id, iteration=iteration, accuracy=value)
            site.cycle()
            site.cluster.requeue(job_id)
            site.cycle()
        site.cluster.start(job_id)
        site.cluster.time += 10.0
        site.cluster.end(job_id)
        site.cycle()
        train(site.ledger, "stack", site.cluster.time)
        assert notes.curves == [[0.1, 0.2, 0.5, 0.6, 0.7]]


@pytest.mark.parametrize("claims", [[1e300] * 6, [0.5]], ids=["impossible", "too few"])
def test_a_claim_that_teaches_nothing_fails_no_training(tmp_path: Path, claims: list[float]) -> None:
    with Site(tmp_path) as site:
        finished(site, claims)
        finished(site, [0.1, 0.3, 0.5, 0.6, 0.65])
        train(site.ledger, "stack", site.cluster.time)
        assert load_saved(site.ledger, "stack") is not None


def test_a_ledger_without_models_remembers_none(ledger_in_memory: Ledger) -> None:
    assert load_saved(ledger_in_memory, "stack") is None


def test_another_model_is_trained_anew(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        finished(site, [0.1, 0.3, 0.5, 0.6, 0.65])
        train(site.ledger, "svr", site.cluster.time)
        assert load_saved(site.ledger, "stack") is None
        assert load_saved(site.ledger, "svr") is not None


def test_a_run_is_learnt_from_as_it_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt, asked = [], []
    monkeypatch.setattr(
        "slurmplug.learning.training.RuntimePredictor.fit", lambda _, jobs, seconds: learnt.extend(jobs)
    )
    predict_many = RuntimePredictor.predict_many

    def noted(self: RuntimePredictor, jobs: list[dict[str, float | str]]) -> Forecast:
        asked.extend(jobs)
        return predict_many(self, jobs)

    monkeypatch.setattr(RuntimePredictor, "predict_many", noted)
    with Site(tmp_path) as site:
        finished(site, [0.1, 0.3, 0.5, 0.6, 0.65], b"#PLUG --type=mlp --params=1M,rows:2k,layers:3\n")
        train(site.ledger, "stack", site.cluster.time)
    assert {**asked[0], "end": learnt[0]["end"], "bound": learnt[0]["bound"]} == learnt[0]
    assert learnt[0]["type"] == "mlp"
    assert learnt[0]["work"] == "layers:3,rows:2000"


def test_a_curve_is_learnt_with_what_was_known_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    with Site(tmp_path) as site:
        finished(site, [0.1, 0.3, 0.5, 0.6, 0.65], b"#PLUG --type=mlp\n")
        finished(site, [0.2, 0.3, 0.5, 0.6, 0.65], b"#PLUG --max-iterations=9\n")
        train(site.ledger, "stack", site.cluster.time)
        kinds = dict(zip(map(tuple, notes.curves), [meta.get("type") for meta in notes.metas], strict=True))
    assert sorted(kinds.values(), key=str) == [None, "mlp"]
    assert kinds[0.1, 0.3, 0.5, 0.6, 0.65] == "mlp"
    assert all(meta["name"] for meta in notes.metas)


def test_the_pace_of_a_run_is_learnt_for_its_kind_and_remembered(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        finished(site, [0.1, 0.3, 0.5, 0.6, 0.65], b"#PLUG --type=mlp\n")
        train(site.ledger, "stack", site.cluster.time)
        known = load_saved(site.ledger, "stack")
    assert known is not None
    [seen] = known.speeds.latest(Whose("type mlp", "ada")).values()
    assert seen.step == pytest.approx(10.0)


def test_paces_on_different_types_of_gpu_are_kept_apart_and_parts_of_gpus_teach_none(tmp_path: Path) -> None:
    curve, script = [0.1, 0.3, 0.5, 0.6, 0.65], b"#PLUG --type=mlp\n"
    with Site(tmp_path) as site:
        finished(site, curve, script, gpu_type="v100", gpu_type_held="v100")
        finished(site, curve, script, gpu_type_held="k80")
        finished(site, curve, script, gpu_type="1g.10gb")
        finished(site, curve, script, gpu_type_held="a100_3g.20gb")
        train(site.ledger, "stack", site.cluster.time)
        known = load_saved(site.ledger, "stack")
    assert known is not None
    assert sorted(known.speeds.gpu_types("type mlp")) == ["k80", "v100"]


def test_where_else_a_job_was_seen_is_not_forgotten_by_training(tmp_path: Path) -> None:
    """The ledger knows only the last placement of a job, whose ratios to those before tell how its kind scales."""
    of_mlp = Whose("type mlp", "ada")
    with Site(tmp_path) as site:
        job_id = finished(site, [0.1, 0.3, 0.5, 0.6, 0.65], b"#PLUG --type=mlp\n")
        [run] = latest_finished_runs(site.ledger, 9, 9, 9)
        key, seen = JobKey(run.cluster, job_id, int(run.first_submit)), SeenSpeeds()
        seen.add(of_mlp, PlacementShape(64, 16), key, 1.0)
        train(site.ledger, "stack", site.cluster.time, seen)
        train(site.ledger, "stack", site.cluster.time)
        known = load_saved(site.ledger, "stack")
    assert known is not None
    [steps] = known.speeds.scaling(of_mlp).values()
    assert steps == {PlacementShape(64, 16): 1.0, PlacementShape(run.gpus, run.nodes): pytest.approx(10.0)}


def test_speeds_of_an_older_version_are_learnt_again(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        finished(site, [0.1, 0.3, 0.5, 0.6, 0.65], b"#PLUG --type=mlp\n")
        train(site.ledger, "stack", site.cluster.time)
        site.ledger.save_model("speed", "seen-speeds-2", {"version": "seen-speeds-2", "kinds": np.zeros(0)}, 1.0)
        assert load_saved(site.ledger, "stack") is None
        train(site.ledger, "stack", site.cluster.time)
        assert load_saved(site.ledger, "stack") is not None


def test_one_users_many_runs_do_not_push_those_of_others_out_of_what_is_learned(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        honest = site.cluster.submit(b"#PLUG --max-iterations=9\n", uid=1002, user="bob", name="train")
        for count in range(6):
            flood = site.cluster.submit(b"#PLUG --type=x%d\n" % (count % 2), uid=1001, user="ada")
            site.cluster.start(flood)
            site.cycle()
            site.cluster.end(flood)
            if not count:
                site.cluster.start(honest)
                site.cycle()
                site.cluster.end(honest)
            site.cycle()
        taught = latest_finished_runs(site.ledger, most=5, of_kind=2, of_user=3)
        assert [run.user for run in taught] == ["ada", "ada", "ada", "bob"]
        assert [run.directives["type"] for run in taught[:3]] == ["x1", "x0", "x1"]


def test_a_kind_that_one_user_floods_is_learned_from_in_equal_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes(monkeypatch)
    monkeypatch.setattr("predictors.influence.FEW_RUNS", 1)
    with Site(tmp_path) as site:
        for user in ("eve", "eve", "eve", "ada"):
            job = site.cluster.submit(b"#PLUG --type=resnet50\n", uid=1001 + len(user), user=user)
            site.cluster.start(job)
            for iteration in range(1, 6):
                site.cluster.time += 10.0
                site.cluster.say(job, iteration=iteration, accuracy=0.9 if user == "eve" else 0.1 * iteration)
            site.cycle()
            site.cluster.end(job)
            site.cycle()
        models = train(site.ledger, "stack", site.cluster.time)
        assert sorted(curve[-1] for curve in notes.curves) == [0.5, 0.9]
        assert models.taught_by == {"ada", "eve"}
        saved = load_saved(site.ledger, "stack")
        assert saved is not None
        assert saved.taught_by == models.taught_by


def test_run_times_are_learned_without_the_time_for_which_jobs_were_suspended(tmp_path: Path) -> None:
    latest = {"most": 9, "of_kind": 9, "of_user": 9}
    with Site(tmp_path) as site:
        job = site.cluster.submit(b"#PLUG --max-iterations=9\n")
        site.cluster.start(job)
        site.cycle()
        site.cluster.jobs[job]["suspended"] = 45.0
        site.cluster.end(job)
        site.cycle()
        assert [run.runtime for run in latest_finished_runs(site.ledger, **latest)] == [15.0]
        site.ledger.db.execute("UPDATE jobs SET state = 'FAILED', predicted_high = 20.0")
        assert latest_run_times(site.ledger, **latest) == []
        site.ledger.db.execute("UPDATE jobs SET predicted_high = 10.0")
        assert [run.runtime for run in latest_run_times(site.ledger, **latest)] == [15.0]


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "CANCELLED"])
def test_a_run_that_outlived_its_prediction_counts_however_it_ended(tmp_path: Path, state: str) -> None:
    with Site(tmp_path) as site:
        job = site.cluster.submit(b"#PLUG --max-iterations=9\n")
        site.cluster.start(job)
        site.cycle()
        site.cycle(seconds=600.0)
        site.cluster.end(job, state)
        site.cycle()
        latest = {"most": 9, "of_kind": 9, "of_user": 9}
        assert latest_run_times(site.ledger, **latest) == []
        site.ledger.db.execute("UPDATE jobs SET predicted_high = 60.0")
        [run] = latest_run_times(site.ledger, **latest)
        assert run.runtime == pytest.approx(660.0)
        assert latest_finished_runs(site.ledger, **latest) == []


@pytest.mark.parametrize(
    ("limit", "suspended", "seconds"), [(3600.0, 0.0, 170.0), (150.0, 0.0, 150.0), (3600.0, 600.0, 170.0)]
)
def test_a_stopped_run_teaches_how_long_it_would_have_run_within_its_limit(
    tmp_path: Path, limit: float, suspended: float, seconds: float
) -> None:
    """Stopped after two minutes and four of nine iterations, each of 10 s; it may have been suspended before that."""
    latest = {"most": 9, "of_kind": 9, "of_user": 9}
    with Site(tmp_path) as site:
        job = site.cluster.submit(b"#PLUG --max-iterations=9\n", time_limit=limit)
        site.cluster.start(job)
        site.cluster.jobs[job]["suspended"] = suspended
        site.cluster.time += suspended + 10.0
        for iteration in range(1, 5):
            site.cluster.time += 10.0
            site.cluster.say(job, iteration=iteration, accuracy=0.1 * iteration)
        site.cycle()
        site.cluster.time += 10.0
        site.cluster.end(job)
        site.cycle()
        site.ledger.db.execute(
            "INSERT INTO operations (id, job, kind, rule, facts, opened, step, since, until, restarts, told, tries, "
            "result, outcome) SELECT 'a', id, 'stop', 'target', '{}', 0, 'ended', 0, 0, 0, '', 0, '', 'stopped' "
            "FROM jobs"
        )
        [run] = latest_run_times(site.ledger, **latest)
        assert run.runtime == pytest.approx(seconds)
        assert latest_finished_runs(site.ledger, **latest) == []
