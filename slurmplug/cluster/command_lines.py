"""A command in the words of scontrol and scancel, once its fields match a small grammar.

Sources: the manual pages scontrol(1), sections UPDATE COMMAND and RESERVATIONS, and scancel(1).
"""

import re

from slurmplug.cluster.parse.outcomes import MESSAGE_LENGTH
from slurmplug.cluster.port import Command, Outcome

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
_SIGNAL = re.compile(r"[A-Z0-9]{1,12}")
_SIGNAL_OPTIONS = {"batch": ["--batch"], "steps": [], "full": ["--full"]}


def scontrol_line(command: Command, address: str) -> str:
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


def scancel_options(command: Command) -> list[str] | None:
    """The options of scancel, None where a field is not valid."""
    if command.verb == "cancel":
        return []
    signal, to = command.fields.get("signal", ""), command.fields.get("to", "")
    if not _SIGNAL.fullmatch(signal) or to not in _SIGNAL_OPTIONS:
        return None
    return [f"--signal={signal}", *_SIGNAL_OPTIONS[to]]


def invalid(command: Command) -> Outcome:
    """The outcome of a command that has no such line or options: it is not sent."""
    return Outcome(command.id, "refused", f"not a valid {command.verb}: {dict(command.fields)}"[:MESSAGE_LENGTH])
