"""Ledgers for tests, filled as the daemon fills them: real cycles over the fake cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from policies.plan import Plan
from policies.policy import Policy
from slurmplug import registry
from slurmplug.commands import main
from slurmplug.config import Config
from slurmplug.cycle import Scheduler
from slurmplug.forecaster import Forecaster
from slurmplug.intake import Intake
from slurmplug.cycle_record import CycleRecord
from slurmplug.ledger import Ledger
from tests.fake_cluster import FakeCluster

ACTING: Mapping[str, Any] = {"mode": {"default": "act"}}


class Site:
    """A cluster, its ledger in `folder`, and the scheduler between them; `settings` are those of `Config`."""

    def __init__(self, folder: Path, policy: Policy | None = None, **settings: Any) -> None:
        self.path = folder / "ledger.db"
        self.cluster = FakeCluster()
        self.ledger = Ledger(self.path)
        config = Config.model_validate({**ACTING, **settings})
        self.scheduler = Scheduler(
            port=self.cluster,
            intake=Intake(self.ledger.live_records()),
            forecaster=Forecaster(),
            policy=policy or registry.policy(config),
            ledger=self.ledger,
            config=config,
        )

    def cycle(self, count: int = 1, seconds: float = 60.0) -> CycleRecord:
        """So many cycles, one each so many seconds; the last one's record."""
        for _ in range(count):
            self.cluster.time += seconds
            record = self.scheduler.run()
        assert record is not None
        return record

    def train(self, job_id: int, values: Mapping[int, float], quantity: str = "accuracy", **told: float) -> None:
        """Reports of a quantity by iteration, one a second."""
        for iteration, value in values.items():
            self.cluster.time += 1.0
            self.cluster.say(job_id, iteration=iteration, **{quantity: value}, **told)

    def run(self, *arguments: str) -> Result:
        """What the command line answers."""
        return run("--ledger", str(self.path), *arguments)


def run(*arguments: str) -> Result:
    """`slurmplug COMMAND --ledger PATH ...`, where the arguments begin with options and their values, then COMMAND."""
    command = next(i for i in range(0, len(arguments), 2) if not arguments[i].startswith("--"))
    ordered = [arguments[command], *arguments[:command], *arguments[command + 1 :]]
    return CliRunner().invoke(main, ordered, catch_exceptions=False)


class Planned:
    """A policy that plans what a test says."""

    name = "planned"
    needs = frozenset()

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def decide(self, snapshot: Any, forecasts: Any, memory: Any) -> Plan:
        plan: Plan = self.plan(snapshot)
        return plan
