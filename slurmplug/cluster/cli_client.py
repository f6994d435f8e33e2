"""Slurm through its command-line clients: with what they are called, and their limits.

Nothing that a user writes becomes part of a command line or of scontrol's input: job ids are numbers, and the values of
an update have to match a small grammar (`command_lines`).
"""

import re
import secrets
import string
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from slurmplug.cluster import parse
from slurmplug.cluster.command_lines import invalid, scancel_options, scontrol_line
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.parse import Queue, Separators
from slurmplug.cluster.port import (
    Command,
    Ending,
    NodeRows,
    Outcome,
    Reservation,
    ResourceRequest,
    RunIdentity,
    Site,
)
from slurmplug.cluster.programs import SlurmPrograms, decode, last_words
from slurmplug.errors import ReadFailed, advice
from slurmplug.processes.threads import ThreadPool

SCRIPT_BYTES = 65_536
"""that are read of a job script: directives come before its first command"""
ENDINGS_PER_CALL = 500
"""job ids in one call of sacct"""
SECONDS_PER_WRITE = 0.1
"""What each write adds to scontrol's timeout; slurmctld takes about 1 ms for one when it is not busy."""
SIGNAL_TIMEOUT = 15.0
"""seconds; scancel retries for longer than that while a job changes its state"""
PARALLEL_CALLS = 8
_NO_SCRIPT = re.compile(r"job script not specified", re.IGNORECASE)
"""What slurmctld answers about a job that has no script: ESLURM_JOB_SCRIPT_MISSING."""
_PINGED = re.compile(r"^Slurmctld\(\w+\) at ", re.MULTILINE)
"""what stands behind the settings that scontrol shows"""
_GONE = re.compile(r"invalid job id", re.IGNORECASE)


