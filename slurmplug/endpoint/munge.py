"""MUNGE credentials by its own commands, munge(1) and unmunge(1): who sent something, vouched for by munged."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from slurmplug.errors import EndpointError

TTL = 60
"""Seconds that a credential is good for, once: munged refuses it the second time."""
TIMEOUT = 10.0
MOST = 16_384
"""Bytes of a credential that are looked at."""

_ARMOUR = re.compile(rb"MUNGE:[A-Za-z0-9+/=]{16,}:")
_METADATA = re.compile(rb"\s*STATUS:\s*(\d+)\n\s*UID:\s*(\d+)\n\n", re.ASCII)

_STATUS = {
    15: "it has expired; do the clocks agree?",
    16: "it is from the future; do the clocks agree?",
    17: "it was used before",
}
"""munge(3), ERRORS."""


class Sender(NamedTuple):
    """Who sent a payload."""

    uid: int
    payload: bytes


def encode(payload: bytes, socket: Path | None) -> str:
    """A credential of this user for a payload. Raises EndpointError."""
    told = _run(["munge", f"--ttl={TTL}", *_socket(socket)], payload)
    credential = told.stdout.strip()
    if told.returncode or not _ARMOUR.fullmatch(credential):
        raise EndpointError(f"munge made no credential: {_brief(told.stderr)}; systemctl status munge")
    return credential.decode("ascii")


def decode(credential: str, socket: Path | None) -> Sender:
    """Who sent it and what. Raises EndpointError where munged does not vouch for it: forged, expired or replayed."""
    given = credential.encode("ascii", "replace")
    if len(given) > MOST or not _ARMOUR.fullmatch(given):
        raise EndpointError("this is no MUNGE credential")
    told = _run(["unmunge", "--numeric", "--keys=STATUS,UID", *_socket(socket)], given)
    metadata = _METADATA.match(told.stdout)
    if told.returncode or metadata is None or int(metadata[1]):
        why = _brief(told.stderr) or _STATUS.get(told.returncode, f"status {told.returncode}")
        raise EndpointError(f"munged does not vouch for the credential: {why}")
    return Sender(int(metadata[2]), told.stdout[metadata.end() :])


def _socket(path: Path | None) -> list[str]:
    return [f"--socket={path}"] if path else []


def _run(argv: list[str], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise EndpointError(f"{argv[0]} did not answer within {TIMEOUT:g} s; systemctl status munge") from error
    except OSError as error:
        raise EndpointError(f"{argv[0]} cannot be run: {error.strerror}; install munge") from error


def _brief(stderr: bytes) -> str:
    return stderr.decode("utf-8", "replace").strip().removeprefix("unmunge: Error: ")[-200:]
