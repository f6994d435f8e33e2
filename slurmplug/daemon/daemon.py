"""The daemon: one cycle after another, until it is told to stop.

SIGTERM and SIGINT end it after the cycle at hand, SIGHUP has it read its configuration again. Stopping it changes
nothing for running jobs. Where there are several controllers, it acts on one of them and stands by on the others.
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
from slurmplug.config import policy_registry
from slurmplug.config import schema as configuration
from slurmplug.config.schema import Config
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.daemon import standby
from slurmplug.daemon.lease import Life
from slurmplug.daemon.sd_notify import Manager
from slurmplug.daemon.standby import FencedCluster, Publisher, Standby
from slurmplug.doctor import checks, facts
from slurmplug.endpoint.server import Endpoint, Server, Serving
from slurmplug.endpoint.viewers import Viewers
from slurmplug.errors import ConfigError, LedgerError, NotConfirmed, SteppedDown
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.run_times import HistoryRunTimes
from slurmplug.intake.intake import Intake
from slurmplug.learning import training
from slurmplug.ledger.ledger import DAY, Ledger
from slurmplug.ledger.lock import only_one
from slurmplug.spool.requests import write_waiting

RETRAIN_SHARE = 0.2
"""Predictors are trained anew when so much of the history is new, or a day has passed;"""
FEWEST_RUNS = 5
"""and so many runs have finished since."""
EXAMINE_AGAIN = 60.0
"""Seconds until a site where something needed is missing is looked at again."""
HINDERED = "hindered"
"""The ledger's switch that says why the daemon only observes."""
FIXED = ("cluster", "slurm", "spool", "ledger", "endpoint", "takeover")
"""What of the configuration a daemon keeps as it was when it started."""
KEEP_REPORTS = 7 * DAY
"""Seconds after its last line that the report file of an ended run is kept."""

log = logging.getLogger(__name__)


def serve(path: Path) -> None:
    """Serve a cluster until SIGTERM; with a takeover's folder, stand by until it is this one's turn, and after it.

    Raises:
        ConfigError, LedgerError, AlreadyRunning
    """
    manager, config = Manager(), configuration.load(path)
    with only_one(config.ledger.path.with_suffix(".lock")):
        if config.takeover.folder is None:
            Daemon(path, manager).run()
        else:
            _in_turn(path, config, config.takeover.folder, manager)
    manager.stopping()


def _in_turn(path: Path, config: Config, folder: Path, manager: Manager) -> None:
    while (life := _stand_by(config, folder, manager)) is not None:
        with closing(life):
            if Daemon(path, manager, life).run():
                return


def _stand_by(config: Config, folder: Path, manager: Manager) -> Life | None:
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is read when its turn comes
    return Standby(config, folder, lambda: bool(told)).wait(manager)


