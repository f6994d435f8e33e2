"""The daemon: runs one cycle after another until it is stopped.

SIGTERM and SIGINT stop it: a cycle is ended where it is, unless commands are being applied, for which it waits a moment
(`signals.ENDING_SECONDS`). SIGHUP makes it read its configuration again. Stopping it changes nothing for running jobs.
On a site with several controllers it acts on one of them and stands by on the others.
"""

import gc
import logging
import signal
import time
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType

from slurmplug.config import policy_registry, schema
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.daemon import standby
from slurmplug.daemon.lease import Lease
from slurmplug.daemon.log_format import use_json_lines
from slurmplug.daemon.parts import Parts, open_parts
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.shared_folder import SharedFolder
from slurmplug.daemon.signals import Signals, Stopped
from slurmplug.daemon.standby import Standby
from slurmplug.endpoint.exporter.process import MetricsProcess
from slurmplug.endpoint.process import EndpointProcess
from slurmplug.errors import ConfigError, LedgerError, NotConfirmed, SteppedDown, advice
from slurmplug.learning import schedule, training
from slurmplug.ledger import run_queries
from slurmplug.ledger.ledger import DAY
from slurmplug.ledger.lock import only_one
from slurmplug.ledger.owner import become_owner_of
from slurmplug.processes.supervised import SupervisedProcess
from slurmplug.reports import notices
from slurmplug.spool.values import RunId

RESTART_ONLY = ("cluster", "slurm", "spool", "ledger", "endpoint", "metrics", "takeover", "log")
"""The sections of the configuration that change with a restart only."""
HOUR = 3_600.0
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
    with only_one(config.ledger.path.with_suffix(".lock")), suppress(Stopped):
        if config.takeover.folder is None:
            Daemon.opened(path, notifier).run()
        else:
            with closing(SharedFolder(config.takeover.folder)) as folder:
                _serve_while_active(path, config, folder, notifier)
    notifier.stopping()
    gc.freeze()  # else Python looks through all jobs for garbage before it ends, which takes seconds


