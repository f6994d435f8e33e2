"""pyslurm in a process of its own: what its libslurm does to a process, it does to that one.

libslurm ends a process that finds no slurm.conf, keeps the slurm.conf of its import, holds Python's interpreter lock
until slurmctld answers, and knows one release of Slurm. So the process first proves by a request to slurmctld that it
works with that release; it is started anew after another start of slurmctld, another slurm.conf, or a failure, and is
given up after several failures in a row. Nothing waits for its start.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from slurmplug.cluster.port import Site, Status
from slurmplug.processes.child import Channel, Child

PROOF_SECONDS = 20.0
"""Seconds from the start of the process to its proof at most."""
BATCH_SECONDS = 5.0
"""Seconds for all writes of a batch; one takes about 1 ms when slurmctld is not busy."""
MOST_FAILURES = 3
"""Failures in a row after which pyslurm is given up until slurmctld is started again or slurm.conf changes."""
_CONFS = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))
"""Where libslurm finds slurm.conf if nothing names it."""
_TOO_LATE = "it takes too long to prove that it works"
_MESSAGE_LENGTH = 500
_NO_ANSWER_ERRORS = (range(-1, 2_000), range(5_000, 6_000))
"""slurm_errno.h: system errors and communication errors; all others are answers of slurmctld."""
_STANDBY = re.compile("standby", re.IGNORECASE)
"""An answer of a slurmctld that is not in charge."""

log = logging.getLogger(__name__)


class SiteFactorWrite(NamedTuple):
    """A SiteFactor to be written to a job."""

    job_id: int
    site_factor: int


class Answer(NamedTuple):
    """The outcome of a write; `unknown`: slurmctld may not have received it."""

    status: Status
    message: str = ""


class Proof(NamedTuple):
    """Whether pyslurm works, as the process finds first.

    release: of pyslurm. problem: empty where it works. lasting: another try would find the same problem.
    """

    release: str
    problem: str = ""
    lasting: bool = False


class PyslurmProcess:
    """The process, as the daemon sees it."""

    def __init__(self, conf: Path | None) -> None:
        """Start nothing yet. `conf`: the slurm.conf; None for the one in the environment, or Slurm's default."""
        self._conf = conf or (Path(os.environ["SLURM_CONF"]) if "SLURM_CONF" in os.environ else None)
        self._child: Child | None = None
        self._made_for: tuple[Any, ...] = ()
        self._serves = self._proven = False
        self.given_up = False
        """whether it is not tried any more with this slurmctld and slurm.conf"""
        self._failures = 0
        self._started = 0.0

    def ready(self, site: Site, timeout: float = 0.0) -> bool:
        """Whether it is proven to work with this slurmctld; where it has not been started for that, it is.

        `timeout`: seconds to wait for the proof.
        """
        made_for = (site.booted, site.version, _fingerprint(self._conf))
        if made_for != self._made_for:
            self.end()
            self._child, self._made_for, self.given_up, self._failures = None, made_for, False, 0
        if self._proven and self._child is not None and not self._child.running:
            self._failed("its process has ended")
        if self.given_up or not (self._serves or self._start(site.version)):
            return False
        self._proven = self._proven or self._has_proof(timeout)
        return self._proven

    def write(self, changes: Sequence[SiteFactorWrite], go_on: Callable[[], bool] | None = None) -> list[Answer]:
        """Set SiteFactors in order, where it is `ready`; the answers, fewer than changes where it failed.

        `go_on`: as of `Channel.receive`.
        """
        answers: list[Answer] = []
        if self._child is None:
            return answers
        channel, until = self._child.channel, time.monotonic() + BATCH_SECONDS
        try:
            channel.send(list(changes))
            while len(answers) < len(changes) and (not answers or answers[-1].status != "unknown"):
                answers.append(channel.receive(max(0.0, until - time.monotonic()), go_on))
        except TimeoutError:
            self._failed(f"{len(answers)} of {len(changes)} writes were answered within {BATCH_SECONDS:g} s")
            return answers
        except OSError:
            self._failed("its process ended while it wrote")
            return answers
        if answers and answers[-1].status == "unknown":
            self._failed(answers.pop().message)
        else:
            self._failures = 0
        return answers

    def end(self) -> None:
        """End the process without waiting for it."""
        if self._child is not None and self._serves:
            self._child.kill()
        self._proven = self._serves = False

    def _start(self, release: str) -> bool:
        """Start it, unless one that was killed has not ended, or it was started right now."""
        arguments = (str(self._conf or ""), release)
        try:
            if self._child is None:
                self._child = Child("pyslurm", serve, *arguments)
            elif not self._child.start_again(*arguments):
                return False
        except OSError as error:
            self._failed(f"its process cannot be started: {error.strerror}")
            return False
        self._started, self._serves = time.monotonic(), True
        return True

    def _has_proof(self, timeout: float) -> bool:
        assert self._child is not None
        try:
            proof = _proof(self._child, timeout)
        except TimeoutError:
            if time.monotonic() - self._started > PROOF_SECONDS:
                self._failed(_TOO_LATE)
            return False
        if proof.problem:
            self._failed(proof.problem, lasting=proof.lasting)
        else:
            log.info("pyslurm %s writes priorities", proof.release)
        return not proof.problem

    def _failed(self, problem: str, *, lasting: bool = False) -> None:
        self.end()
        self._failures += 1
        if lasting or self._failures >= MOST_FAILURES:
            self.given_up = True
            log.error(
                "pyslurm: %s; it is given up until slurmctld is started again or slurm.conf changes; scontrol "
                "writes priorities", problem,
            )  # fmt: skip
        else:
            log.warning("pyslurm: %s; it is started again, and scontrol writes priorities meanwhile", problem)


