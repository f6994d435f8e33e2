"""The papers' workloads: what is drawn has the distribution that the settings say, and a seed says all."""

from collections import Counter
from hashlib import sha256

import numpy as np
import pytest

from policies.marginal_gain.server_speeds import rate
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads import server_models, synthetic
from slurmplug.sim.workloads.directives import run_time_alone
from slurmplug.sim.workloads.generators import slaq
from slurmplug.sim.workloads.load import GENERATORS, WorkloadError, load

ALL = sorted(GENERATORS)


def fields_of(workload: Workload) -> list[tuple[object, ...]]:
    return [
        (job.name, job.submit, job.gpus, job.iterations, job.deadline, job.urgency, job.utility,
         tuple(job.losses), tuple(job.speed.rate))
        for job in workload.jobs
    ]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_seed_says_all(name: str) -> None:
    once = repr(fields_of(load(f"gen:{name}", seed=3, jobs=20)))
    assert repr(fields_of(load(f"gen:{name}", seed=3, jobs=20))) == once
    assert repr(fields_of(load(f"gen:{name}", seed=4, jobs=20))) != once


@pytest.mark.parametrize("name", ALL)
def test_jobs_come_in_order_and_hold_together(name: str) -> None:
    workload = load(f"gen:{name}", seed=1)
    submits = [job.submit for job in workload.jobs]
    assert submits == sorted(submits)
    assert len({job.name for job in workload.jobs}) == len(workload.jobs)
    for job in workload.jobs:
        assert job.gpus <= workload.nodes * workload.gpus_a_node
        assert len(job.curve_at) == len(job.accuracies) == len(job.losses)
        assert np.isfinite(job.losses).all()
        assert ((job.accuracies >= 0) & (job.accuracies <= 1)).all()
        assert (np.diff(job.curve_at) > 0).all()
        assert not len(job.curve_at) or (job.curve_at[0], job.curve_at[-1]) == (1, job.iterations)
        assert (job.speed.rate > 0).all()
        assert not job.gpus_min or job.gpus_min <= job.gpus <= job.gpus_max


@pytest.mark.parametrize("name", ALL)
def test_as_many_jobs_come_as_are_asked_for(name: str) -> None:
    assert len(load(f"gen:{name}", jobs=7).jobs) == 7
    assert len(load(f"gen:{name}", jobs=700).jobs) == 700


@pytest.mark.parametrize(("x", "jobs"), [("1/4", 155), ("1/2", 310), ("1", 620), ("3", 1860)])
def test_mlfs_has_620_x_jobs_in_a_week(x: str, jobs: int) -> None:
    workload = load(f"gen:mlfs?x={x}")
    assert len(workload.jobs) == jobs
    assert workload.nodes * workload.gpus_a_node == 80
    assert 6 * 86_400 < workload.jobs[-1].submit < 7 * 86_400


def test_mlfs_draws_gpus_urgency_and_deadlines_as_the_paper_says() -> None:
    jobs = load("gen:mlfs?x=3", seed=2).jobs
    gpus = Counter(job.gpus for job in jobs)
    assert sorted(gpus) == [1, 2, 4, 8, 16, 32]
    assert min(gpus.values()) > 0.8 * len(jobs) / 6
    assert {job.urgency for job in jobs} == set(range(1, 11))
    kinds = Counter(job.kind for job in jobs)
    assert set(kinds) == {"alexnet", "resnet50", "mlp", "lstm", "svm"}
    spans = np.array([job.deadline - job.submit for job in jobs])
    takes = np.array([run_time_alone(job, 4) for job in jobs])
    by_time = spans > np.maximum(1.1 * takes, 1800) + 1e-3
    assert (spans >= np.maximum(1.1 * takes, 1800) - 1e-3).all()
    assert spans[by_time].max() <= 24 * 3600 + 1e-3
    assert np.mean(spans[takes < 3600]) == pytest.approx(12.25 * 3600, rel=0.05)
    assert all(job.stop == "optstop" and job.downgrade == "target" for job in jobs)


