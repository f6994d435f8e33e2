"""The lines of report files as JSON objects. Pure."""

import json
import math

MAX_LINE_BYTES = 16_384
"""A longer line is dropped."""
_DECODER = json.JSONDecoder(parse_int=float)
UNMATCHED = "unmatched pattern"
"""The field by which `slurmplug run` says that a pattern matched no line, and the rule by which that is counted; no
quantity has such a name."""
_WITHOUT_ITERATION = frozenset(("time", "trial", "checkpoint", "load", UNMATCHED))
"""The fields that a line without an iteration may have."""


class LineRejected(Exception):
    """A line that is dropped; the argument is the rule of its fault."""


def fields_of(line: bytes) -> dict[str, object]:
    """The fields of a line, whole numbers as floats. Raises LineRejected."""
    if len(line) > MAX_LINE_BYTES:
        raise LineRejected("long line")
    try:
        fields = _DECODER.decode(line.decode("utf-8"))
    except (ValueError, RecursionError) as unreadable:
        raise LineRejected("unreadable line") from unreadable
    if not isinstance(fields, dict):
        raise LineRejected("unreadable line")
    if "iteration" not in fields and not fields.keys() <= _WITHOUT_ITERATION:
        raise LineRejected("no iteration")
    return fields


def fault_of(line: bytes) -> str:
    """The rule by which a line is dropped; empty for one that is not."""
    try:
        fields_of(line)
    except LineRejected as rejected:
        return str(rejected)
    return ""


def time_of(line: bytes) -> float:
    """When a line was reported: infinity where it does not say, minus infinity where it is not readable."""
    try:
        time = fields_of(line).get("time", math.inf)
    except LineRejected:
        return -math.inf
    return time if isinstance(time, float) and not math.isnan(time) else math.inf


def lines_since(data: bytes, time: float) -> bytes:
    """The lines from the first one with that time or a later one, or with none."""
    start = 0
    for line in data.split(b"\n"):
        if time_of(line) >= time:
            return data[start:]
        start += len(line) + 1
    return b""