def trial(conf: Path | None, release: str) -> Proof:
    """Whether pyslurm works with a slurmctld of this release, found in a process that then ends."""
    try:
        child = Child("pyslurm", serve, str(conf or ""), release)
    except OSError as error:
        return Proof("", f"the process cannot be started: {error.strerror}")
    try:
        return _proof(child, PROOF_SECONDS)
    except TimeoutError:
        return Proof("", _TOO_LATE)
    finally:
        child.kill()


def _proof(child: Child, timeout: float) -> Proof:
    """What a process finds first. Raises TimeoutError."""
    try:
        proof: Proof = child.channel.receive(timeout)
    except TimeoutError:
        raise
    except OSError:
        return Proof("", "its import ends the process; standard error has libslurm's message")
    return proof


def _fingerprint(conf: Path | None) -> tuple[tuple[str, int, int], ...]:
    """What tells one state of slurm.conf, and of the files beside it that it may include, from another."""
    found: list[tuple[str, int, int]] = []
    for path in (conf,) if conf else _CONFS:
        with contextlib.suppress(OSError):
            for each in os.scandir(path.parent):
                if each.name.endswith(".conf"):
                    with contextlib.suppress(OSError):
                        status = each.stat()
                        found.append((each.path, status.st_mtime_ns, status.st_size))
    return tuple(sorted(found))


# --- the process itself --------------------------------------------------------------------------------------------


def serve(channel: Channel, conf: str, release: str) -> None:
    """The process: its proof, then an answer to each change, until one is not answered.

    `conf`: the slurm.conf, empty for libslurm's own choice; `release`: slurmctld's, such as 25.11.7.
    """
    if conf:
        os.environ["SLURM_CONF"] = conf
    proof, pyslurm = prove(release)
    channel.send(proof)
    while not proof.problem:
        for change in channel.receive():
            answer = _modify(pyslurm, change)
            channel.send(answer)
            if answer.status == "unknown":
                return


def prove(release: str) -> tuple[Proof, Any]:
    """Whether pyslurm is of slurmctld's release and is answered by it; and the module, None if it is not installed.

    What else goes wrong ends the process.
    """
    try:
        pyslurm = import_module("pyslurm")
    except ImportError as error:
        return Proof("", f"it cannot be imported: {error}"[:_MESSAGE_LENGTH], lasting=True), None
    own = str(pyslurm.__version__)
    if own.split(".")[:2] != release.split(".")[:2]:
        return Proof(own, f"its release {own} is not for Slurm {release}", lasting=True), pyslurm
    try:
        answered = str(pyslurm.slurmctld.Config.load().version)
    except pyslurm.RPCError as error:
        return Proof(own, f"slurmctld does not answer it: {error}"[:_MESSAGE_LENGTH]), pyslurm
    problem = "" if answered == release else f"it reaches a slurmctld of release {answered}, not {release}"
    return Proof(own, problem), pyslurm


def _modify(pyslurm: Any, change: SiteFactorWrite) -> Answer:
    """Set a SiteFactor. As text, as pyslurm takes the number 0 for not set."""
    try:
        pyslurm.Job(change.job_id).modify(pyslurm.JobSubmitDescription(site_factor=str(change.site_factor)))
    except pyslurm.RPCError as error:
        no_answer = any(error.errno in each for each in _NO_ANSWER_ERRORS) or _STANDBY.search(str(error))
        return Answer("unknown" if no_answer else "refused", str(error)[:_MESSAGE_LENGTH])
    return Answer("done")
