"""The daemon: runs one cycle after another until it is stopped.

SIGTERM and SIGINT stop it: a cycle is ended where it is, unless commands are being applied, for which it waits a moment
(`ENDING_SECONDS`). SIGHUP makes it read its configuration again. Stopping it changes nothing for running jobs. On a
site with several controllers it acts on one of them and stands by on the others.
"""

import gc
import logging
import math
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import FrameType

from predictors.runtime import RuntimePredictor
from slurmplug.config import policy_registry, schema
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.daemon import standby
from slurmplug.daemon.copies import Copies
from slurmplug.daemon.lease import Lease
from slurmplug.daemon.log_format import use_json_lines
from slurmplug.daemon.notifications import Notifications
from slurmplug.daemon.predictor_training import PredictorTraining
from slurmplug.daemon.promotion import Promotion
from slurmplug.daemon.queue_forecasting import QueueForecasting
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.shared_folder import SharedFolder
from slurmplug.daemon.site import SiteExamination
from slurmplug.daemon.standby import FencedCluster, Standby
from slurmplug.doctor import facts
from slurmplug.doctor.checks import PathStatus
from slurmplug.endpoint.exporter.process import MetricsProcess
from slurmplug.endpoint.process import EndpointProcess
from slurmplug.errors import ConfigError, LedgerError, NotConfirmed, SteppedDown, advice
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.run_times import HistoryRunTimes
from slurmplug.intake.intake import Intake
from slurmplug.learning import schedule, training
from slurmplug.ledger import run_queries
from slurmplug.ledger.ledger import DAY, Ledger
from slurmplug.ledger.lock import only_one
from slurmplug.ledger.owner import become_owner_of
from slurmplug.processes.supervised import SupervisedProcess
from slurmplug.reports import notices
from slurmplug.spool.process import SpoolProcess
from slurmplug.spool.values import RunId

RESTART_ONLY = ("cluster", "slurm", "spool", "ledger", "endpoint", "metrics", "takeover", "log")
"""The sections of the configuration that change with a restart only."""
HOUR = 3_600.0
ENDING_SECONDS = 1.0
"""Seconds for which Slurm and other processes that use the ledger are waited for when the daemon ends."""
KEEP_REPORTS = 7 * DAY
"""Seconds for which the report file of an ended run is kept after its last line."""

log = logging.getLogger(__name__)


def serve(path: Path) -> None:
    """Serve a cluster until SIGTERM; with `takeover.folder`, stand by whenever another controller's daemon acts.

    Raises:
        ConfigError, LedgerError, AlreadyRunning
    """
    notifier, config = ServiceNotifier(), schema.load(path)
    if config.log.format == "json":
        use_json_lines()
    become_owner_of(config.ledger.path.parent)
    with only_one(config.ledger.path.with_suffix(".lock")), suppress(_Stopped):
        if config.takeover.folder is None:
            Daemon(path, notifier).run()
        else:
            with closing(SharedFolder(config.takeover.folder)) as folder:
                _serve_while_active(path, config, folder, notifier)
    notifier.stopping()
    gc.freeze()  # else Python looks through all jobs for garbage before it ends, which takes seconds


def _serve_while_active(path: Path, config: Config, folder: SharedFolder, notifier: ServiceNotifier) -> None:
    while (held_lease := _stand_by(config, folder, notifier)) is not None:
        with closing(held_lease):
            if Daemon(path, notifier, held_lease).run():
                return


def _stand_by(config: Config, folder: SharedFolder, notifier: ServiceNotifier) -> Lease | None:
    signals: list[int] = []

    def signalled(number: int, _: FrameType | None) -> None:
        signals.append(number)
        folder.finish_within(0.0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signalled)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the configuration is read when it becomes active
    return Standby(config, folder, lambda: bool(signals)).wait(notifier)


