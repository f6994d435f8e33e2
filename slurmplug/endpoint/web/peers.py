"""Which account a connection over loopback comes from, by the kernel's tables of sockets (proc_net(5))."""

import socket
import struct
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
"""A socket that its process has closed is listed as root's, in another state."""


def owners(address: str, port: int, to_port: int) -> set[int]:
    """The uids of the open sockets on this host that go from an address and port to a port.

    Empty where there is none, or the kernel's tables cannot be read.
    """
    local, remote = f"{_hexadecimal(address)}:{port:04X}", f":{to_port:04X}"
    found = set()
    for table in TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, at, to, state, _, _, _, uid, *_ = line.split()
            if at == local and to.endswith(remote) and state == _ESTABLISHED:
                found.add(int(uid))
    return found


def _hexadecimal(address: str) -> str:
    """An address as these tables have it: words of 32 bits, in this machine's order of bytes."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