def test_mlfs_loads_80_gpus_by_about_two_thirds() -> None:
    shares = [
        sum(run_time_alone(job, 4) * job.gpus for job in load("gen:mlfs", seed=seed).jobs) / (80 * 7 * 86_400)
        for seed in range(4)
    ]
    assert 0.5 < np.mean(shares) < 0.85


def test_mlfs_partitions_have_shares_and_follow_the_layer_before() -> None:
    jobs = load("gen:mlfs?partitions=on", seed=1).jobs
    for job in jobs:
        assert not job.parts or len(job.parts) == job.gpus > 1
        assert not job.parts or sum(part.share for part in job.parts) == pytest.approx(1)
        assert all(parent < row for row, part in enumerate(job.parts) for parent in part.parents)
        assert job.kind != "svm" or not job.parts
    chain = next(job for job in jobs if job.kind == "mlp" and job.gpus >= 4)
    assert [part.parents for part in chain.parts[:3]] == [(), (0,), (1,)]
    layered = next(job for job in jobs if job.kind == "lstm" and job.gpus == 8)
    assert [part.parents for part in layered.parts[:4]] == [(), (), (0, 1), (0, 1)]


@pytest.mark.parametrize("arrival", [4, 10, 15])
def test_slaq_jobs_arrive_as_often_as_is_said(arrival: int) -> None:
    jobs = load(f"gen:slaq?arrival={arrival}", jobs=800).jobs
    gaps = np.diff([job.submit for job in jobs])
    assert gaps.mean() == pytest.approx(arrival, rel=0.15)
    assert gaps.std() == pytest.approx(arrival, rel=0.2)  # as of an exponential
    assert {job.kind.rpartition("-")[0] for job in jobs} == set(slaq.ALGORITHMS)
    assert len({job.kind for job in jobs}) == len(jobs)  # each has a speed of its own
    assert np.mean([100 / job.speed.rate[0] for job in jobs]) == pytest.approx(slaq.WORK, rel=0.15)


def test_slaq_iterations_are_nearly_as_fast_as_they_have_cores() -> None:
    for job in load("gen:slaq").jobs:
        per_core = job.speed.rate / job.speed.gpus
        assert (np.diff(job.speed.rate) >= 0).all()
        assert per_core.max() / per_core.min() < 1.3


def test_slaq_losses_fall_most_at_the_beginning() -> None:
    for job in load("gen:slaq").jobs:
        fallen = (job.losses[0] - job.losses) / (job.losses[0] - job.losses.min())
        assert fallen[50] > 0.75
        assert job.restart == 0


def test_dl2_jobs_last_as_in_its_trace() -> None:
    jobs = load("gen:dl2", jobs=2000, seed=5).jobs
    minutes = np.array([run_time_alone(job, 4) / 60 for job in jobs])
    assert np.median(minutes) > 60
    assert minutes.mean() == pytest.approx(147, rel=0.12)
    assert len({job.kind for job in jobs}) == 8


def assert_spans(values: np.ndarray, least: float, most: float) -> None:
    """Uniform draws reach nearly to both ends, and no further."""
    near = 0.1 * (most - least)
    assert least - 1e-6 <= values.min() < least + near
    assert most - near < values.max() <= most + 1e-6


def test_oasis_utilities_are_of_three_kinds() -> None:
    slot = 600.0
    jobs = load("gen:oasis", jobs=2000, seed=5).jobs
    worth, decay, target = np.array([job.utility for job in jobs], dtype=float).T
    decay *= slot
    assert np.mean(decay == 0) == pytest.approx(0.10, abs=0.03)
    assert np.mean((decay > 0) & (decay <= 1)) == pytest.approx(0.55, abs=0.05)
    assert np.mean((decay >= 4) & (decay <= 6)) == pytest.approx(0.35, abs=0.05)
    assert_spans(worth, 1, 100)
    assert_spans(target / slot, 1, 15)
    slots = np.array([job.iterations / job.speed.at(job.gpus_max, 1) / slot for job in jobs])
    assert_spans(slots, 1, 10)
    assert all(job.speed.at(4, 1) == pytest.approx(4 * job.speed.at(1, 1)) for job in jobs[:50])


