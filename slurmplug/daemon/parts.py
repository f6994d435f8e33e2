"""What the daemon that acts is made of: the parts of its cycles, and of what it does between two of them."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from predictors.runtime import RuntimePredictor
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.daemon.copies import Copies
from slurmplug.daemon.lease import Lease
from slurmplug.daemon.notifications import Notifications
from slurmplug.daemon.predictor_training import PredictorTraining
from slurmplug.daemon.promotion import Promotion
from slurmplug.daemon.queue_forecasting import QueueForecasting
from slurmplug.daemon.signals import Signals
from slurmplug.daemon.site import SiteExamination
from slurmplug.daemon.standby import FencedCluster, Standby
from slurmplug.doctor import facts
from slurmplug.doctor.values import PathStatus
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.run_times import HistoryRunTimes
from slurmplug.intake.intake import Intake
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.lock import only_one
from slurmplug.spool.process import SpoolProcess


@dataclass(frozen=True)
class Parts:
    """The parts; `closing` closes them."""

    port: FencedCluster
    spool: SpoolProcess
    ledger: Ledger
    intake: Intake
    forecaster: Forecaster
    site: SiteExamination
    scheduler: Scheduler
    promotion: Promotion
    training: PredictorTraining
    queue_forecasting: QueueForecasting
    notifications: Notifications
    closing: ExitStack
    standby: Standby | None = None
    copies: Copies | None = None
    """these two on a site with several controllers"""


def open_parts(config: Config, signals: Signals, held_lease: Lease | None) -> Parts:
    """Take over the ledger of another controller, open it, and make the parts on it.

    held_lease: None on a site with one controller. SIGTERM ends this where it is, once another controller's ledger was
    taken over.

    Raises:
        ConfigError, LedgerError, AlreadyRunning, Stopped
    """
    spool = SpoolProcess(config.spool.path, only_one, signals.go_on)
    port = FencedCluster(config, held_lease, spool)
    if held_lease:
        signals.shorten(held_lease)
    signals.handle(port)  # before taking over, which may take a while
    with ExitStack() as closing:
        closing.callback(spool.close)
        spool.begin()
        standby = copies = None
        if held_lease:
            standby = Standby(config, held_lease.folder, lambda: signals.stopping)
            copies = Copies(config, held_lease)
            closing.callback(copies.close, signals.go_on)
            copies.take_over(spool.call, signals.go_on)
        with signals.interrupting():
            ledger = Ledger(config.ledger.path)
            signals.shorten(ledger)
            closing.callback(ledger.close)
            intake = Intake(ledger.live_records())
            spool.skip_stored(intake.stored_until)
            spool.merge_costs = intake.merge_costs.by_run()
            intake.set_changed_requests([each.job for each in ledger.open_operations() if each.goal])
            forecaster = Forecaster(HistoryRunTimes(RuntimePredictor(config.predictors.runtime)))
            site = SiteExamination(config, ledger, lambda config: _statuses(config, spool, held_lease))
            policy = policy_registry.policy(config)
            scheduler = Scheduler(
                port=port,
                intake=intake,
                forecaster=forecaster,
                policy=policy,
                ledger=ledger,
                config=config,
                fallback=policy_registry.fallback(config, policy, policy),
                in_force=site.in_force,
            )
            signals.is_applying = lambda: scheduler.applying
            promotion = Promotion(ledger, scheduler, forecaster)
            closing.callback(promotion.close)
            training = PredictorTraining(ledger, config.ledger.path)
            closing.callback(training.close)
            queue_forecasting = QueueForecasting(ledger, config.ledger.path, port.limits)
            closing.callback(queue_forecasting.close)
            notifications = Notifications(ledger, config.ledger.path)
            closing.callback(notifications.close)
        return Parts(
            port=port,
            spool=spool,
            ledger=ledger,
            intake=intake,
            forecaster=forecaster,
            site=site,
            scheduler=scheduler,
            promotion=promotion,
            training=training,
            queue_forecasting=queue_forecasting,
            notifications=notifications,
            closing=closing.pop_all(),
            standby=standby,
            copies=copies,
        )


def _statuses(config: Config, spool: SpoolProcess, held_lease: Lease | None) -> facts.Statuses:
    """The status of each shared folder that answers."""
    found: dict[Path, PathStatus] = {}
    with suppress(OSError):
        found.update(spool.call(facts.statuses_in_spool, config))
    if held_lease and (status := held_lease.folder.status()):
        found[held_lease.folder.path] = status
    return found
