"""Why a job is requested to stop: the answer of `report()`, and the request's file that it is read from.

This runs inside users' programs, so it imports the standard library only, runs on Python 3.8, and never raises.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from typing import Any, Mapping

VERSION = 1
"""of the file's content; what a file of another version says is not read, but it requests a stop like any other"""
MAX_BYTES = 4_096
_REASON = re.compile(r"[a-z][a-z ]{0,31}")
_QUANTITY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Stop(int):
    """What `report()` returns: true, and equal to 1, when the job is requested to stop; else false, and equal to 0.

    It is an int, so that `torch.tensor(report(...))` works, and a copy or a pickle of it says the same.
    """

    _reason: str
    _status: int

    def __new__(cls, requested: bool = False, reason: str = "", status: int = 0) -> Stop:
        """The answer; `reason` and `status` as the properties."""
        self = super().__new__(cls, bool(requested))
        self._reason, self._status = reason, status
        return self

    @property
    def reason(self) -> str:
        """Why: `target`, `no better likely`, `out of reach`, `diverged`, `idle` or `other`; empty without a request."""
        return self._reason

    @property
    def status(self) -> int:
        """The exit status for the program: 0; 1 where the script requires its target, and the target is not met."""
        return self._status

    def __reduce__(self) -> Any:
        """For copies and pickles."""
        return type(self), (bool(self), self._reason, self._status)

    def __repr__(self) -> str:
        """Such as Stop(True, 'target', 0)."""
        return f"Stop({bool(self)}, {self._reason!r}, {self._status})"


GO_ON = Stop()
"""The answer while nothing is requested."""


class StopRequest:
    """A request to stop. `stop`: the answer to the program. `line`: the same for its user, as one line of text."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """`fields`: the content of the file, its numbers as floats; what is missing or invalid in it is left out."""
        reason, status = fields.get("reason"), fields.get("status")
        known = isinstance(reason, str) and _REASON.fullmatch(reason)
        self.stop = Stop(True, str(reason) if known else "other", int(isinstance(status, float) and status == 1))
        self.line = _line(self.stop, fields)


def read_request(path: str) -> StopRequest:
    """The request in a file, which its caller trusts to be the daemon's. One that is empty, cut short or unreadable
    says only that the job shall stop. Never raises."""
    try:
        content = json.loads(_read(path).decode("utf-8"), parse_int=float)
    except (OSError, ValueError, RecursionError):
        content = None
    valid = isinstance(content, dict) and content.get("version") == VERSION
    return StopRequest(content if valid else {})


def _read(path: str) -> bytes:
    """The content of a small regular file; raises OSError, and ValueError for any other."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            raise ValueError("not a request")
        return os.read(file, MAX_BYTES)
    finally:
        os.close(file)


_WHY = {
    "target": ("{quantity} {value} meets the target {target}", "the target is met"),
    "no better likely": ("{quantity} {value} is not likely to get better", "no better value is likely"),
    "out of reach": ("{quantity} {value} is not likely to reach the target {target}", "the target is out of reach"),
    "diverged": ("the training has diverged", "the training has diverged"),
    "idle": ("its GPUs are idle", "its GPUs are idle"),
}
"""By reason: why, with the figures, and where one of them is not known."""


def _line(stop: Stop, fields: Mapping[str, Any]) -> str:
    figures = _figures(fields)
    after = " after iteration {iteration}".format(**figures) if "iteration" in figures else ""
    with_figures, without = _WHY.get(stop.reason, ("", ""))
    try:
        why = with_figures.format(**figures)
    except KeyError:
        why = without
    ending = "; exit with status 1, since the script requires its target" if stop.status else ""
    return f"slurmplug: stop requested{after}{': ' if why else ''}{why}{ending}"


def _figures(fields: Mapping[str, Any]) -> dict[str, str]:
    """The valid ones, as text."""
    found = {}
    quantity = fields.get("quantity")
    if isinstance(quantity, str) and _QUANTITY.fullmatch(quantity):
        found["quantity"] = quantity
    for name, digits in (("iteration", 15), ("value", 4), ("value_iteration", 15), ("target", 6)):
        number = fields.get(name)
        if isinstance(number, float) and abs(number) < math.inf:
            found[name] = f"{number:.{digits}g}"
    if "value" in found and "value_iteration" in found:
        found["value"] += f" of iteration {found['value_iteration']}"
    return found