def seconds(job: SimJob) -> float:
    return 1 / job.speed.at(1, 1)


def test_ml_sjf_has_three_types_in_three_ranges_all_there_at_once() -> None:
    jobs = load("gen:ml-sjf").jobs
    assert Counter(job.kind for job in jobs) == {"flask": 200, "mapreduce": 200, "sklearn": 200}
    assert {job.submit for job in jobs} == {0.0}
    means = {kind: np.mean([seconds(job) for job in jobs if job.kind == kind]) for kind in ("flask", "sklearn")}
    assert np.mean([seconds(job) for job in jobs if job.kind == "mapreduce"]) > 2 * max(means.values())
    assert [job.kind for job in jobs[:20]] != sorted(job.kind for job in jobs[:20])
    assert {job.kind for job in load("gen:ml-sjf?type=flask").jobs} == {"flask"}


def test_options_that_are_not_there_are_refused() -> None:
    with pytest.raises(WorkloadError, match="no such option: 'y'; there are arrival"):
        load("gen:slaq?y=1")
    with pytest.raises(WorkloadError, match="x is '1/0'"):
        load("gen:mlfs?x=1/0")
    with pytest.raises(WorkloadError, match="x is '1e999999999'"):
        load("gen:mlfs?x=1e999999999")
    with pytest.raises(WorkloadError, match="no generator 'gavel'"):
        load("gen:gavel")
    with pytest.raises(WorkloadError, match="not one of"):
        load("gen:ml-sjf?type=hadoop")


def test_options_of_every_workload_set_a_field_of_each_job() -> None:
    jobs = load("gen:slaq?restart=30&runtime_noise=0.2", jobs=3).jobs
    assert {(job.restart, job.runtime_noise) for job in jobs} == {(30.0, 0.2)}


def test_load_brings_jobs_sooner_and_leaves_their_deadlines_as_far() -> None:
    once, twice = load("gen:mlfs", jobs=50), load("gen:mlfs", jobs=50, load=2.0)
    for one, other in zip(once.jobs, twice.jobs, strict=True):
        assert other.submit == pytest.approx(one.submit / 2)
        assert other.deadline - other.submit == pytest.approx(one.deadline - one.submit)


@pytest.mark.parametrize("model", sorted(synthetic.MODELS))
def test_drawn_speeds_rise_with_gpus_and_fall_with_nodes(model: str) -> None:
    speed = synthetic.shape(model)
    assert speed.at(1, 1) == pytest.approx(1, abs=0.01)
    assert 1.5 < speed.at(4, 1) <= 4.2
    assert speed.at(8, 8) < 1.1 * speed.at(8, 2)  # a few per cent are chance
    assert speed is synthetic.shape(model)


