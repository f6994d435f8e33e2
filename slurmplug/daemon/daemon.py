"""The daemon: runs one cycle after another until it is stopped.

SIGTERM and SIGINT stop it after the current cycle, SIGHUP makes it read its configuration again. Stopping it changes
nothing for running jobs. On a site with several controllers it acts on one of them and stands by on the others.
"""

import logging
import math
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType

from predictors.runtime import RuntimeModel, RuntimePredictor
from slurmplug.cluster.site_client import SiteClient
from slurmplug.config import policy_registry, schema
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.daemon import standby
from slurmplug.daemon.lease import Lease
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.standby import FencedCluster, Publisher, Standby
from slurmplug.doctor import checks, facts
from slurmplug.endpoint.server import EndpointServer, EndpointThread, RequestHandler
from slurmplug.endpoint.viewers import Viewers
from slurmplug.errors import ConfigError, LedgerError, NotConfirmed, SteppedDown
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.run_times import HistoryRunTimes
from slurmplug.forecasting.seen_speeds import SeenSpeeds
from slurmplug.intake.intake import Intake
from slurmplug.learning import training
from slurmplug.ledger import run_queries
from slurmplug.ledger.ledger import DAY, Ledger
from slurmplug.ledger.lock import only_one
from slurmplug.reports import notices
from slurmplug.spool.report_lines import RunId
from slurmplug.spool.requests import write_notices, write_waiting

RETRAIN_SHARE = 0.2
"""Predictors are trained again when this share of the finished runs is new, or a day has passed;"""
MIN_NEW_RUNS = 5
"""and at least so many runs have finished since."""
RECHECK_INTERVAL = 60.0
"""Seconds from one check of the site to the next while a failed check blocks actions."""
BLOCKED = "hindered"
"""The ledger's control value that says which checks of the site failed, so that actions are blocked."""
RESTART_ONLY = ("cluster", "slurm", "spool", "ledger", "endpoint", "takeover")
"""The sections of the configuration that change with a restart only."""
KEEP_REPORTS = 7 * DAY
"""Seconds for which the report file of an ended run is kept after its last line."""

log = logging.getLogger(__name__)


def serve(path: Path) -> None:
    """Serve a cluster until SIGTERM; with `takeover.folder`, stand by whenever another controller's daemon acts.

    Raises:
        ConfigError, LedgerError, AlreadyRunning
    """
    notifier, config = ServiceNotifier(), schema.load(path)
    with only_one(config.ledger.path.with_suffix(".lock")):
        if config.takeover.folder is None:
            Daemon(path, notifier).run()
        else:
            _serve_while_active(path, config, config.takeover.folder, notifier)
    notifier.stopping()


def _serve_while_active(path: Path, config: Config, folder: Path, notifier: ServiceNotifier) -> None:
    while (held_lease := _stand_by(config, folder, notifier)) is not None:
        with closing(held_lease):
            if Daemon(path, notifier, held_lease).run():
                return


def _stand_by(config: Config, folder: Path, notifier: ServiceNotifier) -> Lease | None:
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the configuration is read when it becomes active
    return Standby(config, folder, lambda: bool(signals)).wait(notifier)


