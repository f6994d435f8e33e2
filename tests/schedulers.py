"""The way of the data, put together for a test."""

from typing import Any

from policies.policy import Policy
from slurmplug.cluster.port import ClusterPort
from slurmplug.config.schema import Config
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.intake.intake import Intake
from slurmplug.ledger.ledger import Ledger


def begun(port: ClusterPort, policy: Policy, ledger: Ledger, config: Config) -> Scheduler:
    """A scheduler that begins with what the ledger has, and has learnt nothing."""
    intake = Intake(ledger.live_records())
    intake.set_changed_requests([each.job for each in ledger.open_operations() if each.goal])
    return Scheduler(port, intake, Forecaster(), policy, ledger, config)


def configure(scheduler: Scheduler, **changed: Any) -> None:
    """A reload of the configuration, in which these values of `Config` have changed."""
    scheduler.use(scheduler.config.replaced(**changed), scheduler.policy, scheduler.fallback)
