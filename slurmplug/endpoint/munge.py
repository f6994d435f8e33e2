"""MUNGE credentials by the commands munge(1) and unmunge(1): munged authenticates who sent a payload."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from slurmplug.errors import EndpointError, advice

TTL = 60
"""Seconds for which a credential is valid, once: munged rejects it the second time."""
TIMEOUT = 10.0
CREDENTIAL_BYTES = 16_384
"""The longest credential that is passed to unmunge."""

_ARMOUR = re.compile(rb"MUNGE:[A-Za-z0-9+/=]{16,}:")
_METADATA = re.compile(rb"\s*STATUS:\s*(\d+)\n\s*UID:\s*(\d+)\n\n", re.ASCII)

_STATUS = {
    15: "it has expired; do the clocks agree?",
    16: "it is from the future; do the clocks agree?",
    17: "it was used before",
}
"""munge(3), ERRORS."""


class Sender(NamedTuple):
    """A payload and the uid that sent it."""

    uid: int
    payload: bytes


def encode(payload: bytes, socket: Path | None) -> str:
    """A credential of this process' user for a payload. Raises EndpointError."""
    completed = _run(["munge", f"--ttl={TTL}", *_socket(socket)], payload)
    credential = completed.stdout.strip()
    if completed.returncode or not _ARMOUR.fullmatch(credential):
        raise EndpointError(
            f"munge could not create a credential: {_brief(completed.stderr)}; see systemctl status munge"
        )
    return credential.decode("ascii")


def decode(credential: str, socket: Path | None) -> Sender:
    """The sender and the payload. Raises EndpointError if munged rejects it: forged, expired or replayed."""
    encoded = credential.encode("ascii", "replace")
    if len(encoded) > CREDENTIAL_BYTES or not _ARMOUR.fullmatch(encoded):
        raise EndpointError("not a MUNGE credential")
    completed = _run(["unmunge", "--numeric", "--keys=STATUS,UID", *_socket(socket)], encoded)
    metadata = _METADATA.match(completed.stdout)
    if completed.returncode or metadata is None or int(metadata[1]):
        why = _brief(completed.stderr) or _STATUS.get(completed.returncode, f"status {completed.returncode}")
        raise EndpointError(f"munged rejects the credential: {why}")
    return Sender(int(metadata[2]), completed.stdout[metadata.end() :])


def _socket(path: Path | None) -> list[str]:
    return [f"--socket={path}"] if path else []


def _run(argv: list[str], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise EndpointError(f"{argv[0]} did not answer within {TIMEOUT:g} s; see systemctl status munge") from error
    except OSError as error:
        raise EndpointError(f"{argv[0]} cannot be run: {error.strerror}{advice(error, '; install munge')}") from error


def _brief(stderr: bytes) -> str:
    return stderr.decode("utf-8", "replace").strip().removeprefix("unmunge: Error: ")[-200:]
