"""The simulator's intake gives what the live one gives of the same cluster, as Slurm and the jobs would show it."""

from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.baselines.fair import Fair
from policies.baselines.optimus import Optimus
from policies.baselines.sjf import SRTF
from policies.baselines.tiresias import Tiresias, TiresiasSettings
from policies.mlfs.mlfs import MLFH, MLFS, MLFHSettings
from policies.policy import Policy
from policies.snapshot import Curves, JobKey, Jobs, Snapshot
from slurmplug.cluster.port import Reading, Submission
from slurmplug.directives.changes import Change
from slurmplug.intake.intake import Intake
from slurmplug.intake.job_record import Admission, Changes
from slurmplug.sim.adapters.intake import SimIntake
from slurmplug.sim.engine.job import Part, SimJob, Speed
from slurmplug.sim.experiment.simulation import Simulation
from slurmplug.sim.workloads import load as workload
from tests.rendered_reading import RenderedCluster
from tests.sim_jobs import First, simulation

INTERVAL = 60.0
POLICIES: dict[str, Policy] = {
    "first": First(),
    "srtf": SRTF(),
    "fair": Fair(),
    "optimus": Optimus(),
    "tiresias": Tiresias(TiresiasSettings(queues=(300.0, 2000.0))),
    "mlf-h": MLFH(MLFHSettings(grow=True)),
    "mlfs": MLFS(),
}
EXCEPTED = {
    "seed": "the simulator's runs differ by it",
    "placement": "numbers of classes; where a job may run is compared instead",
    "runs_on": "squeue gives a job's GPUs in all, so live they are spread evenly; the simulator knows them by node",
}
"""The columns that differ, and why."""


class BothIntakes:
    """Absorbs each reading by both intakes, and compares the two snapshots."""

    def __init__(self, made: Simulation) -> None:
        assert isinstance(made.scheduler.intake, SimIntake)
        self._simulated, self._live = made.scheduler.intake, Intake()
        self._port = made.port
        self._cluster = RenderedCluster(made.port, all_managed=made.settings.launcher == "direct")
        self.jobs = self.reported = 0

    known: Container[Submission] = ()
    alive: Mapping[int, int] = MappingProxyType({})

    def absorb(self, reading: Reading, cycle: int) -> tuple[Snapshot, Changes]:
        site_factors = self._port.site_factors_in_slurm(reading.site.booted)
        rendered = replace(self._cluster.reading(self._live.known), site_factors=site_factors)
        live, folded = self._live.absorb(rendered, cycle)
        simulated, changes = self._simulated.absorb(reading, cycle)
        assert not folded.faults
        agree(simulated, live)
        self.jobs, self.reported = self.jobs + len(live.jobs), self.reported + int((live.jobs.iteration > 0).sum())
        return simulated, changes

    def set_site_factors(self, site_factors: Mapping[JobKey, float], *, elsewhere: bool = False) -> None:
        self._live.set_site_factors(site_factors, elsewhere=elsewhere)
        self._simulated.set_site_factors(site_factors, elsewhere=elsewhere)

    def set_changed_requests(self, jobs: Collection[JobKey]) -> None:
        self._live.set_changed_requests(jobs)

    def set_directive_changes(self, changes: Collection[tuple[JobKey, Change]]) -> None:
        self._live.set_directive_changes(changes)

    def set_admissions(self, admissions: Mapping[JobKey, Admission]) -> None:
        self._live.set_admissions(admissions)


def agree(simulated: Snapshot, live: Snapshot) -> None:
    """Column by column."""
    assert (simulated.cycle, simulated.now) == (live.cycle, live.now)
    for name, column in vars(live.jobs).items():
        if name not in EXCEPTED and name in Jobs.__dataclass_fields__:
            same(f"jobs.{name}", getattr(simulated.jobs, name), column)
    for name, column in vars(live.nodes).items():
        same(f"nodes.{name}", getattr(simulated.nodes, name), column)
    same("types", *map(requested_types, (simulated, live)))
    same("fits", simulated.fits[simulated.jobs.placement], live.fits[live.jobs.placement])
    order = np.lexsort(simulated.runs_on.T[::-1])
    same("runs_on", simulated.runs_on[order, :2], live.runs_on[np.lexsort(live.runs_on.T[::-1]), :2])
    rows = len(live.jobs)
    same("GPUs of runs_on", *(np.bincount(on[:, 0], on[:, 2], rows) for on in (simulated.runs_on, live.runs_on)))


def requested_types(snapshot: Snapshot) -> list[str]:
    """The type that each job requests, by its class; empty for any."""
    names = (*snapshot.nodes.gpu_types, "")
    of_class = snapshot.type_of_class
    return [names[of_class[each]] if len(of_class) else "" for each in snapshot.jobs.placement.tolist()]


def same(name: str, simulated: Any, live: Any) -> None:
    if isinstance(live, Curves):
        for part, values in vars(live).items():
            same(f"{name}.{part}", getattr(simulated, part), values)
    elif np.asarray(live).dtype.kind == "f":
        np.testing.assert_allclose(np.asarray(simulated, float), live, rtol=1e-6, atol=1e-6, err_msg=name)
    else:
        np.testing.assert_array_equal(simulated, live, err_msg=name)