def _serve_while_active(path: Path, config: Config, folder: SharedFolder, notifier: ServiceNotifier) -> None:
    while (held_lease := _stand_by(config, folder, notifier)) is not None:
        with closing(held_lease):
            if Daemon.opened(path, notifier, held_lease).run():
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

    def __init__(self, path: Path, notifier: ServiceNotifier, signals: Signals, parts: Parts) -> None:
        """path: of the configuration that the parts are made from. signals: those that the parts heed."""
        self._path, self._notifier, self._signals, self.parts = path, notifier, signals, parts
        self._services: list[SupervisedProcess[Config]] = []
        self._superseded = False
        self._checked_at = self._trained_at = self._cleaned_at = self._thinned_at = 0.0
        self._is_swept = True

    @classmethod
    def opened(cls, path: Path, notifier: ServiceNotifier, held_lease: Lease | None = None) -> "Daemon":
        """Read the configuration and open the ledger. held_lease, and what is raised: as for `open_parts`."""
        config, signals = schema.load(path), Signals(notifier)
        return cls(path, notifier, signals, open_parts(config, signals, held_lease))

    def run(self) -> bool:
        """Serve until SIGTERM or SIGINT; False if another daemon acts from now on."""
        signals = self._signals
        with self.parts.closing, suppress(Stopped), signals.interrupting():
            self._get_ready()
            while not (signals.stopping or self._superseded):
                began = time.monotonic()
                self._notifier.ping_watchdog()
                self._cycle()
                if not self._superseded:
                    signals.sleep_until(began + self.parts.scheduler.seconds_to_next(), self.parts.port)
        log.info("standing by from now on" if self._superseded else "stopped; running jobs are not affected")
        return signals.stopping or not self._superseded

    def _get_ready(self) -> None:
        """Take the predictors of an earlier run, and begin to serve."""
        if self._use_saved_predictors():
            self._trained_at = training.last_trained(self.parts.ledger)
        scheduler = self.parts.scheduler
        policy, fallback = scheduler.policy, scheduler.fallback
        self.parts.forecaster.get_ready(policy.needs | (fallback.needs if fallback else frozenset()))
        self._start_services()
        log.info("policy %s, a cycle every %g s", policy.name, scheduler.config.interval)
        self._notifier.ready(f"policy {policy.name}")

    def _cycle(self) -> None:
        parts = self.parts
        if self._signals.reloading:
            self._reload()
        try:
            if not self._still_active():
                log.warning("another slurmctld is in control; this daemon steps down")
                self._superseded = True
                return
            parts.promotion.before_cycle(parts.port.now())
            record = parts.scheduler.run()
            parts.spool.merge_costs = parts.intake.merge_costs.by_run()
            if self._signals.stopping:
                return
            self._write_waiting_jobs()
            if record is not None:
                self._write_notices(record)
                parts.promotion.after_cycle(record, parts.port.now())
            self._train_when_due()
            parts.queue_forecasting.after_cycle()
            parts.notifications.after_cycle(parts.scheduler.config, parts.port.now())
            self._clean_up()
            if parts.copies:
                parts.copies.tick(time.monotonic())
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
        if self.parts.standby is None or now - self._checked_at < standby.CHECK_INTERVAL:
            return True
        self._checked_at = now
        return self.parts.standby.may_continue()

    def _write_waiting_jobs(self) -> None:
        """For `site_config/slurmplug-release`, which releases them if this daemon is down for long."""
        try:
            self.parts.spool.write_waiting(self.parts.intake.waiting)
        except OSError as error:
            log.warning("the list of jobs that wait for admission cannot be written to the spool: %s", error.strerror)

    def _write_notices(self, record: CycleRecord) -> None:
        """Tell running jobs whose target is in doubt, on their standard error; not where stops are only observed."""
        if self.parts.scheduler.config.mode.of("stop") == "observe":
            return
        try:
            self.parts.spool.write_notices(notices.of_running_jobs(record))
        except OSError as error:
            log.warning("notices to jobs cannot be written to the spool: %s", error.strerror)

    def _start_services(self) -> None:
        """Serve reports over the network and metrics, if configured; a failure to do so does not stop the daemon."""
        config = self.parts.scheduler.config
        try:
            if config.endpoint.listen:
                self._services.append(EndpointProcess(config, self.parts.port.confirm))
            if config.metrics.listen:
                self._services.append(MetricsProcess(config))
        except OSError as error:
            log.error("a process beside the daemon cannot be started: %s%s", error, advice(error))
        for process in self._services:
            self.parts.closing.callback(process.close)

    def _train_when_due(self) -> None:
        """Train the predictors beside the cycles when enough runs have finished, and use them once trained."""
        parts, now = self.parts, self.parts.port.now()
        if parts.training.has_ended():
            self._use_saved_predictors()
        if self._trained_at > now:  # by a clock that was ahead
            self._trained_at = 0.0
        new, runs = run_queries.finished_run_counts(parts.ledger, self._trained_at)
        if not parts.training.running and schedule.training_is_due(new, runs, now - self._trained_at):
            self._trained_at = now
            try:
                settings = parts.scheduler.config.predictors.runtime
                parts.training.begin(settings, now, parts.forecaster.copy_of_seen_speeds())
            except OSError as error:
                log.error("no training can be begun, the earlier predictors stay in use: %s", error.strerror)

    def _use_saved_predictors(self) -> bool:
        """Whether the ledger has any that can be used."""
        models = training.load_saved(self.parts.ledger, self.parts.scheduler.config.predictors.runtime)
        if models is not None:
            self.parts.forecaster.use(*models)
        return models is not None

    def _clean_up(self) -> None:
        """Each hour, delete what is beyond the ledger's budgets; once a day, what is older than it keeps, and the
        report files of ended runs, in pieces."""
        now, keep = self.parts.port.now(), self.parts.scheduler.config.ledger
        if not 0 <= now - self._thinned_at <= HOUR:  # also where the clock was set back
            self.parts.ledger.thin(now)
            self._thinned_at = now
        if not 0 <= now - self._cleaned_at <= DAY:
            self.parts.ledger.delete_old(now, keep.keep_days, keep.keep_inputs_days)
            self._cleaned_at = now
            self._is_swept = False
        if not self._is_swept:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        asked = {RunId(each.job.job_id, each.restarts) for each in self.parts.ledger.open_operations()}
        swept = self.parts.spool.sweep(self.parts.intake.runs, asked, now - KEEP_REPORTS)
        for fault in swept.faults:
            log.warning("%s: %s", fault.rule, fault.detail)
        self._is_swept = swept.finished

    def _reload(self) -> None:
        """Read the configuration again; an invalid one changes nothing."""
        self._signals.reloading = False
        self._notifier.reloading()
        try:
            self._apply_configuration()
        finally:
            self._notifier.ready(f"policy {self.parts.scheduler.policy.name}")

    def _apply_configuration(self) -> None:
        try:
            config = schema.load(self._path)
            policy = policy_registry.policy(config)
            fallback = policy_registry.fallback(config, policy, policy)
        except ConfigError as error:
            log.error("%s\nthe earlier configuration stays in use", error)
            return
        except Exception:
            log.exception("the configuration cannot be read; the earlier configuration stays in use")
            return
        current = self.parts.scheduler.config
        if changed := [name for name in RESTART_ONLY if getattr(config, name) != getattr(current, name)]:
            log.error(
                "%s: takes effect only by a restart of the daemon; the earlier configuration stays in use",
                ", ".join(changed),
            )
            return
        in_force = self.parts.site.use(config)
        for process in self._services:
            process.use(config)
        self.parts.promotion.configure(in_force, policy, fallback)
        log.info("configuration read again: policy %s", policy.name)