class Daemon:
    """The scheduler's loop, and the work between two cycles."""

    def __init__(self, path: Path, notifier: ServiceNotifier, held_lease: Lease | None = None) -> None:
        """Read the configuration and open the ledger. `held_lease`: None on a site with one controller.

        SIGTERM ends that where it is, once another controller's ledger was taken over.

        Raises:
            ConfigError, LedgerError, AlreadyRunning
        """
        self._path, self._notifier, self._lease = path, notifier, held_lease
        self._stopping = self._reloading = self._superseded = False
        self._interruptible = False
        self._is_applying: Callable[[], bool] = lambda: False  # a signal may come before there is a scheduler
        config = schema.load(path)
        self._spool = SpoolProcess(config.spool.path, only_one, self._go_on)
        self._port = FencedCluster(config, held_lease, self._spool)
        self._waiting: list[FencedCluster | Ledger | Lease] = [self._port, *([held_lease] if held_lease else [])]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # before taking over, which may take a while
            signal.signal(number, self._signalled)
        with ExitStack() as stack:
            stack.callback(self._spool.close)
            self._spool.begin()
            self._standby = self._copies = None
            if held_lease:
                self._standby = Standby(config, held_lease.folder, lambda: self._stopping)
                self._copies = Copies(config, held_lease)
                stack.callback(self._copies.close, self._go_on)
                self._copies.take_over(self._spool.call, self._go_on)
            self._interruptible = True
            if self._stopping:
                raise _Stopped
            self._ledger = Ledger(config.ledger.path)
            self._waiting.append(self._ledger)
            stack.callback(self._ledger.close)
            self._make_parts(config, stack)
            self._interruptible = False
            self._stack = stack.pop_all()

    def _make_parts(self, config: Config, stack: ExitStack) -> None:
        """The parts of a cycle, on the open ledger, and what is done between two cycles. `stack`: closes them."""
        self._services: list[SupervisedProcess[Config]] = []
        self._checked_at = 0.0
        self._intake = Intake(self._ledger.live_records())
        self._spool.skip_stored(self._intake.stored_until)
        self._spool.merge_costs = self._intake.merge_costs.by_run()
        self._intake.set_changed_requests([each.job for each in self._ledger.open_operations() if each.goal])
        self._forecaster = Forecaster(HistoryRunTimes(RuntimePredictor(config.predictors.runtime)))
        self._site = SiteExamination(config, self._ledger, self._statuses)
        self._scheduler = Scheduler(
            port=self._port,
            intake=self._intake,
            forecaster=self._forecaster,
            policy=(policy := policy_registry.policy(config)),
            ledger=self._ledger,
            config=config,
            fallback=policy_registry.fallback(config, policy),
            in_force=self._site.in_force,
        )
        self._is_applying = lambda: self._scheduler.applying
        self._promotion = Promotion(self._ledger, self._scheduler, self._forecaster)
        stack.callback(self._promotion.close)
        self._training = PredictorTraining(self._ledger, config.ledger.path)
        stack.callback(self._training.close)
        self._queue_forecasting = QueueForecasting(self._ledger, config.ledger.path, self._port.limits)
        stack.callback(self._queue_forecasting.close)
        self._notifications = Notifications(self._ledger, config.ledger.path)
        stack.callback(self._notifications.close)
        self._trained_at = 0.0
        self._cleaned_at = self._thinned_at = 0.0
        self._is_swept = True

    def run(self) -> bool:
        """Serve until SIGTERM or SIGINT; False if another daemon acts from now on."""
        with self._stack, suppress(_Stopped):
            self._interruptible = True
            if self._stopping:
                raise _Stopped
            self._get_ready()
            while not self._stopping and not self._superseded:
                began = time.monotonic()
                self._notifier.ping_watchdog()
                self._cycle()
                self._sleep_until(began + self._scheduler.seconds_to_next())
            self._interruptible = False
        log.info("standing by from now on" if self._superseded else "stopped; running jobs are not affected")
        return self._stopping or not self._superseded

    def _get_ready(self) -> None:
        """Take the predictors of an earlier run, and begin to serve."""
        if self._use_saved_predictors():
            self._trained_at = training.last_trained(self._ledger)
        fallback = self._scheduler.fallback
        self._forecaster.get_ready(self._scheduler.policy.needs | (fallback.needs if fallback else frozenset()))
        self._start_services()
        log.info("policy %s, a cycle every %g s", self._scheduler.policy.name, self._scheduler.config.interval)
        self._notifier.ready(f"policy {self._scheduler.policy.name}")

    def _sleep_until(self, until: float) -> None:
        """Wait, and ping the service manager's watchdog meanwhile.

        until: of the monotonic clock. By the time of day it would sleep for hours if that is set back.
        """
        interval = self._notifier.watchdog_interval or math.inf
        while not (self._stopping or self._reloading or self._superseded) and (left := until - time.monotonic()) > 0:
            self._notifier.ping_watchdog()
            self._port.wait(self._port.now() + min(left, interval))

    def _cycle(self) -> None:
        if self._reloading:
            self._reload()
        try:
            if not self._still_active():
                log.warning("another slurmctld is in control; this daemon steps down")
                self._superseded = True
                return
            self._promotion.before_cycle(self._port.now())
            record = self._scheduler.run()
            self._spool.merge_costs = self._intake.merge_costs.by_run()
            if self._stopping:
                return
            self._write_waiting_jobs()
            if record is not None:
                self._write_notices(record)
                self._promotion.after_cycle(record, self._port.now())
            self._train_when_due()
            self._queue_forecasting.after_cycle()
            self._notifications.after_cycle(self._scheduler.config, self._port.now())
            self._clean_up()
            if self._copies:
                self._copies.tick(time.monotonic())
        except SteppedDown as error:
            log.warning("%s; this daemon steps down", error)
            self._superseded = True
        except (LedgerError, NotConfirmed) as error:
            log.error("%s; the rest of this cycle is skipped", error)
        except OSError as error:  # of the machine, not of what it was doing: descriptors, memory, processes
            log.error("%s%s; the rest of this cycle is skipped", error, advice(error))

    def _still_active(self) -> bool:
        """Whether this daemon's controller is still the one to act, checked now and then."""
        now = time.monotonic()
        if self._standby is None or now - self._checked_at < standby.CHECK_INTERVAL:
            return True
        self._checked_at = now
        return self._standby.may_continue()

    def _write_waiting_jobs(self) -> None:
        """For `site_config/slurmplug-release`, which releases them if this daemon is down for long."""
        try:
            self._spool.write_waiting(self._intake.waiting)
        except OSError as error:
            log.warning("the list of jobs that wait for admission cannot be written to the spool: %s", error.strerror)

    def _write_notices(self, record: CycleRecord) -> None:
        """Tell running jobs whose target is in doubt, on their standard error; not where stops are only observed."""
        if self._scheduler.config.mode.of("stop") == "observe":
            return
        try:
            self._spool.write_notices(notices.of_running_jobs(record))
        except OSError as error:
            log.warning("notices to jobs cannot be written to the spool: %s", error.strerror)

    def _statuses(self, config: Config) -> facts.Statuses:
        """The status of each shared folder that answers."""
        found: dict[Path, PathStatus] = {}
        with suppress(OSError):
            found.update(self._spool.call(facts.statuses_in_spool, config))
        if self._lease and (status := self._lease.folder.status()):
            found[self._lease.folder.path] = status
        return found

    def _start_services(self) -> None:
        """Serve reports over the network and metrics, if configured; a failure to do so does not stop the daemon."""
        config = self._scheduler.config
        try:
            if config.endpoint.listen:
                self._services.append(EndpointProcess(config, self._port.confirm))
            if config.metrics.listen:
                self._services.append(MetricsProcess(config))
        except OSError as error:
            log.error("a process beside the daemon cannot be started: %s%s", error, advice(error))
        for process in self._services:
            self._stack.callback(process.close)

    def _train_when_due(self) -> None:
        """Train the predictors beside the cycles when enough runs have finished, and use them once trained."""
        now, config = self._port.now(), self._scheduler.config
        if self._training.has_ended():
            self._use_saved_predictors()
        new, runs = run_queries.finished_run_counts(self._ledger, self._trained_at)
        if not self._training.running and schedule.training_is_due(new, runs, now - self._trained_at):
            self._trained_at = now
            try:
                self._training.begin(config.predictors.runtime, now, self._forecaster.copy_of_seen_speeds())
            except OSError as error:
                log.error("no training can be begun, the earlier predictors stay in use: %s", error.strerror)

    def _use_saved_predictors(self) -> bool:
        """Whether the ledger has any that can be used."""
        models = training.load_saved(self._ledger, self._scheduler.config.predictors.runtime)
        if models is not None:
            self._forecaster.use(*models)
        return models is not None

    def _clean_up(self) -> None:
        """Each hour, delete what is beyond the ledger's budgets; once a day, what is older than it keeps, and the
        report files of ended runs, in pieces."""
        now, keep = self._port.now(), self._scheduler.config.ledger
        if now - self._thinned_at > HOUR:
            self._ledger.thin(now)
            self._thinned_at = now
        if now - self._cleaned_at > DAY:
            self._ledger.delete_old(now, keep.keep_days, keep.keep_inputs_days)
            self._cleaned_at = now
            self._is_swept = False
        if not self._is_swept:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        asked = {RunId(each.job.job_id, each.restarts) for each in self._ledger.open_operations()}
        swept = self._spool.sweep(self._intake.runs, asked, now - KEEP_REPORTS)
        for fault in swept.faults:
            log.warning("%s: %s", fault.rule, fault.detail)
        self._is_swept = swept.finished

    def _reload(self) -> None:
        """Read the configuration again; an invalid one changes nothing."""
        self._reloading = False
        self._notifier.reloading()
        try:
            self._apply_configuration()
        finally:
            self._notifier.ready(f"policy {self._scheduler.policy.name}")

    def _apply_configuration(self) -> None:
        try:
            config = schema.load(self._path)
            policy = policy_registry.policy(config)
            fallback = policy_registry.fallback(config, policy)
        except ConfigError as error:
            log.error("%s\nthe earlier configuration stays in use", error)
            return
        except Exception:
            log.exception("the configuration cannot be read; the earlier configuration stays in use")
            return
        current = self._scheduler.config
        if changed := [name for name in RESTART_ONLY if getattr(config, name) != getattr(current, name)]:
            log.error(
                "%s: takes effect only by a restart of the daemon; the earlier configuration stays in use",
                ", ".join(changed),
            )
            return
        self._scheduler.config = self._site.use(config)
        for process in self._services:
            process.use(config)
        self._promotion.configure(policy, fallback)
        log.info("configuration read again: policy %s", policy.name)

    def _go_on(self) -> bool:
        """Called while the spool is waited for."""
        self._notifier.ping_watchdog()
        return not self._stopping

    def _signalled(self, number: int, _: FrameType | None) -> None:
        self._port.wake()
        if number == signal.SIGHUP:
            self._reloading = True
        elif not self._stopping:
            self._stopping = True
            for each in self._waiting:
                each.finish_within(ENDING_SECONDS)
            if self._interruptible and not self._is_applying():
                raise _Stopped


class _Stopped(BaseException):
    """Ends a cycle where it is, however long its stage would take."""
