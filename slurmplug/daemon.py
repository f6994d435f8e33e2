"""The daemon: one cycle after another, until it is told to stop.

SIGTERM and SIGINT end it after the cycle at hand, SIGHUP has it read its configuration again. Stopping it changes
nothing for running jobs.
"""

import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from predictors.learning_curve import LearningCurvePredictor
from predictors.runtime import RuntimeModel, RuntimePredictor
from slurmplug import config as configuration
from slurmplug import doctor, doctor_facts, registry, training
from slurmplug.cluster.site_client import SiteClient
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.cycle import Scheduler
from slurmplug.endpoint.server import Endpoint, Server, Serving
from slurmplug.endpoint.viewers import Viewers
from slurmplug.errors import AlreadyRunning, ConfigError, LedgerError
from slurmplug.forecaster import Forecaster
from slurmplug.intake import Intake
from slurmplug.ledger import DAY, Ledger

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


class Daemon:
    """The scheduler's loop, and what must be done between two cycles."""

    def __init__(self, path: Path) -> None:
        """Read the configuration and open the ledger.

        Raises:
            ConfigError, LedgerError, AlreadyRunning
        """
        self._path = path
        self._stopping = self._reloading = False
        with ExitStack() as stack:
            config = configuration.load(path)
            stack.enter_context(_only_one(config.ledger.path.with_suffix(".lock")))
            if config.spool.path.is_dir():
                stack.enter_context(_only_one(config.spool.path / "daemon.lock"))
            self._ledger = Ledger(config.ledger.path)
            stack.callback(self._ledger.close)
            self._port = SlurmCluster(config)
            self._intake = Intake(self._ledger.live_records())
            self._forecaster = Forecaster(config.predictors.runtime)
            self._scheduler = Scheduler(
                port=self._port,
                intake=self._intake,
                forecaster=self._forecaster,
                policy=registry.policy(config),
                ledger=self._ledger,
                config=config,
            )
            self._trainer = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="training"))
            self._training: Future[tuple[RuntimePredictor, LearningCurvePredictor]] | None = None
            self._trained_at = 0.0
            self._swept = 0.0
            self._wanted = config.mode
            self._hinders: dict[str, str] = {}
            self._examined = 0.0
            self._stack = stack.pop_all()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        if (models := training.remembered(self._ledger, self._scheduler.config.predictors.runtime)) is not None:
            self._forecaster.use(*models)
            self._trained_at = training.last_trained(self._ledger)
        self._forecaster.get_ready()
        with self._stack:
            self._examine()
            self._serve()
            log.info("policy %s, a cycle every %g s", self._scheduler.policy.name, self._scheduler.config.interval)
            while not self._stopping:
                began = self._port.now()
                self._cycle()
                self._port.wait(began + self._scheduler.config.interval)
            log.info("stopped; running jobs go on")

    def _cycle(self) -> None:
        if self._reloading:
            self._reload()
        if self._hinders and self._port.now() - self._examined > EXAMINE_AGAIN:
            self._examine()
        try:
            self._scheduler.run()
            self._learn()
            self._tidy()
        except LedgerError as error:
            log.error("%s; nothing more is done in this cycle", error)

    def _examine(self) -> None:
        """Observe only where something needed is missing, and say what, and what mends it."""
        config = self._scheduler.config.model_copy(update={"mode": self._wanted})
        hinders = doctor.hindered(doctor.examine(doctor_facts.look(config)))
        for kind, why in hinders.items():
            log.error("%s is observed only: %s", kind, why)
        if self._hinders and not hinders:
            log.info("nothing needed is missing any more")
        self._ledger.set_control(HINDERED, "; ".join(hinders.values()) or None)
        mode = doctor.allowed(self._wanted, hinders)
        self._scheduler.config = config.model_copy(update={"mode": mode})
        self._hinders, self._examined = hinders, self._port.now()

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
            self._ledger.forget(now, keep.keep_days, keep.keep_inputs_days)
            for fault in self._port.sweep(self._intake.runs, now - KEEP_REPORTS):
                log.warning("%s: %s", fault.rule, fault.detail)
            self._swept = now

    def _reload(self) -> None:
        """Take over the configuration as it is now; one that is not valid changes nothing."""
        self._reloading = False
        try:
            config = configuration.load(self._path)
            policy = registry.policy(config)
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


def _train(path: Path, model: RuntimeModel, now: float) -> tuple[RuntimePredictor, LearningCurvePredictor]:
    """In a thread of its own, so with a connection of its own."""
    ledger = Ledger(path)
    try:
        return training.trained(ledger, model, now)
    finally:
        ledger.close()


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock: one daemon a ledger, and one a spool, which is one a cluster.

    Raises:
        AlreadyRunning: another daemon holds it.
        LedgerError: it cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be made: {error.strerror}; does its folder exist and is it this user's?"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AlreadyRunning(f"another daemon holds {path}: stop it first") from error
    try:
        yield
    finally:
        os.close(descriptor)
