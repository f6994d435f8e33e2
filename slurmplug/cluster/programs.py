"""Slurm's programs as processes: their environment, their timeouts, and what they print."""

import math
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from slurmplug.errors import ReadFailed, advice

_MESSAGE_LENGTH = 500
"""characters that are kept of what a program complains about"""
_LOOK = 0.2
"""seconds from one look to the next whether a program is still to be waited for"""
_CLEARED_PREFIXES = ("SLURM_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")
"""Prefixes of environment variables that change what the clients do or print."""
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class SlurmPrograms:
    """Runs squeue, scontrol and the others, of one site."""

    def __init__(self, conf: Path | None, folder: Path | None, timeout: float) -> None:
        """Start nothing yet.

        Args:
            conf: the slurm.conf; None for the one in the environment, or Slurm's default.
            folder: where the programs are; None to search PATH.
            timeout: seconds that each program may take.
        """
        self._folder = folder
        self._timeout = timeout
        self._until = math.inf
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(_CLEARED_PREFIXES)}
        self._env |= {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "TERM": "dumb", "INPUTRC": "/dev/null"}
        if conf or "SLURM_CONF" in os.environ:
            self._env["SLURM_CONF"] = str(conf or os.environ["SLURM_CONF"])

    def finish_within(self, seconds: float) -> None:
        """Wait for no program beyond so many seconds from now, as the daemon ends; safe in a signal handler."""
        self._until = min(self._until, time.monotonic() + seconds)

    def _query(self, *argv: str, **env: str) -> str:
        """What a client prints; `env` is added to its environment. Raises ReadFailed."""
        answer = self._run_to_end(argv, subprocess.PIPE, env)
        complaint = last_words(answer.stderr)
        if answer.returncode != 0 or "format specification" in complaint:  # it exits 0 where a column is unknown
            raise ReadFailed(f"{argv[0]} exits {answer.returncode}: {complaint}")
        return decode(answer.stdout)

    def _run_to_end(
        self, argv: Sequence[str], stdout: int, env: Mapping[str, str] = _NO_VARIABLES
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a client, whatever its exit status. Raises ReadFailed where it cannot be run or takes too long."""
        try:
            return self._run(argv, self._timeout, stdout=stdout, env=env)
        except subprocess.TimeoutExpired as error:
            raise ReadFailed(f"{argv[0]} did not answer within {self._timeout:g} s") from error
        except OSError as error:
            what_to_do = advice(error, "; set slurm.bin to its folder")
            raise ReadFailed(f"{argv[0]} cannot be run: {error.strerror}{what_to_do}") from error

    def _run(
        self,
        argv: Sequence[str],
        timeout: float,
        *,
        stdin: bytes = b"",
        stdout: int = subprocess.DEVNULL,
        env: Mapping[str, str] = _NO_VARIABLES,
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a client in a session of its own: a Ctrl-C that ends the daemon lets it end first (`finish_within`).

        It reads `stdin` from a file in memory: `communicate` writes no more to a pipe once it was interrupted.
        """
        program = str(self._folder / argv[0]) if self._folder else argv[0]
        with open(os.memfd_create("stdin"), "w+b") as told:
            told.write(stdin)
            told.seek(0)
            return self._run_on(told, [program, *argv[1:]], timeout, stdout, {**self._env, **env})

    def _run_on(
        self, stdin: BinaryIO, argv: Sequence[str], timeout: float, stdout: int, env: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[bytes]":
        with subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=env, start_new_session=True
        ) as process:
            until = time.monotonic() + timeout
            while True:
                left = min(until, self._until) - time.monotonic()
                try:
                    printed, complaints = process.communicate(timeout=min(_LOOK, max(0.0, left)))
                    return subprocess.CompletedProcess(process.args, process.returncode, printed, complaints)
                except subprocess.TimeoutExpired:
                    if left <= 0:
                        process.kill()
                        raise
                except BaseException:
                    process.kill()
                    raise


def decode(data: bytes) -> str:
    """What a program printed, as text."""
    return data.decode("utf-8", "replace")


def last_words(stderr: bytes) -> str:
    """The end of what a program complained about."""
    return decode(stderr).strip()[-_MESSAGE_LENGTH:]
