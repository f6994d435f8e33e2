"""The reservations that scontrol lists. Pure."""

import re

from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.parse.table import UNSET, name_set, timestamp
from slurmplug.cluster.port import Reservation
from slurmplug.errors import ReadFailed

_FIELD = re.compile(r"\b(\w++)=(\S*+)")


def reservations(text: str) -> tuple[Reservation, ...]:
    """What `scontrol --oneliner show reservations` lists, with times in seconds since the epoch. Raises ReadFailed."""
    if text.startswith("No reservations in the system"):
        return ()
    lines = [line for line in text.splitlines() if line.startswith("ReservationName=")]
    if not lines:
        raise ReadFailed(f"scontrol show reservations answers {text[:80]!r}")
    return tuple(map(_reservation, lines))


def _reservation(line: str) -> Reservation:
    fields = dict(reversed(_FIELD.findall(line)))
    try:
        return Reservation(
            name=fields["ReservationName"],
            nodes=frozenset(() if fields["Nodes"] in UNSET else expand(fields["Nodes"])),
            users=name_set(fields["Users"]),
            accounts=name_set(fields["Accounts"]),
            start=timestamp(fields["StartTime"]),
            end=timestamp(fields["EndTime"]),
        )
    except (KeyError, ValueError) as error:
        raise ReadFailed(f"scontrol show reservations answers {line[:200]!r}: {error}") from error