@pytest.mark.parametrize("name", ["dl2", "mlfs"])
def test_shapes_drawn_by_the_seed_change_speeds_alone_beyond_what_is_requested(name: str) -> None:
    def relative(workload: Workload) -> dict[str, tuple[float, ...]]:
        return {job.kind: tuple(np.round(job.speed.rate / job.speed.at(1, 1), 9)) for job in workload.jobs}

    fixed, drawn = load(f"gen:{name}", seed=3, jobs=40), load(f"gen:{name}?shapes=drawn", seed=3, jobs=40)
    for one, other in zip(fixed.jobs, drawn.jobs, strict=True):
        assert (one.name, one.submit, one.deadline, one.cpus) == (other.name, other.submit, other.deadline, other.cpus)
        nodes = -(-one.gpus // 4)
        assert other.speed.at(one.gpus, nodes) == pytest.approx(one.speed.at(one.gpus, nodes))
    again, elsewhere = (load(f"gen:{name}?shapes=drawn", seed=seed, jobs=40) for seed in (3, 4))
    assert relative(again) == relative(drawn)
    for others in (relative(fixed), relative(elsewhere)):
        assert all(others.get(kind) != rates for kind, rates in relative(drawn).items())


def test_speeds_that_vary_and_wrong_epochs_leave_the_jobs_as_they_are() -> None:
    told, vary, wrong = (
        load(f"gen:dl2{how}", seed=2, jobs=80) for how in ("", "?speeds_vary=0.27", "?epochs_wrong=0.2")
    )
    assert fields_of(told) == fields_of(vary) == fields_of(wrong)
    assert {(len(job.paces), job.stated) for job in told.jobs} == {(0, job.iterations) for job in told.jobs}
    paces = np.stack([job.paces for job in vary.jobs])
    assert set(np.round(paces.ravel(), 9)) == {0.73, 1.27}
    assert abs((paces > 1).mean() - 0.5) < 0.02
    for job in wrong.jobs:
        assert min(abs(job.stated * (1 + sign * 0.2) - job.iterations) for sign in (-1, 1)) <= 0.61
    assert 0.3 < np.mean([job.stated > job.iterations for job in wrong.jobs]) < 0.7


def test_parameter_servers_change_speeds_alone_beyond_what_is_requested() -> None:
    without, with_servers = load("gen:dl2", seed=2, jobs=80), load("gen:dl2?servers=on", seed=2, jobs=80)
    for one, other in zip(without.jobs, with_servers.jobs, strict=True):
        assert (one.name, one.submit, one.deadline, one.cpus) == (other.name, other.submit, other.deadline, other.cpus)
        assert one.servers is None
        assert other.servers is not None
        assert other.speed.at(4, 1) == pytest.approx(one.speed.at(4, 1))
        assert other.speed.at(4, 4) == pytest.approx(float(rate(other.servers.times, 4, 4)))
        assert 1 <= other.servers.cpus <= 4
        counts = np.arange(1, 17)
        wrong = rate(other.servers.sampled, counts[:, None], counts) / rate(
            other.servers.times, counts[:, None], counts
        )
        assert abs(np.log(wrong)).mean() < 0.3


def test_speeds_with_servers_are_not_drawn() -> None:
    with pytest.raises(WorkloadError, match="leave one out"):
        load("gen:dl2?servers=on&shapes=drawn")
    with pytest.raises(WorkloadError, match="servers is 'yes', not one of on, off"):
        load("gen:dl2?servers=yes")


def test_models_with_parameter_servers_gain_by_these_as_was_measured() -> None:
    for times in server_models.TIMES.values():
        assert sum(times) == pytest.approx(1.0, abs=1e-3)
    vgg, dssm = (np.array(server_models.TIMES[model]) for model in ("vgg16", "dssm"))
    assert rate(vgg, 1, 4) > 1.3 * rate(vgg, 4, 4)  # by servers
    assert rate(dssm, 4, 1) > 1.9 * rate(dssm, 1, 4)  # by workers


def test_jobs_without_parameter_servers_are_those_of_before() -> None:
    made = load("gen:dl2", seed=5, jobs=30)
    digest = sha256()
    for job in made.jobs:
        facts = (job.submit, job.gpus, job.iterations, *job.speed.rate, job.cpus, job.memory, job.traffic, job.deadline,
                 *job.losses)  # fmt: skip
        digest.update((job.name + ",".join(f"{each:.9g}" for each in facts)).encode())
    assert digest.hexdigest()[:16] == "bbef1b40d12b809a"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("model", sorted(synthetic.MODELS))
def test_shapes_drawn_by_a_seed_are_plausible(model: str, seed: int) -> None:
    speed = synthetic.shape(model, 4, seed)
    assert speed.at(1, 1) == pytest.approx(1, abs=0.01)
    assert 1.3 < speed.at(4, 1) <= 4.4
    assert speed.at(8, 8) < 1.2 * speed.at(8, 2)


def test_drawn_curves_come_from_every_family_and_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        losses, accuracies = synthetic.learning(rng, 50)
        assert accuracies[-5:].mean() > accuracies[0]
        assert losses[-5:].mean() < losses[0]
    assert [len(each) for each in synthetic.learning(rng, 1)] == [1, 1]
