"""Who asks for a page, and what Slurm shows them."""

import os
import pwd
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from slurmplug.endpoint.viewers import Viewers
from slurmplug.endpoint.web import peers
from slurmplug.reports.viewer import Viewer

NOBODY = -1
"""a uid that no job has"""
LAST_SYSTEM_UID = 999
"""Accounts of services, such as a proxy's, have none above it: SYS_UID_MAX of login.defs(5)."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,99}\$?", re.ASCII)


class AskerRefused(Exception):
    """The proxy names somebody to whom nothing is shown. Its text says why."""


class Asker(NamedTuple):
    """Who asks. name: empty where nobody was named."""

    name: str
    viewer: Viewer


class Askers:
    """Tells who asks by a header that a proxy on this host sets."""

    def __init__(self, viewers: Viewers, header: str) -> None:
        """header: its name; empty where no proxy is believed."""
        self._viewers = viewers
        self._variable = f"HTTP_{header.upper().replace('-', '_')}" if header else ""

    def asker(self, environ: Mapping[str, Any]) -> Asker:
        """Who asks, by a request's WSGI environment. Raises AskerRefused."""
        name = str(environ.get(self._variable, "")) if self._variable else ""
        if not name or not _of_a_proxy(environ):
            return Asker("", self._viewers.viewer(NOBODY))
        try:
            uid = pwd.getpwnam(name).pw_uid if _NAME.fullmatch(name) else None
        except KeyError:
            uid = None
        if uid is None:
            raise AskerRefused("the proxy names a user who has no account on this host")
        if uid in (0, os.geteuid()):
            raise AskerRefused("neither root nor the daemon's account is shown pages: sign in as yourself")
        return Asker(name, self._viewers.viewer(uid))


def _of_a_proxy(environ: Mapping[str, Any]) -> bool:
    """Whether a request comes from a service on this host: any user can open a connection here, and name anybody."""
    address, port, own = (environ.get(name, "") for name in ("REMOTE_ADDR", "REMOTE_PORT", "SERVER_PORT"))
    try:
        found = peers.owners(str(address), int(port), int(own))
    except (ValueError, OSError):
        return False
    return bool(found) and all(uid <= LAST_SYSTEM_UID or uid == os.geteuid() for uid in found)
