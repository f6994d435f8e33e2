"""Slurm by its command-line clients: every command line, timeout and bound stands here.

Nothing that a user writes becomes part of a command line or of what scontrol reads: job ids are numbers, and the
values of an update have to match a small grammar.
"""

import os
import re
import secrets
import string
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO

from slurmplug.cluster import limits, parse
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.parse import Marks, Queue
from slurmplug.cluster.port import Asked, Command, Ending, NodeRows, Outcome, Reservation, Site, Status
from slurmplug.errors import ReadFailed

SCRIPT_BYTES = 65_536
"""of a job script: directives stand before its first command"""
ENDINGS_A_CALL = 500
"""job ids in one call of sacct"""
SECONDS_A_WRITE = 0.1
"""What a write may add to the time that scontrol is given; slurmctld serves one in about 1 ms when it is not busy."""
SIGNAL_TIMEOUT = 15.0
"""seconds; scancel tries again for long where a job is between two states"""
SIGNALS_AT_ONCE = 8

_CLEARED = ("SLURM_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")
"""Variables that change what the clients do or print."""
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_COUNT = re.compile(r"[0-9]{1,10}")
_GRES = re.compile(r"[A-Za-z0-9_.:/=,-]{0,200}")
_NAMES = re.compile(r"[A-Za-z0-9_.,\[\]-]{0,4000}")
_UPDATES = {
    "SiteFactor": _NUMBER,
    "Priority": re.compile(r"[0-9]{1,10}"),
    "Gres": _GRES,
    "TresPerNode": _GRES,
    "StartTime": re.compile(r"now|uts[0-9]{1,12}"),
    "ReservationName": re.compile(r"[A-Za-z0-9_.-]{0,64}"),
    "ExcNodeList": _NAMES,
    "ReqNodeList": _NAMES,
    "NumNodes": re.compile(r"[0-9]{1,6}-[0-9]{1,6}"),
    "NumTasks": _COUNT,
    "NumCPUs": _COUNT,
    "CPUsPerTask": _COUNT,
    "MinCPUsNode": _COUNT,
    "MinMemoryNode": _COUNT,
}
"""What may be updated, and how a value must look."""
_RESERVED = {
    "name": re.compile(r"[A-Za-z0-9_.-]{1,64}"),
    "nodes": re.compile(r"[A-Za-z0-9_.,\[\]-]{1,4000}"),
    "user": re.compile(r"[A-Za-z0-9_.@$-]{1,64}"),
    "seconds": _COUNT,
}
"""What a reservation is made of, and how a value must look."""
_MESSAGE = 500
_SIGNAL = re.compile(r"[A-Z0-9]{1,12}")
_WAYS = {"batch": ["--batch"], "steps": [], "full": ["--full"]}
_LOST = re.compile(
    r"unable to contact|connection|not connected|timed out|unexpected message|zero bytes|standby|unavailable",
    re.IGNORECASE,
)
"""An answer that leaves open what became of a command. `Unexpected message` is what scontrol says where none came."""
_OF_ELEMENTS = re.compile(r"[0-9]+_\[?([0-9,:-]+)(\.\.\.)?\]?(?:: (.*))?")
"""The address of elements of an array, and what Slurm says of some: their tasks, whether these are cut, the message."""
NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})
"""added to the environment of a client"""
_NO_SCRIPT = re.compile(r"invalid job id|script not specified", re.IGNORECASE)


