"""A site whose policy does what a test says: jobs that train, save and go on, cycle after cycle."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from policies.plan import Action, Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.ledger.ledger import Ledger
from tests.fake_cluster import FakeCluster, node_rows
from tests.schedulers import begun

ELASTIC = b"#!/bin/sh\n#PLUG --gpus=1..8 --checkpoint=file@100 --max-iterations=90\ntrain\n"
SIGNALLED = b"#!/bin/sh\n#PLUG --gpus=1..8 --checkpoint=USR1:batch@100\ntrain\n"
ADMITTED = b"#!/bin/sh\n#PLUG --utility=50,0.5,12 --gpus=1..4\ntrain\n"
SETTINGS: dict[str, Any] = {
    "mode": {"default": "act", "admit": "act"},
    "operations": {"placement": "exclude"},
    "guardrails": {
        "first_seen": 0,
        "minimum_run": 0,
        "requeue_cooldown": 0,
        "requeue_cost": 0,
        "breaker_failures": 1000,
    },
}


class DoesWhatItIsTold(Policy):
    """Ranks nobody; `wanted`: the next actions by job id, kept until they are taken out."""

    name = "told"
    settings = None

    def __init__(self) -> None:
        self.wanted: dict[int, dict[str, Any]] = {}

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        actions = tuple(
            Action(job=key, reason=Reason("share"), **self.wanted[key.job_id])
            for key in snapshot.jobs.keys
            if key.job_id in self.wanted
        )
        return Plan(np.full(len(snapshot.jobs), np.nan), actions=actions)


class MovingSite:
    """Nodes of four GPUs, a ledger, and the scheduler between them; cycles are 10 s apart."""

    def __init__(self, path: Path | None = None, nodes: int = 3, **settings: Mapping[str, Any]) -> None:
        self.cluster = FakeCluster(node_rows(nodes))
        self.ledger = Ledger(path)
        self.policy = DoesWhatItIsTold()
        merged = {name: {**SETTINGS.get(name, {}), **settings.get(name, {})} for name in {*SETTINGS, *settings}}
        self.config = Config.from_table(merged)
        self.restart()

    def restart(self) -> None:
        """The daemon is gone, and another begins with what the ledger has."""
        self.scheduler = begun(self.cluster, self.policy, self.ledger, self.config)

    def training(self, script: bytes = ELASTIC, gpus: int = 2, **given: Any) -> int:
        """A job that runs and has reported an iteration; it has ten hours, of which its 90 iterations take fewer."""
        job_id = self.cluster.submit(script, **{"gpus": gpus, "time_limit": 36_000.0, **given})
        self.cluster.start(job_id)
        self.trains(job_id, 5)
        return job_id

    def trains(self, job_id: int, iteration: int) -> None:
        self.cluster.say(job_id, iteration=iteration, loss=1.0 / iteration)

    def saves(self, job_id: int, iteration: int = 5) -> None:
        self.cluster.say(job_id, checkpoint=iteration)

    def cycle(self, after: float = 10.0, **wanted: Any) -> CycleRecord:
        """One cycle; `wanted`: what the policy wants of job 1, once."""
        self.cluster.time += after
        if wanted:
            self.policy.wanted = {1: wanted}
        record = self.scheduler.run()
        assert record is not None
        self.policy.wanted = {} if wanted else self.policy.wanted
        return record

    def cycles_until(self, true: Callable[[], bool], most: int = 12) -> None:
        """Cycles, in which Slurm starts what it can, until something holds."""
        for _ in range(most):
            self.cluster.schedule()
            self.cycle()
            if true():
                return
        raise AssertionError(f"not within {most} cycles: {self.operations()}")

    def operations(self) -> list[dict[str, Any]]:
        return self.ledger.query("SELECT * FROM operations ORDER BY opened, id")

    def step(self) -> str:
        """Of the last operation."""
        return str(self.operations()[-1]["step"])

    def result(self) -> str:
        """Of the last operation, which has ended or is only bound."""
        last = self.operations()[-1]
        assert last["step"] in ("ended", "bound"), last
        return str(last["result"])

    def steps(self) -> list[str]:
        """All steps of the last operation, in their order."""
        rows = self.ledger.query("SELECT step FROM steps WHERE operation = ? ORDER BY at", self.operations()[-1]["id"])
        return [row["step"] for row in rows]

    def vetoes(self) -> list[str]:
        return [row["veto"] for row in self.ledger.query("SELECT veto FROM decisions WHERE verdict != 'allowed'")]


MakeSite = Callable[..., MovingSite]
