"""Ledgers for tests, filled as the daemon fills them: real cycles over the fake cluster."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner, Result

from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.commands import main
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.ledger.ledger import Ledger
from tests.fake_cluster import FakeCluster
from tests.schedulers import begun

ACTING: Mapping[str, Any] = {"mode": {"default": "act"}}


class Site:
    """A cluster, its ledger in `folder`, and the scheduler between them; `settings` are those of `Config`."""

    def __init__(self, folder: Path, policy: Policy | None = None, **settings: Any) -> None:
        self.path = folder / "ledger.db"
        self.cluster = FakeCluster()
        self.ledger = Ledger(self.path)
        config = Config.from_table({**ACTING, **settings})
        self.scheduler = begun(self.cluster, policy or policy_registry.policy(config), self.ledger, config)

    def cycle(self, count: int = 1, seconds: float = 60.0) -> CycleRecord:
        """So many cycles, one each so many seconds; the last one's record."""
        for _ in range(count):
            self.cluster.time += seconds
            record = self.scheduler.run()
        assert record is not None
        return record

    def train(self, job_id: int, values: Mapping[int, float], quantity: str = "accuracy", **others: float) -> None:
        """Reports of a quantity by iteration, one a second."""
        for iteration, value in values.items():
            self.cluster.time += 1.0
            self.cluster.say(job_id, iteration=iteration, **{quantity: value}, **others)

    def ask(self, command: str, *arguments: str, code: int = 0) -> str:
        """What `slurmplug COMMAND` answers about this ledger; it has to end with that code."""
        result = run(*command.split(), "--ledger", str(self.path), *arguments)
        assert result.exit_code == code, result.output
        return result.output

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """The rows of `slurmplug acct --parsable2` as mappings by field."""
        header, *rows = [line.split("|") for line in self.ask("acct", "-P", *arguments).splitlines()]
        return [dict(zip(header, row, strict=True)) for row in rows]

    def json(self, command: str, *arguments: str) -> Any:
        return json.loads(self.ask(command, "--json", *arguments))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()


def run(*arguments: str) -> Result:
    """`slurmplug` with these arguments; only our own errors are caught."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


class Planned(Policy):
    """A policy that plans what a test says."""

    name = "planned"

    def __init__(self, plan: Callable[[Snapshot], Plan]) -> None:
        self.plan = plan

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        return self.plan(snapshot)