class CliClient:
    """squeue, sinfo, scontrol, scancel and sacct."""

    def __init__(self, conf: Path | None, folder: Path | None, timeout: float) -> None:
        """`folder` is where the clients are, None for PATH; `timeout` is what each may take, in seconds."""
        self._folder = folder
        self._timeout = timeout
        self._queue_marks = Marks(_fresh_mark("f"), _fresh_mark("r"))
        self._queues = parse.Queues(self._queue_marks)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(_CLEARED)}
        self._env |= {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "TERM": "dumb", "INPUTRC": "/dev/null"}
        if conf or "SLURM_CONF" in os.environ:
            self._env["SLURM_CONF"] = str(conf or os.environ["SLURM_CONF"])

    # --- reading ---------------------------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """Every job that slurmctld knows, ended ones too. Raises ReadFailed.

        Its format goes by the environment, which other users do not see as they do a command line. So no user can write
        its marks, which may then stay the same.
        """
        options = ("--local", "--noheader", "--noconvert", "--all", "--array", "--states=all")
        return self._queues.read(
            self._ask("squeue", *options, SQUEUE_FORMAT2=self._queue_marks.format(parse.JOB_FIELDS))
        )

    def nodes(self) -> NodeRows:
        """Every node in a partition. Raises ReadFailed."""
        marks = Marks(_fresh_mark("f"), _fresh_mark("r"))
        columns = marks.format(parse.NODE_FIELDS)
        text = self._ask("sinfo", "--local", "--noheader", "--noconvert", "--all", "--Node", "-O", columns)
        if not text:
            raise ReadFailed("sinfo lists no nodes; is the daemon's account an Operator in slurmdbd?")
        return parse.nodes(text, marks)

    def reservations(self) -> tuple[Reservation, ...]:
        """Raises ReadFailed."""
        return parse.reservations(self._ask("scontrol", "--oneliner", "show", "reservations"))

    def site(self) -> Site:
        """Raises ReadFailed."""
        return parse.site(self._ask("scontrol", "show", "config"))

    def asked(self, job_ids: Collection[int]) -> Mapping[int, Asked]:
        """How these jobs asked for what they hold, of those that slurmctld knows. Raises ReadFailed."""
        ids = ",".join(str(int(job_id)) for job_id in sorted(job_ids))
        marks = Marks(_fresh_mark("f"), _fresh_mark("r"))
        options = ("--local", "--noheader", "--noconvert", "--all", f"--jobs={ids}")
        text = self._ask("squeue", *options, "-O", marks.format(parse.ASKED_FIELDS))
        nodes = self._ask("squeue", *options, "-o", "%A %x %n")  # the excluded ones have no name for -O in 22.05
        return parse.asked(text, nodes, marks)

    def limits(self) -> Limits:
        """What QOS and associations may use in all. Raises ReadFailed."""
        told = ("sacctmgr", "--noheader", "--parsable2", "show")
        try:
            qos = self._ask(*told, "qos", f"format={limits.QOS_FIELDS}")
        except ReadFailed as error:
            if "supported accounting_storage" in str(error):  # a site without slurmdbd has none
                return Limits()
            raise
        assocs = self._ask(*told, "assoc", f"cluster={self._cluster()}", f"format={limits.ASSOC_FIELDS}")
        try:
            return limits.of_sacctmgr(qos, assocs, self._ask("scontrol", "--oneliner", "show", "partition"))
        except ValueError as error:
            raise ReadFailed(f"sacctmgr answers {error}") from error

    def _cluster(self) -> str:
        return self.site().cluster

    def script(self, job_id: int) -> bytes:
        """The head of a job's script, empty where slurmctld has none. Raises ReadFailed."""
        with TemporaryFile() as script:
            told = self._answered(["scontrol", "write", "batch_script", str(job_id), "-"], script)
            script.seek(0)
            head = script.read(SCRIPT_BYTES)
        if head or not told.stderr:
            return head
        if _NO_SCRIPT.search(_text(told.stderr).partition(":")[2]):  # it exits 0 whatever happens
            return b""
        raise ReadFailed(f"scontrol write batch_script {job_id}: {_brief(told.stderr)}")

    def endings(self, job_ids: Collection[int]) -> tuple[Ending, ...]:
        """How these jobs ended, of those that the accounting knows as ended. Raises ReadFailed."""
        ids = ",".join(str(job_id) for job_id in sorted(job_ids)[:ENDINGS_A_CALL])
        columns = ",".join(parse.ENDING_FIELDS)
        return parse.endings(
            self._ask("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "-o", columns, "-j", ids)
        )

    def site_factors(self) -> Mapping[int, int]:
        """By job id, of the jobs that wait. Raises ReadFailed."""
        return parse.site_factors(self._ask("sprio", "--local", "--noheader", "-o", "%i %S"))

    # --- writing ---------------------------------------------------------------------------------------------------

    def write(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """Updates and requeues, through one scontrol. `addresses`: of each command's job.

        After each command goes a word that scontrol does not know. Its complaint of that word, on standard error, tells
        that the command was done with, and ends the command's own complaints.
        """
        mark = _fresh_mark("done")
        lines = [_line(command, address) for command, address in zip(commands, addresses, strict=True)]
        said = [line for line in lines if line]
        stdin = "".join(f"{line}\n{mark}{at}\n" for at, line in enumerate(said))
        try:
            told = self._run(["scontrol"], self._timeout + SECONDS_A_WRITE * len(said), stdin=stdin.encode("ascii"))
            stderr = told.stderr
        except subprocess.TimeoutExpired as error:
            stderr = error.stderr or b""
        except OSError as error:
            return [Outcome(command.id, "refused", f"scontrol cannot be run: {error.strerror}") for command in commands]
        *complaints, rest = re.split(rf"invalid keyword: {mark}[0-9]+\n", _text(stderr))
        answers = iter(complaints)
        return [
            _judged(command, address, next(answers, None), rest) if line else _not_valid(command)
            for command, address, line in zip(commands, addresses, lines, strict=True)
        ]

    def signal(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        """Signals and cancellations: a scancel each, some at once, so that none waits for another's job."""
        with ThreadPoolExecutor(SIGNALS_AT_ONCE, thread_name_prefix="scancel") as pool:
            return list(pool.map(self._signal, commands, addresses))

    def _signal(self, command: Command, address: str) -> Outcome:
        options = _signal_options(command)
        if options is None:
            return _not_valid(command)
        try:
            # without --verbose it says nothing of a job that it does not find, and exits 0
            told = self._run(["scancel", "--verbose", *options, address], min(SIGNAL_TIMEOUT, self._timeout))
        except subprocess.TimeoutExpired:
            return _judged(command, address, None, "")
        except OSError as error:
            return Outcome(command.id, "refused", f"scancel cannot be run: {error.strerror}")
        errors = [line for line in _text(told.stderr).splitlines() if re.search(r"error:|fatal:", line)]
        return _judged(command, address, "\n".join(errors), "")

    # --- processes -------------------------------------------------------------------------------------------------

    def _ask(self, *argv: str, **env: str) -> str:
        told = self._answered(argv, subprocess.PIPE, env)
        complaint = _brief(told.stderr)
        if told.returncode != 0 or "format specification" in complaint:  # an unknown column alone exits 0
            raise ReadFailed(f"{argv[0]} exits {told.returncode}: {complaint}")
        return _text(told.stdout)

    def _answered(
        self, argv: Sequence[str], stdout: int | IO[bytes], env: Mapping[str, str] = NOTHING_ELSE
    ) -> "subprocess.CompletedProcess[bytes]":
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
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        env: Mapping[str, str] = NOTHING_ELSE,
    ) -> "subprocess.CompletedProcess[bytes]":
        """In a session of its own: what ends the daemon at a terminal lets a client finish."""
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


def _fresh_mark(head: str) -> str:
    """36 random bits behind a letter, without which --Format would take a digit for a width."""
    return head + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(6))


def _line(command: Command, address: str) -> str:
    """What scontrol is told, empty where a field is not valid."""
    if command.verb in ("requeue", "hold", "release"):
        return f"{command.verb} {address}"
    fields = command.fields.items()
    if command.verb in ("reserve", "unreserve"):
        valid = all(name in _RESERVED and _RESERVED[name].fullmatch(value) for name, value in fields)
        return _reservation_line(command) if valid else ""
    if not fields or not all(name in _UPDATES and _UPDATES[name].fullmatch(value) for name, value in fields):
        return ""
    return " ".join([f"update JobId={address}", *(f"{name}={value}" for name, value in fields)])


def _reservation_line(command: Command) -> str:
    """IGNORE_JOBS: whatever runs there. FLEX: its job may outlive it, so a daemon that is gone harms nobody."""
    told = command.fields
    if command.verb == "unreserve":
        return f"delete ReservationName={told['name']}"
    minutes = -(-int(told["seconds"]) // 60)
    return (
        f"create reservation ReservationName={told['name']} Nodes={told['nodes']} StartTime=now Duration={minutes} "
        f"Users={told['user']} Flags=IGNORE_JOBS,FLEX"
    )


def _signal_options(command: Command) -> list[str] | None:
    """The options of scancel, None where a field is not valid."""
    if command.verb == "cancel":
        return []
    signal, way = command.fields.get("signal", ""), command.fields.get("to", "")
    if not _SIGNAL.fullmatch(signal) or way not in _WAYS:
        return None
    return [f"--signal={signal}", *_WAYS[way]]


def _not_valid(command: Command) -> Outcome:
    return Outcome(command.id, "refused", f"not a valid {command.verb}: {dict(command.fields)}"[:_MESSAGE])


def _judged(command: Command, address: str, complaint: str | None, rest: str) -> Outcome:
    """`complaint`: what Slurm said of the command, None where it was not done with; `rest` is what it said then."""
    if complaint is None:
        return Outcome(command.id, "unknown", rest.strip()[:_MESSAGE] or "Slurm did not answer in time")
    message = complaint.strip()
    if not message:
        return Outcome(command.id, "done")
    lines = [_OF_ELEMENTS.fullmatch(line) for line in message.splitlines()]
    if all(lines) and (elements := _OF_ELEMENTS.fullmatch(address)):
        status = _judged_elements([line for line in lines if line], _size(elements[1]))
    else:
        status = "unknown" if _LOST.search(message) else "refused"
    return Outcome(command.id, status, message[:_MESSAGE])


def _judged_elements(said: Sequence[re.Match[str]], addressed: int) -> Status:
    """Elements that ended since the queue was read do not refuse it for the others.

    Of those for which it went well, 22.05 says `No error` and 24.11 nothing. A cut list of tasks leaves it open.
    """
    if any(line[3] == "No error" for line in said):
        return "done"
    if any(line[2] for line in said):
        return "unknown"
    return "done" if sum(_size(line[1]) for line in said) < addressed else "refused"


def _size(tasks: str) -> int:
    """How many tasks `0-2,7,10-20:5` are."""
    return sum(
        len(range(int(low), int(high or low) + 1, int(step or 1)))
        for low, high, step in re.findall(r"([0-9]+)(?:-([0-9]+))?(?::([0-9]+))?", tasks)
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _brief(stderr: bytes) -> str:
    return _text(stderr).strip()[-_MESSAGE:]