class CliClient(SlurmPrograms):
    """squeue, sinfo, scontrol, scancel and sacct."""

    def __init__(self, conf: Path | None, folder: Path | None, timeout: float) -> None:
        """Start nothing yet.

        Args:
            conf: the slurm.conf; None for the one in the environment, or Slurm's default.
            folder: where the clients are; None to search PATH.
            timeout: seconds that each client may take.
        """
        super().__init__(conf, folder, timeout)
        self._queue_separators = Separators(_random_separator("f"), _random_separator("r"))
        self._queue_reader = parse.QueueReader(self._queue_separators)

    # --- reading ---------------------------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """Every job that slurmctld lists, ended ones too, by job id. Raises ReadFailed.

        Policies that see no difference between two jobs take them in this order.

        The format is given in the environment, which other users cannot see as they can a command line. So no user can
        write the separators, and they may stay the same from one call to the next.
        """
        options = ("--local", "--noheader", "--noconvert", "--all", "--array", "--states=all", "--sort=i")
        started = time.time()
        text = self._query("squeue", *options, SQUEUE_FORMAT2=self._queue_separators.format(parse.JOB_FIELDS))
        return self._queue_reader.read(text, started)

    def nodes(self) -> NodeRows:
        """Every node that is in a partition. Raises ReadFailed."""
        separators = Separators(_random_separator("f"), _random_separator("r"))
        columns = separators.format(parse.NODE_FIELDS)
        text = self._query("sinfo", "--local", "--noheader", "--noconvert", "--all", "--Node", "-O", columns)
        if not text:
            raise ReadFailed("sinfo lists no nodes; is the daemon's account an Operator in slurmdbd?")
        return parse.nodes(text, separators)

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations. Raises ReadFailed."""
        return parse.reservations(self._query("scontrol", "--oneliner", "show", "reservations"))

    def site(self) -> Site:
        """The settings of slurm.conf that decisions depend on. Raises ReadFailed."""
        return parse.site(self._config())

    def _config(self) -> str:
        """What scontrol shows of slurm.conf. Raises ReadFailed.

        At its end scontrol pings each controller, and exits 1 where one does not answer: a backup that is down, or
        slurmctld itself where it limits the rate of requests (`rl_enable`), as a ping is not tried again. The settings
        before that are whole.
        """
        answer = self._run_to_end(("scontrol", "show", "config"), subprocess.PIPE)
        text = decode(answer.stdout)
        if answer.returncode != 0 and not _PINGED.search(text):
            raise ReadFailed(f"scontrol exits {answer.returncode}: {last_words(answer.stderr)}")
        return text

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:
        """By job id, what these jobs request and how, of those that slurmctld lists. Raises ReadFailed."""
        ids = ",".join(str(int(job_id)) for job_id in sorted(job_ids))
        separators = Separators(_random_separator("f"), _random_separator("r"))
        options = ("--local", "--noheader", "--noconvert", "--all", f"--jobs={ids}")
        text = self._query("squeue", *options, "-O", separators.format(parse.RESOURCE_REQUEST_FIELDS))
        nodes = self._query("squeue", *options, "-o", "%A %x %n")  # 22.05 has no name for -O of the excluded nodes
        addresses = parse.addresses(text, separators)
        with ThreadPool(PARALLEL_CALLS, thread_name_prefix="scontrol") as pool:
            shown = dict(zip(addresses, pool.map(self._shown, addresses.values()), strict=True))
        return parse.resource_requests(text, nodes, shown, separators)

    def _shown(self, address: str) -> str:
        """What scontrol shows of one job, empty where that is gone meanwhile. Raises ReadFailed."""
        answer = self._run_to_end(("scontrol", "--oneliner", "show", "job", address), subprocess.PIPE)
        return decode(answer.stdout) if answer.returncode == 0 else ""

    def limits(self) -> Limits:
        """The limits of partitions, and of QOS and associations where Slurm enforces these. Raises ReadFailed."""
        show = ("sacctmgr", "--noheader", "--parsable2", "show")
        partitions = self._query("scontrol", "--oneliner", "--all", "show", "partition")
        qos = assocs = defaults = ""
        try:
            if parse.enforces_limits(self._config()):
                qos = self._query(*show, "qos", f"format={parse.QOS_FIELDS}")
                here = (*show, "assoc", f"cluster={self._cluster()}")
                assocs = self._query(*here, f"format={parse.ASSOC_FIELDS}")
                defaults = self._query(*here, "onlydefaults", f"format={parse.DEFAULT_ACCOUNT_FIELDS}")
        except ReadFailed as error:
            if "supported accounting_storage" not in str(error):  # a site without slurmdbd has none of these
                raise
        try:
            return parse.limits(qos, assocs, partitions, defaults)
        except ValueError as error:
            raise ReadFailed(f"of the limits Slurm prints {error}") from error

    def _cluster(self) -> str:
        return self.site().cluster

    def script(self, job_id: int) -> bytes:
        """The first SCRIPT_BYTES of a job's script, empty where Slurm answers that there is none.

        Raises:
            ReadFailed: it could not be read, or not to its end: scontrol exits 0 whatever happens.
        """
        answer = self._run_to_end(["scontrol", "write", "batch_script", str(job_id), "-"], subprocess.PIPE)
        if answer.stdout and answer.returncode == 0:
            return bytes(answer.stdout[:SCRIPT_BYTES])
        complaint = last_words(answer.stderr)
        if _NO_SCRIPT.search(complaint):
            return b""
        raise ReadFailed(f"scontrol write batch_script: {complaint or f'no answer, exit status {answer.returncode}'}")

    def run_identities(self, job_ids: Collection[int]) -> Mapping[int, RunIdentity]:
        """By job id, of those of these jobs that slurmctld lists. Raises ReadFailed."""
        ids = ",".join(str(int(job_id)) for job_id in sorted(job_ids))
        separators = Separators(_random_separator("f"), _random_separator("r"))
        options = ("--local", "--noheader", "--noconvert", "--all", "--states=all", f"--jobs={ids}")
        try:
            text = self._query("squeue", *options, "-O", separators.format(parse.RUN_IDENTITY_FIELDS))
        except ReadFailed as error:
            if _GONE.search(str(error)):  # of one job alone; of several it lists those that there are
                return {}
            raise
        return parse.run_identities(text, separators)

    def endings(self, job_ids: Collection[int]) -> tuple[Ending, ...]:
        """How these jobs ended, of those that the accounting lists as ended. Raises ReadFailed."""
        ids = ",".join(str(job_id) for job_id in sorted(job_ids)[:ENDINGS_PER_CALL])
        columns = ",".join(parse.ENDING_FIELDS)
        return parse.endings(
            self._query("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "-o", columns, "-j", ids)
        )

    def site_factors(self) -> Mapping[int, int]:
        """By job id, of pending jobs that may start and whose priority is not pinned. Raises ReadFailed."""
        return parse.site_factors(self._query("sprio", "--local", "--noheader", "-o", parse.SPRIO_FORMAT))

    # --- writing ---------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Get ready to write, without waiting; the command line always is."""

    def write(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """Send updates, requeues, holds and reservations through one scontrol; returns an outcome for each command.

        `addresses` are those of the commands' jobs. After each command follows a word that scontrol does not know. Its
        complaint about that word, on standard error, marks the end of the complaints about the command, and shows that
        the command was processed.
        """
        mark = _random_separator("done")
        lines = [scontrol_line(command, address) for command, address in zip(commands, addresses, strict=True)]
        sent = [line for line in lines if line]
        stdin = "".join(f"{line}\n{mark}{at}\n" for at, line in enumerate(sent))
        try:
            timeout = self._timeout + SECONDS_PER_WRITE * len(sent)
            stderr = self._run(["scontrol"], timeout, stdin=stdin.encode("ascii")).stderr
        except subprocess.TimeoutExpired as error:
            stderr = error.stderr or b""
        except OSError as error:
            why = f"scontrol cannot be run: {error.strerror}{advice(error)}"
            return [Outcome(command.id, "refused", why) for command in commands]
        *complaints, rest = re.split(rf"invalid keyword: {mark}[0-9]+\n", decode(stderr))
        answers = iter(complaints)
        return [
            parse.outcome(command, address, next(answers, None), rest) if line else invalid(command)
            for command, address, line in zip(commands, addresses, lines, strict=True)
        ]

    def signal(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """Send signals and cancellations, a scancel for each, some in parallel so that none waits for another's job.

        Returns an outcome for each command. `addresses` are those of the commands' jobs.
        """
        with ThreadPool(PARALLEL_CALLS, thread_name_prefix="scancel") as pool:
            return list(pool.map(self._signal, commands, addresses))

    def _signal(self, command: Command, address: str) -> Outcome:
        options = scancel_options(command)
        if options is None:
            return invalid(command)
        try:
            # without --verbose it prints nothing about a job that it does not find, and exits 0
            answer = self._run(["scancel", "--verbose", *options, address], min(SIGNAL_TIMEOUT, self._timeout))
        except subprocess.TimeoutExpired:
            return parse.outcome(command, address, None, "")
        except OSError as error:
            return Outcome(command.id, "refused", f"scancel cannot be run: {error.strerror}{advice(error)}")
        errors = [line for line in decode(answer.stderr).splitlines() if re.search(r"error:|fatal:", line)]
        return parse.outcome(command, address, "\n".join(errors), "")


def _random_separator(head: str) -> str:
    """36 random bits after a letter: --Format would take a digit for a width."""
    return head + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(6))