class Daemon:
    """The scheduler's loop, and what must be done between two cycles."""

    def __init__(self, path: Path, manager: Manager, life: Life | None = None) -> None:
        """Read the configuration and open the ledger. `life`: what shows the others that this one acts, where any are.

        Raises:
            ConfigError, LedgerError, AlreadyRunning
        """
        self._path, self._manager, self._life = path, manager, life
        self._stopping = self._reloading = self._down = False
        config = configuration.load(path)
        self._port = FencedCluster(config, life)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # now: to take over may take a while
            signal.signal(number, self._signalled)
        with ExitStack() as stack:
            if config.spool.path.is_dir():
                stack.enter_context(only_one(config.spool.path / "daemon.lock"))
            folder = config.takeover.folder
            if life and folder:
                standby.adopt(config, folder)
            self._ledger = Ledger(config.ledger.path)
            stack.callback(self._ledger.close)
            self._publisher = Publisher(config, folder, life) if life and folder else None
            if self._publisher:
                stack.callback(self._publisher.close)
            self._turn = Standby(config, folder, lambda: self._stopping) if folder else None
            self._looked = 0.0
            self._intake = Intake(self._ledger.live_records())
            self._forecaster = Forecaster(HistoryRunTimes(RuntimePredictor(config.predictors.runtime)))
            self._scheduler = Scheduler(
                port=self._port,
                intake=self._intake,
                forecaster=self._forecaster,
                policy=policy_registry.policy(config),
                ledger=self._ledger,
                config=config,
            )
            self._trainer = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="training"))
            self._training: Future[training.Models] | None = None
            self._trained_at = 0.0
            self._swept = 0.0
            self._wanted = config.mode
            self._hinders: dict[str, str] = {}
            self._examined = 0.0
            self._stack = stack.pop_all()

    def run(self) -> bool:
        """Serve until SIGTERM or SIGINT; False where another daemon acts from now on."""
        if (models := training.remembered(self._ledger, self._scheduler.config.predictors.runtime)) is not None:
            self._forecaster.use(*models)
            self._trained_at = training.last_trained(self._ledger)
        self._forecaster.get_ready(self._scheduler.policy.needs)
        with self._stack:
            self._examine()
            self._serve()
            log.info("policy %s, a cycle every %g s", self._scheduler.policy.name, self._scheduler.config.interval)
            self._manager.ready(f"policy {self._scheduler.policy.name}")
            while not self._stopping and not self._down:
                began = time.monotonic()
                self._manager.alive()
                self._cycle()
                self._rest(began + self._scheduler.seconds_to_next())
            log.info("stands by from now on" if self._down else "stopped; running jobs go on")
        return self._stopping or not self._down

    def _rest(self, until: float) -> None:
        """Wait, with a sign of life to the service manager where it wants them oftener than a cycle comes.

        until: of the monotonic clock. By the time of day it would rest for hours where that is set back.
        """
        beat = self._manager.beat or math.inf
        while not (self._stopping or self._reloading or self._down) and (left := until - time.monotonic()) > 0:
            self._manager.alive()
            self._port.wait(self._port.now() + min(left, beat))

    def _cycle(self) -> None:
        if self._reloading:
            self._reload()
        if self._hinders and time.monotonic() - self._examined > EXAMINE_AGAIN:
            self._examine()
        try:
            if not self._stays():
                log.warning("another slurmctld is in charge; this daemon acts no more")
                self._down = True
                return
            self._scheduler.run()
            self._tell_who_waits()
            self._learn()
            self._tidy()
            if self._publisher:
                self._publisher.tick(time.monotonic())
        except SteppedDown as error:
            log.warning("%s; this daemon acts no more", error)
            self._down = True
        except (LedgerError, NotConfirmed) as error:
            log.error("%s; nothing more is done in this cycle", error)

    def _stays(self) -> bool:
        """Whether it is still this daemon's turn, looked at now and then."""
        now = time.monotonic()
        if self._turn is None or now - self._looked < standby.LOOK:
            return True
        self._looked = now
        return self._turn.stays()

    def _tell_who_waits(self) -> None:
        """For `site_config/slurmplug-release`, which lets them go where this daemon is gone for long."""
        try:
            write_waiting(self._scheduler.config.spool.path, self._intake.waiting)
        except OSError as error:
            log.warning("who waits for admission cannot be told in the spool: %s", error.strerror)

    def _examine(self) -> None:
        """Observe only where something needed is missing, and say what, and what mends it."""
        config = self._scheduler.config.model_copy(update={"mode": self._wanted})
        hinders = checks.hindered(checks.examine(facts.look(config)))
        for kind, why in hinders.items():
            log.error("%s is observed only: %s", kind, why)
        if self._hinders and not hinders:
            log.info("nothing needed is missing any more")
        self._ledger.set_control(HINDERED, "; ".join(hinders.values()) or None)
        mode = checks.allowed(self._wanted, hinders)
        self._scheduler.config = config.model_copy(update={"mode": mode})
        self._hinders, self._examined = hinders, time.monotonic()

    def _serve(self) -> None:
        """Answer reports over the network, where configured; without it the daemon does all else."""
        config = self._scheduler.config
        if not config.endpoint.listen:
            return
        viewers = Viewers(SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout))
        try:
            server = Server(
                config.endpoint.listen, Endpoint(config.ledger.path, lambda: self._scheduler.config, viewers)
            )
        except OSError as error:
            log.error("endpoint.listen %s: %s; reports work on the controller only", config.endpoint.listen, error)
            return
        serving = Serving(server)
        self._stack.callback(serving.close)
        log.info("reports are served on %s", config.endpoint.listen)

    def _learn(self) -> None:
        """Train in the background when there is enough new to learn, and use what was trained."""
        if self._training is not None and self._training.done():
            try:
                self._forecaster.use(*self._training.result())
            except Exception:
                log.exception("training failed; the predictors in use stay")
            self._training = None
        now, config = self._port.now(), self._scheduler.config
        fresh, runs = training.runs_to_learn(self._ledger, self._trained_at)
        due = fresh >= RETRAIN_SHARE * runs or now - self._trained_at > DAY
        if self._training is None and fresh >= FEWEST_RUNS and due:
            self._trained_at = now
            self._training = self._trainer.submit(_train, config.ledger.path, config.predictors.runtime, now)

    def _tidy(self) -> None:
        now, keep = self._port.now(), self._scheduler.config.ledger
        if now - self._swept > DAY:
            self._ledger.delete_old(now, keep.keep_days, keep.keep_inputs_days)
            for fault in self._port.sweep(self._intake.runs, now - KEEP_REPORTS):
                log.warning("%s: %s", fault.rule, fault.detail)
            self._swept = now

    def _reload(self) -> None:
        """Take over the configuration as it is now; one that is not valid changes nothing."""
        self._reloading = False
        self._manager.reloading()
        try:
            self._take_over_configuration()
        finally:
            self._manager.ready(f"policy {self._scheduler.policy.name}")

    def _take_over_configuration(self) -> None:
        try:
            config = configuration.load(self._path)
            policy = policy_registry.policy(config)
        except ConfigError as error:
            log.error("%s\nthe configuration in use stays", error)
            return
        fixed = self._scheduler.config
        if any(getattr(config, name) != getattr(fixed, name) for name in FIXED):
            log.error("%s change with a restart only; the configuration in use stays", ", ".join(FIXED))
            return
        self._scheduler.config, self._scheduler.policy, self._wanted = config, policy, config.mode
        self._examine()
        log.info("configuration read again: policy %s", policy.name)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._reloading = True
        else:
            self._stopping = True
        self._port.wake()


def _train(path: Path, model: RuntimeModel, now: float) -> training.Models:
    """In a thread of its own, so with a connection of its own."""
    ledger = Ledger(path)
    try:
        return training.trained(ledger, model, now)
    finally:
        ledger.close()
