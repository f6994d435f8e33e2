"""Whatever happens to slurmctld, the daemon and the SiteFactors: the ledger soon agrees with Slurm, what somebody else
set stays, and all other jobs are in their order."""

from contextlib import closing
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.plan import Plan
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.ledger.ledger import Ledger
from tests.fake_cluster import FakeCluster
from tests.ledgers import ACTING, Planned
from tests.schedulers import begun

THEIRS = st.integers(10**6, 10**6 + 3) | st.integers(-(10**6) - 3, -(10**6))
"""slurmplug writes no such SiteFactor here"""
EVENTS = st.one_of(
    st.sampled_from(["submit", "cycle", "lose", "save", "kill", "restart", "zero"]).map(lambda name: (name, 0)),
    st.tuples(st.just("set"), THEIRS),
)


class Model:
    """A cluster and a scheduler; `theirs`: by job, what somebody else set, that has to stay.

    `unsure`: jobs of which nobody can tell, until the next comparison, who set what Slurm has: a write was not
    answered, slurmctld or the daemon was started again, or the daemon has not read the queue since.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.cluster = ledger, FakeCluster()
        self.config = Config.from_table(ACTING)
        self.theirs: dict[int, int] = {}
        self.compared: set[int] = set()
        """those of `theirs` that slurmplug has seen"""
        self.saved: dict[int, int] = {}
        self.unsure: set[int] = set()
        self.restart()

    def restart(self) -> None:
        self.has_read = False
        policy = Planned(lambda seen: Plan(np.array([key.job_id for key in seen.jobs.keys], dtype=float)))
        self.scheduler = begun(self.cluster, policy, self.ledger, self.config)

    def label(self, job_id: int) -> int:
        return int(self.cluster.jobs[job_id].get("label", 0))

    def cycle(self, *, lose: bool = False) -> CycleRecord:
        self.cluster.time += 60.0
        self.cluster.lose = lose
        record = self.scheduler.run()
        assert record is not None
        self.cluster.lose, self.has_read = False, True
        self.unsure = {command.job.job_id for command in record.commands} if lose else set()
        self.compared = set(self.theirs)
        return record

    def forget(self) -> None:
        """What slurmplug has not compared yet may be taken for its own."""
        self.unsure = set(self.cluster.jobs)
        self.theirs = {job: at for job, at in self.theirs.items() if job in self.compared and self.label(job) == at}

    def happen(self, name: str, job_id: int, value: int) -> None:
        if name == "submit":
            job = self.cluster.submit()
            self.unsure |= set() if self.has_read else {job}
        elif name in ("cycle", "lose"):
            self.cycle(lose=name == "lose")
        elif name == "save":
            self.saved = {job: self.label(job) for job in self.cluster.jobs}
        elif name == "kill":
            self.cluster.booted = self.cluster.time = self.cluster.time + 1.0
            for job in self.cluster.jobs:
                self.cluster.jobs[job]["label"] = self.saved.get(job, 0)
            self.forget()
        elif name == "restart":
            self.forget()
            self.restart()
        elif job_id in self.cluster.jobs:
            self.cluster.jobs[job_id]["label"] = value
            self.theirs.pop(job_id, None)
            self.compared.discard(job_id)
            if name == "set" and job_id not in self.unsure:
                self.theirs[job_id] = value


@settings(max_examples=60)
@given(st.lists(st.tuples(EVENTS, st.integers(1, 4)), max_size=15))
def test_the_ledger_agrees_with_slurm_and_what_somebody_else_set_stays(
    events: list[tuple[tuple[str, int], int]],
) -> None:
    with closing(Ledger(None)) as ledger:
        model = Model(ledger)
        for (name, value), job_id in (*((("submit", 0), 0),) * 3, (("cycle", 0), 0), *events):
            model.happen(name, job_id, value)
            for job, theirs in model.theirs.items():
                assert model.label(job) == theirs
        model.cycle()
        model.cycle()
        jobs = model.cycle().snapshot.jobs
        ids = [key.job_id for key in jobs.keys]
        assert jobs.site_factor.tolist() == [model.label(job) for job in ids]
        others = {job for job, by_others in zip(ids, jobs.factor_by_others.tolist(), strict=True) if by_others}
        assert others >= model.theirs.keys()
        ranked = [model.label(job) for job in sorted(set(ids) - others)]
        assert all(lower < higher for lower, higher in pairwise(ranked))
