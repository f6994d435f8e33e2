"""TCP ports that are free, also while another sandbox is starting on the machine."""

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from slurmplug.errors import SandboxError

# Below Linux's range for outgoing connections, so that no client takes the port of a daemon that is being restarted.
_CANDIDATES = range(15000, 32000)


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Hold `count` free ports until the daemons that use them have started.

    A port is taken exclusively first, which fails if another holds it or listens on it, and opened to SO_REUSEADDR
    afterwards, so that the daemon can bind while it is still held.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
            if len(ports) == count:
                break
            holder = held.enter_context(socket.socket())
            try:
                holder.bind(("", port))
            except OSError:
                continue
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ports.append(port)
        if len(ports) < count:
            raise SandboxError(f"only {len(ports)} of {count} TCP ports are free; stop other sandboxes and try again")
        yield ports
