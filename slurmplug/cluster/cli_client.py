"""Slurm through its command-line clients: all their command lines, timeouts and limits are in this module.

Nothing that a user writes becomes part of a command line or of scontrol's input: job ids are numbers, and the values of
an update have to match a small grammar.
"""

import os
import re
import secrets
import string
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from slurmplug.cluster import limits, parse
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
    Status,
)
from slurmplug.errors import ReadFailed

SCRIPT_BYTES = 65_536
"""that are read of a job script: directives come before its first command"""
ENDINGS_PER_CALL = 500
"""job ids in one call of sacct"""
SECONDS_PER_WRITE = 0.1
"""What each write adds to scontrol's timeout; slurmctld takes about 1 ms for one when it is not busy."""
SIGNAL_TIMEOUT = 15.0
"""seconds; scancel retries for longer than that while a job changes its state"""
PARALLEL_CALLS = 8
_CLEARED_PREFIXES = ("SLURM_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")
"""Prefixes of environment variables that change what the clients do or print."""
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_COUNT = re.compile(r"[0-9]{1,10}")
_GRES = re.compile(r"[A-Za-z0-9_.:/=,-]{0,200}")
_NODE_LIST = re.compile(r"[A-Za-z0-9_.,\[\]-]{0,4000}")
_UPDATE_FIELDS = {
    "SiteFactor": _NUMBER,
    "Priority": re.compile(r"[0-9]{1,10}"),
    "Gres": _GRES,
    "TresPerJob": _GRES,
    "TresPerTask": _GRES,
    "StartTime": re.compile(r"now|uts[0-9]{1,12}"),
    "ReservationName": re.compile(r"[A-Za-z0-9_.-]{0,64}"),
    "ExcNodeList": _NODE_LIST,
    "ReqNodeList": _NODE_LIST,
    "NumNodes": re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?"),
    **dict.fromkeys(("NumTasks", "NumCPUs", "CPUsPerTask", "MinCPUsNode", "MinMemoryNode"), _COUNT),
    "TimeLimit": _COUNT,
    "Nice": _NUMBER,
}
"""The fields that may be updated, and what their values must match."""
_RESERVATION_FIELDS = {
    "name": re.compile(r"[A-Za-z0-9_.-]{1,64}"),
    "nodes": re.compile(r"[A-Za-z0-9_.,\[\]-]{1,4000}"),
    "user": re.compile(r"[A-Za-z0-9_.@$-]{1,64}"),
    "seconds": _COUNT,
}
"""The fields of a reservation, and what their values must match."""
_MESSAGE_LENGTH = 500
_SIGNAL = re.compile(r"[A-Z0-9]{1,12}")
_SIGNAL_OPTIONS = {"batch": ["--batch"], "steps": [], "full": ["--full"]}
_NO_ANSWER = re.compile(
    r"unable to contact|connection|not connected|timed out|unexpected message|zero bytes|standby|unavailable",
    re.IGNORECASE,
)
"""Answers that leave open whether a command was done. scontrol prints `Unexpected message` where it got none."""
_ELEMENTS = re.compile(r"[0-9]+_\[?([0-9,:-]+)(\.\.\.)?\]?(?:: (.*))?")
"""The address of elements of an array, or Slurm's message on some: their tasks, whether these are cut, the message."""
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_NO_SCRIPT = re.compile(r"job script not specified", re.IGNORECASE)
"""What slurmctld answers about a job that has no script: ESLURM_JOB_SCRIPT_MISSING."""
_GONE = re.compile(r"invalid job id", re.IGNORECASE)


