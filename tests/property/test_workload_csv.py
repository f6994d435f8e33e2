"""Workloads are read as they were written, and nothing that a file may hold brings the readers down."""

from dataclasses import astuple, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.sim.engine.job import Part, SimJob, Speed, Workload
from slurmplug.sim.workloads import csv_format
from slurmplug.sim.workloads.load import FORMATS, WorkloadError, load

NAN = float("nan")
finite = st.floats(0, 1e9, allow_subnormal=False)
perhaps = finite | st.just(NAN)
words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=12)


@st.composite
def speeds(draw: st.DrawFn) -> Speed:
    places = draw(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 8)), min_size=1, max_size=6, unique=True))
    rates = draw(st.lists(st.floats(1e-6, 1e6), min_size=len(places), max_size=len(places)))
    gpus, nodes = np.array(places).T
    return Speed(gpus, nodes, np.array(rates))


@st.composite
def jobs(draw: st.DrawFn) -> SimJob:
    gpus = draw(st.integers(1, 64))
    k = draw(st.integers(0, 5))
    values = st.lists(st.floats(-10, 10), min_size=k, max_size=k).map(np.array)
    nothing = st.just(np.empty(0))
    losses, accuracies = draw(values | nothing), draw(values | nothing)
    if not len(losses) and not len(accuracies):
        k = 0
    parts = draw(st.integers(0, 3))
    return SimJob(
        name=draw(words), submit=draw(finite), gpus=gpus, iterations=draw(st.integers(1, 10**6)), speed=draw(speeds()),
        user=draw(words), account=draw(words), qos=draw(words), partition=draw(words), kind=draw(words | st.just("")),
        gpus_min=draw(st.sampled_from([0, 1, gpus])), gpus_max=draw(st.sampled_from([0, gpus, 2 * gpus])),
        cpus=draw(st.integers(0, 1000)), memory=draw(finite), time_limit=draw(perhaps),
        curve_at=np.cumsum(np.ones(k)), losses=losses, accuracies=accuracies, target=draw(perhaps),
        deadline=draw(perhaps), urgency=draw(perhaps), params=draw(perhaps),
        utility=draw(st.none() | st.tuples(finite, finite, finite)),
        stop=draw(st.sampled_from(["iterations", "optstop", "target"])),
        downgrade=draw(st.sampled_from(["", "optstop", "target"])), traffic=draw(finite),
        checkpoint_every=draw(finite), restart=draw(finite), startup=draw(finite),
        runtime_noise=draw(finite), loss_noise=draw(finite),
        managed=draw(st.booleans()),
        parts=tuple(Part(1, 2, 3.5, draw(st.sampled_from(["", "ps"])), 0.25, tuple(range(i))) for i in range(parts)),
    )  # fmt: skip


def same(one: object, other: object) -> bool:
    if isinstance(one, Speed) and isinstance(other, Speed):
        return all(np.array_equal(a, b) for a, b in zip(astuple(one), astuple(other), strict=True))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return one == other or (one != one and other != other)


@given(st.lists(jobs(), min_size=1, max_size=4), st.integers(0, 100))
def test_a_workload_is_read_as_it_was_written(many: list[SimJob], nodes: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.csv"
        csv_format.write(Workload("made", tuple(many), nodes, 4), path)
        read = load(str(path))
    assert (read.name, read.nodes, read.gpus_a_node, read.skipped) == ("made", nodes, 4, 0)
    for wrote, got in zip(sorted(many, key=lambda job: job.submit), read.jobs, strict=True):
        unlike = [
            name for name in (each.name for each in fields(wrote)) if not same(getattr(wrote, name), getattr(got, name))
        ]
        assert not unlike


@given(st.binary(max_size=300), st.sampled_from(sorted(FORMATS)))
def test_any_bytes_are_a_workload_or_an_error_of_ours(content: bytes, format_: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "w"
        path.write_bytes(content)
        with pytest.raises(WorkloadError):
            load(f"{format_}:{path}")