class Daemon:
    """The scheduler's loop, and the work between two cycles."""

    def __init__(self, path: Path, notifier: ServiceNotifier, held_lease: Lease | None = None) -> None:
        """Read the configuration and open the ledger. `held_lease`: None on a site with one controller.

        Raises:
            ConfigError, LedgerError, AlreadyRunning
        """
        self._path, self._notifier, self._lease = path, notifier, held_lease
        self._stopping = self._reloading = self._superseded = False
        config = schema.load(path)
        self._port = FencedCluster(config, held_lease)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # before taking over, which may take a while
            signal.signal(number, self._signalled)
        with ExitStack() as stack:
            if config.spool.path.is_dir():
                stack.enter_context(only_one(config.spool.path / "daemon.lock"))
            folder = config.takeover.folder
            if held_lease and folder:
                standby.install_newer_copy(config, folder)
            self._ledger = Ledger(config.ledger.path)
            stack.callback(self._ledger.close)
            self._publisher = Publisher(config, folder, held_lease) if held_lease and folder else None
            if self._publisher:
                stack.callback(self._publisher.close)
            self._standby = Standby(config, folder, lambda: self._stopping) if folder else None
            self._checked_at = 0.0
            self._intake = Intake(self._ledger.live_records())
            self._intake.set_updated([each.job for each in self._ledger.open_operations() if each.goal])
            self._forecaster = Forecaster(HistoryRunTimes(RuntimePredictor(config.predictors.runtime)))
            self._scheduler = Scheduler(
                port=self._port,
                intake=self._intake,
                forecaster=self._forecaster,
                policy=(policy := policy_registry.policy(config)),
                ledger=self._ledger,
                config=config,
                fallback=policy_registry.fallback(config, policy),
            )
            self._trainer = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="training"))
            self._training: Future[training.Models] | None = None
            self._trained_at = 0.0
            self._cleaned_at = 0.0
            self._configured_modes = config.mode
            self._blocked: dict[str, str] = {}
            self._site_checked_at = 0.0
            self._stack = stack.pop_all()

    def run(self) -> bool:
        """Serve until SIGTERM or SIGINT; False if another daemon acts from now on."""
        if (models := training.load_saved(self._ledger, self._scheduler.config.predictors.runtime)) is not None:
            self._forecaster.use(*models)
            self._trained_at = training.last_trained(self._ledger)
        fallback = self._scheduler.fallback
        self._forecaster.get_ready(self._scheduler.policy.needs | (fallback.needs if fallback else frozenset()))
        with self._stack:
            self._check_site()
            self._start_endpoint()
            log.info("policy %s, a cycle every %g s", self._scheduler.policy.name, self._scheduler.config.interval)
            self._notifier.ready(f"policy {self._scheduler.policy.name}")
            while not self._stopping and not self._superseded:
                began = time.monotonic()
                self._notifier.ping_watchdog()
                self._cycle()
                self._sleep_until(began + self._scheduler.seconds_to_next())
            log.info("standing by from now on" if self._superseded else "stopped; running jobs are not affected")
        return self._stopping or not self._superseded

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
        if self._blocked and time.monotonic() - self._site_checked_at > RECHECK_INTERVAL:
            self._check_site()
        try:
            if not self._still_active():
                log.warning("another slurmctld is in control; this daemon steps down")
                self._superseded = True
                return
            record = self._scheduler.run()
            self._write_waiting_jobs()
            if record is not None:
                self._write_notices(record)
            self._train_when_due()
            self._clean_up()
            if self._publisher:
                self._publisher.tick(time.monotonic())
        except SteppedDown as error:
            log.warning("%s; this daemon steps down", error)
            self._superseded = True
        except (LedgerError, NotConfirmed) as error:
            log.error("%s; the rest of this cycle is skipped", error)

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
            write_waiting(self._scheduler.config.spool.path, self._intake.waiting)
        except OSError as error:
            log.warning("the list of jobs that wait for admission cannot be written to the spool: %s", error.strerror)

    def _write_notices(self, record: CycleRecord) -> None:
        """Tell running jobs whose target is in doubt, on their standard error; not where stops are only observed."""
        if self._scheduler.config.mode.of("stop") == "observe":
            return
        try:
            write_notices(self._scheduler.config.spool.path, notices.of_running_jobs(record))
        except OSError as error:
            log.warning("notices to jobs cannot be written to the spool: %s", error.strerror)

    def _check_site(self) -> None:
        """Check the site; the actions that a failed check blocks are only observed, and the log says how to fix it."""
        config = self._scheduler.config.model_copy(update={"mode": self._configured_modes})
        blocked = checks.blocked_actions(checks.run_checks(facts.collect_facts(config)))
        for kind, why in blocked.items():
            log.error("%s: only observing: %s", kind, why)
        if self._blocked and not blocked:
            log.info("every check of the site passes again")
        self._ledger.set_control(BLOCKED, "; ".join(blocked.values()) or None)
        mode = checks.restrict_modes(self._configured_modes, blocked)
        self._scheduler.config = config.model_copy(update={"mode": mode})
        self._blocked, self._site_checked_at = blocked, time.monotonic()

    def _start_endpoint(self) -> None:
        """Serve reports over the network, if configured; a failure to do so does not stop the daemon."""
        config = self._scheduler.config
        if not config.endpoint.listen:
            return
        viewers = Viewers(SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout))
        try:
            handler = RequestHandler(
                config.ledger.path, lambda: self._scheduler.config, viewers, confirm=self._port.confirm
            )
            server = EndpointServer(config.endpoint.listen, handler)
        except OSError as error:
            log.error("endpoint.listen %s: %s; reports work on the controller only", config.endpoint.listen, error)
            return
        thread = EndpointThread(server)
        self._stack.callback(thread.close)
        log.info("reports are served on %s", config.endpoint.listen)

    def _train_when_due(self) -> None:
        """Train the predictors in the background when enough runs have finished, and use them once trained."""
        if self._training is not None and self._training.done():
            try:
                self._forecaster.use(*self._training.result())
            except Exception:
                log.exception("training failed; the earlier predictors stay in use")
            self._training = None
        now, config = self._port.now(), self._scheduler.config
        new, runs = run_queries.finished_run_counts(self._ledger, self._trained_at)
        due = new >= RETRAIN_SHARE * runs or now - self._trained_at > DAY
        if self._training is None and new >= MIN_NEW_RUNS and due:
            self._trained_at = now
            self._training = self._trainer.submit(
                _train, config.ledger.path, config.predictors.runtime, now, self._forecaster.copy_of_seen_speeds()
            )

    def _clean_up(self) -> None:
        """Once a day, delete what is older than the ledger keeps, and the report files of ended runs."""
        now, keep = self._port.now(), self._scheduler.config.ledger
        if now - self._cleaned_at > DAY:
            self._ledger.delete_old(now, keep.keep_days, keep.keep_inputs_days)
            asked = {RunId(each.job.job_id, each.restarts) for each in self._ledger.open_operations()}
            for fault in self._port.sweep(self._intake.runs, asked, now - KEEP_REPORTS):
                log.warning("%s: %s", fault.rule, fault.detail)
            self._cleaned_at = now

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
        current = self._scheduler.config
        if changed := [name for name in RESTART_ONLY if getattr(config, name) != getattr(current, name)]:
            log.error("%s: changes with a restart only; the earlier configuration stays in use", ", ".join(changed))
            return
        self._scheduler.config, self._scheduler.policy, self._configured_modes = config, policy, config.mode
        self._scheduler.fallback = fallback
        self._check_site()
        log.info("configuration read again: policy %s", policy.name)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._reloading = True
        else:
            self._stopping = True
        self._port.wake()


def _train(path: Path, model: RuntimeModel, now: float, seen: SeenSpeeds) -> training.Models:
    """Train in another thread, which needs a connection of its own to the ledger."""
    ledger = Ledger(path)
    try:
        return training.train(ledger, model, now, seen)
    finally:
        ledger.close()