def compare(made: Simulation, cycles: int) -> BothIntakes:
    """Cycle so often, without leaving any out."""
    both = BothIntakes(made)
    made.scheduler.intake = both
    for cycle in range(1, cycles + 1):
        if not made.port.wait(cycle * made.settings.interval):
            break
        made.scheduler.run()
    return both


@st.composite
def sim_jobs(draw: st.DrawFn) -> SimJob:
    """A job that reports less than 60 times between two readings: more are thinned live, and not in the simulator.

    So on one GPU it makes at most 0.09 iterations a second: on eight, which are four times as fast, of the fastest type
    54 in an interval.
    """
    managed = draw(st.integers(0, 5)) > 0
    gpus = draw(st.integers(1, 8))
    in_parts = managed and gpus > 1 and draw(st.integers(0, 3)) == 0
    elastic = managed and not in_parts and draw(st.booleans())
    learns = managed and draw(st.booleans())
    submit, iterations = draw(st.floats(0, 300)), draw(st.integers(1, 500)) if managed else 1
    at = np.arange(1.0, iterations + 1.0)
    target = draw(st.sampled_from([float("nan"), 0.875])) if learns else float("nan")
    parts = tuple(
        Part(1, 2 * (n % 2), 0.0, draw(st.sampled_from(["worker", "ps"])), 1.0 / gpus, (n - 1,) if n else ())
        for n in range(gpus)
    )
    return SimJob(
        name=draw(st.sampled_from(["a", "b"])),
        submit=submit,
        gpus=gpus,
        iterations=iterations,
        speed=Speed(np.array([1, 8, 8]), np.array([1, 1, 2]), draw(st.floats(0.002, 0.09)) * np.array([1.0, 4.0, 3.0])),
        user=draw(st.sampled_from(["ada", "bob"])),
        partition=draw(st.sampled_from(["gpu", "long"])),
        kind=draw(st.sampled_from(["", "resnet", "bert"])) if managed else "",
        gpu_type=draw(st.sampled_from(["", "", "v100", "a100"])),
        type_speeds=draw(st.sampled_from([{}, {"a100": 2.5}])),
        gpus_min=1 if elastic else 0,
        gpus_max=8 if elastic else 0,
        cpus=sum(part.cpus for part in parts) if in_parts else gpus * draw(st.integers(0, 8)),
        memory=0.0 if in_parts else gpus * draw(st.floats(0, 500)),
        time_limit=draw(st.sampled_from([float("nan"), 4000.0])),
        curve_at=at if learns else np.empty(0),
        losses=1.0 / at if learns else np.empty(0),
        accuracies=0.9 * at / (at + 2.0) if learns else np.empty(0),
        target=target,
        deadline=float(int(submit) + draw(st.integers(60, 9_000))) if managed and draw(st.booleans()) else float("nan"),
        urgency=float(draw(st.integers(1, 10))) if managed and draw(st.booleans()) else float("nan"),
        utility=(50.0, 0.5 / 3600.0, 7200.0) if managed and draw(st.booleans()) else None,
        params=draw(st.sampled_from([float("nan"), 25.0e6])) if managed else float("nan"),
        work=draw(st.sampled_from(["", "classes:10,operation:sort,rows:1997.5"])) if managed else "",
        stop=draw(st.sampled_from(["iterations", "optstop"])) if learns else "iterations",
        downgrade="target" if target == target and draw(st.booleans()) else "",
        traffic=draw(st.floats(0, 1e9)),
        # a part that goes on while another loses its GPUs would report iterations again in one and the same run
        checkpoint_every=0.0 if in_parts else draw(st.sampled_from([0.0, 50.0, 130.0])),
        restart=draw(st.floats(0, 40)),
        startup=draw(st.sampled_from([0.0, 25.0])),
        managed=managed,
        parts=parts if in_parts else (),
    )


@given(
    st.lists(sim_jobs(), min_size=1, max_size=8),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from(["direct", "slurm"]),
    st.sampled_from(["3x4", "3x4:a100", "2x4:v100+1x4:a100", "1x4:v100+1x4+1x4:a100"]),
)
@settings(max_examples=25, deadline=None)
def test_the_simulators_intake_gives_what_the_live_one_gives(
    jobs: list[SimJob], policy: str, launcher: str, cluster: str
) -> None:
    jobs = [replace(job, gpu_type=job.gpu_type if job.gpu_type in cluster else "") for job in jobs]
    made = simulation(*jobs, policy=POLICIES[policy], cluster=cluster, interval=INTERVAL, launcher=launcher)
    compare(made, 40)


@pytest.mark.parametrize(
    ("name", "policy", "launcher"),
    [
        ("gen:mlfs", "mlf-h", "direct"),
        ("gen:mlfs", "mlfs", "slurm"),
        ("gen:slaq", "fair", "direct"),
        ("gen:oasis", "tiresias", "direct"),
    ],
)
def test_they_agree_about_the_generators_jobs(name: str, policy: str, launcher: str) -> None:
    """All submitted within ten minutes; deadlines in whole seconds, as in a directive."""
    load = workload.load(name, seed=1, jobs=12)
    jobs = (
        replace(job, submit=50.0 * at, deadline=float(np.ceil(job.deadline - job.submit + 50.0 * at)))
        for at, job in enumerate(load.jobs)
    )
    made = simulation(*jobs, policy=POLICIES[policy], cluster="8x8", interval=INTERVAL, launcher=launcher)
    assert compare(made, 25).jobs > 100