class CliClient:
    """squeue, sinfo, scontrol, scancel and sacct."""

    def __init__(self, conf: Path | None, folder: Path | None, timeout: float) -> None:
        """Start nothing yet.

        Args:
            conf: the slurm.conf; None for the one in the environment, or Slurm's default.
            folder: where the clients are; None to search PATH.
            timeout: seconds that each client may take.
        """
        self._folder = folder
        self._timeout = timeout
        self._queue_separators = Separators(_random_separator("f"), _random_separator("r"))
        self._queue_reader = parse.QueueReader(self._queue_separators)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(_CLEARED_PREFIXES)}
        self._env |= {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "TERM": "dumb", "INPUTRC": "/dev/null"}
        if conf or "SLURM_CONF" in os.environ:
            self._env["SLURM_CONF"] = str(conf or os.environ["SLURM_CONF"])

    # --- reading ---------------------------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """Every job that slurmctld lists, ended ones too. Raises ReadFailed.

        The format is given in the environment, which other users cannot see as they can a command line. So no user can
        write the separators, and they may stay the same from one call to the next.
        """
        options = ("--local", "--noheader", "--noconvert", "--all", "--array", "--states=all")
        return self._queue_reader.read(
            self._query("squeue", *options, SQUEUE_FORMAT2=self._queue_separators.format(parse.JOB_FIELDS))
        )

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
        return parse.site(self._query("scontrol", "show", "config"))

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:
        """By job id, what these jobs request and how, of those that slurmctld lists. Raises ReadFailed."""
        ids = ",".join(str(int(job_id)) for job_id in sorted(job_ids))
        separators = Separators(_random_separator("f"), _random_separator("r"))
        options = ("--local", "--noheader", "--noconvert", "--all", f"--jobs={ids}")
        text = self._query("squeue", *options, "-O", separators.format(parse.RESOURCE_REQUEST_FIELDS))
        nodes = self._query("squeue", *options, "-o", "%A %x %n")  # 22.05 has no name for -O of the excluded nodes
        addresses = parse.addresses(text, separators)
        with ThreadPoolExecutor(PARALLEL_CALLS, thread_name_prefix="scontrol") as pool:
            shown = dict(zip(addresses, pool.map(self._shown, addresses.values()), strict=True))
        return parse.resource_requests(text, nodes, shown, separators)

    def _shown(self, address: str) -> str:
        """What scontrol shows of one job, empty where that is gone meanwhile. Raises ReadFailed."""
        answer = self._run_to_end(("scontrol", "--oneliner", "show", "job", address), subprocess.PIPE)
        return _decode(answer.stdout) if answer.returncode == 0 else ""

    def limits(self) -> Limits:
        """The limits of QOS and associations. Raises ReadFailed."""
        show = ("sacctmgr", "--noheader", "--parsable2", "show")
        try:
            qos = self._query(*show, "qos", f"format={limits.QOS_FIELDS}")
        except ReadFailed as error:
            if "supported accounting_storage" in str(error):  # a site without slurmdbd has none
                return Limits()
            raise
        assocs = self._query(*show, "assoc", f"cluster={self._cluster()}", f"format={limits.ASSOC_FIELDS}")
        try:
            return limits.parse_limits(qos, assocs, self._query("scontrol", "--oneliner", "show", "partition"))
        except ValueError as error:
            raise ReadFailed(f"sacctmgr answers {error}") from error

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
        complaint = _last_words(answer.stderr)
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

    def write(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """Send updates, requeues, holds and reservations through one scontrol; returns an outcome for each command.

        `addresses` are those of the commands' jobs. After each command follows a word that scontrol does not know. Its
        complaint about that word, on standard error, marks the end of the complaints about the command, and shows that
        the command was processed.
        """
        mark = _random_separator("done")
        lines = [_scontrol_line(command, address) for command, address in zip(commands, addresses, strict=True)]
        sent = [line for line in lines if line]
        stdin = "".join(f"{line}\n{mark}{at}\n" for at, line in enumerate(sent))
        try:
            timeout = self._timeout + SECONDS_PER_WRITE * len(sent)
            stderr = self._run(["scontrol"], timeout, stdin=stdin.encode("ascii")).stderr
        except subprocess.TimeoutExpired as error:
            stderr = error.stderr or b""
        except OSError as error:
            return [Outcome(command.id, "refused", f"scontrol cannot be run: {error.strerror}") for command in commands]
        *complaints, rest = re.split(rf"invalid keyword: {mark}[0-9]+\n", _decode(stderr))
        answers = iter(complaints)
        return [
            _outcome(command, address, next(answers, None), rest) if line else _invalid(command)
            for command, address, line in zip(commands, addresses, lines, strict=True)
        ]

    def signal(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """Send signals and cancellations, a scancel for each, some in parallel so that none waits for another's job.

        Returns an outcome for each command. `addresses` are those of the commands' jobs.
        """
        with ThreadPoolExecutor(PARALLEL_CALLS, thread_name_prefix="scancel") as pool:
            return list(pool.map(self._signal, commands, addresses))

    def _signal(self, command: Command, address: str) -> Outcome:
        options = _signal_options(command)
        if options is None:
            return _invalid(command)
        try:
            # without --verbose it prints nothing about a job that it does not find, and exits 0
            answer = self._run(["scancel", "--verbose", *options, address], min(SIGNAL_TIMEOUT, self._timeout))
        except subprocess.TimeoutExpired:
            return _outcome(command, address, None, "")
        except OSError as error:
            return Outcome(command.id, "refused", f"scancel cannot be run: {error.strerror}")
        errors = [line for line in _decode(answer.stderr).splitlines() if re.search(r"error:|fatal:", line)]
        return _outcome(command, address, "\n".join(errors), "")

    # --- processes -------------------------------------------------------------------------------------------------

    def _query(self, *argv: str, **env: str) -> str:
        """What a client prints; `env` is added to its environment. Raises ReadFailed."""
        answer = self._run_to_end(argv, subprocess.PIPE, env)
        complaint = _last_words(answer.stderr)
        if answer.returncode != 0 or "format specification" in complaint:  # it exits 0 where a column is unknown
            raise ReadFailed(f"{argv[0]} exits {answer.returncode}: {complaint}")
        return _decode(answer.stdout)

    def _run_to_end(
        self, argv: Sequence[str], stdout: int, env: Mapping[str, str] = _NO_VARIABLES
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a client, whatever its exit status. Raises ReadFailed where it cannot be run or takes too long."""
        try:
            return self._run(argv, self._timeout, stdout=stdout, env=env)
        except subprocess.TimeoutExpired as error:
            raise ReadFailed(f"{argv[0]} did not answer within {self._timeout:g} s") from error
        except OSError as error:
            raise ReadFailed(f"{argv[0]} cannot be run: {error.strerror}; set slurm.bin to its folder") from error

    def _run(
        self,
        argv: Sequence[str],
        timeout: float,
        *,
        stdin: bytes = b"",
        stdout: int = subprocess.DEVNULL,
        env: Mapping[str, str] = _NO_VARIABLES,
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a client in a session of its own: a Ctrl-C that ends the daemon lets it finish."""
        program = str(self._folder / argv[0]) if self._folder else argv[0]
        return subprocess.run(
            [program, *argv[1:]],
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**self._env, **env},
            timeout=timeout,
            start_new_session=True,
            check=False,
        )


def _random_separator(head: str) -> str:
    """36 random bits after a letter: --Format would take a digit for a width."""
    return head + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(6))


def _scontrol_line(command: Command, address: str) -> str:
    """The command as a line for scontrol, empty where a field is not valid."""
    if command.verb in ("requeue", "hold", "release"):
        return f"{command.verb} {address}"
    fields = command.fields.items()
    if command.verb in ("reserve", "unreserve"):
        valid = all(
            name in _RESERVATION_FIELDS and _RESERVATION_FIELDS[name].fullmatch(value) for name, value in fields
        )
        return _reservation_line(command) if valid else ""
    if not fields or not all(
        name in _UPDATE_FIELDS and _UPDATE_FIELDS[name].fullmatch(value) for name, value in fields
    ):
        return ""
    return " ".join([f"update JobId={address}", *(f"{name}={value}" for name, value in fields)])


def _reservation_line(command: Command) -> str:
    """IGNORE_JOBS: other jobs may still run there."""
    fields = command.fields
    if command.verb == "unreserve":
        return f"delete ReservationName={fields['name']}"
    minutes = -(-int(fields["seconds"]) // 60)
    return (
        f"create reservation ReservationName={fields['name']} Nodes={fields['nodes']} StartTime=now Duration={minutes} "
        f"Users={fields['user']} Flags=IGNORE_JOBS"
    )


def _signal_options(command: Command) -> list[str] | None:
    """The options of scancel, None where a field is not valid."""
    if command.verb == "cancel":
        return []
    signal, to = command.fields.get("signal", ""), command.fields.get("to", "")
    if not _SIGNAL.fullmatch(signal) or to not in _SIGNAL_OPTIONS:
        return None
    return [f"--signal={signal}", *_SIGNAL_OPTIONS[to]]


def _invalid(command: Command) -> Outcome:
    return Outcome(command.id, "refused", f"not a valid {command.verb}: {dict(command.fields)}"[:_MESSAGE_LENGTH])


def _outcome(command: Command, address: str, complaint: str | None, rest: str) -> Outcome:
    """The outcome of a command.

    `complaint` is what Slurm printed about it, None where it was not processed; then `rest` is what was printed last.
    """
    if complaint is None:
        return Outcome(command.id, "unknown", rest.strip()[:_MESSAGE_LENGTH] or "Slurm did not answer in time")
    message = complaint.strip()
    if not message:
        return Outcome(command.id, "done")
    lines = [_ELEMENTS.fullmatch(line) for line in message.splitlines()]
    if all(lines) and (elements := _ELEMENTS.fullmatch(address)):
        status = _array_status([line for line in lines if line], _count_tasks(elements[1]))
    else:
        status = "unknown" if _NO_ANSWER.search(message) else "refused"
    return Outcome(command.id, status, message[:_MESSAGE_LENGTH])


def _array_status(messages: Sequence[re.Match[str]], addressed: int) -> Status:
    """The status of a command to `addressed` elements of an array: done where it was done to one of them.

    Some may have ended since the queue was read. About those for which the command succeeded, 22.05 prints `No error`
    and 24.11 nothing. Where the list of tasks in a message is cut, it is not known.
    """
    if any(line[3] == "No error" for line in messages):
        return "done"
    if any(line[2] for line in messages):
        return "unknown"
    return "done" if sum(_count_tasks(line[1]) for line in messages) < addressed else "refused"


def _count_tasks(tasks: str) -> int:
    """The number of tasks in `0-2,7,10-20:5`."""
    return sum(
        len(range(int(low), int(high or low) + 1, int(step or 1)))
        for low, high, step in re.findall(r"([0-9]+)(?:-([0-9]+))?(?::([0-9]+))?", tasks)
    )


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _last_words(stderr: bytes) -> str:
    return _decode(stderr).strip()[-_MESSAGE_LENGTH:]
