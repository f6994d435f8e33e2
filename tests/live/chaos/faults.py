"""What fails around the daemon: each fault, and its end."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import psutil

from tests.live.login_node import free_port

if TYPE_CHECKING:
    from tests.live.chaos.run import Chaos

Fault: TypeAlias = Callable[["Chaos"], None]
AGAIN = 30.0
"""seconds within which a process beside the daemon's has to be there again"""


def ledger_read_only(chaos: "Chaos") -> None:
    files = list(chaos.ledger.parent.iterdir())
    for path in (*files, chaos.ledger.parent):
        path.chmod(0o555 if path.is_dir() else 0o444)
    chaos.live(4)
    for path in (chaos.ledger.parent, *files):
        if path.exists():
            path.chmod(0o755 if path.is_dir() else 0o644)


def ledger_log_removed(chaos: "Chaos") -> None:
    """The daemon goes on, or ends where something that was written last is not in the ledger yet."""
    chaos.ledger.with_name(f"{chaos.ledger.name}-wal").unlink(missing_ok=True)
    time.sleep(4.0)  # nobody else has the log open meanwhile
    if chaos.died():
        chaos.start()


def disk_full(chaos: "Chaos") -> None:
    full = chaos.folder / "full"
    full.touch()
    chaos.live(4)
    full.unlink()


def slurmctld_gone(chaos: "Chaos") -> None:
    chaos.cluster.stop("slurmctld")
    chaos.live(3)
    chaos.cluster.start("slurmctld")


def slurmdbd_gone(chaos: "Chaos") -> None:
    chaos.cluster.stop("slurmdbd")
    chaos.live(chaos.draw.choice((3, 30)))
    chaos.cluster.start("slurmdbd")


def reports_deleted(chaos: "Chaos") -> None:
    for path in _some_reports(chaos):
        path.unlink(missing_ok=True)


def reports_replaced(chaos: "Chaos") -> None:
    for path in _some_reports(chaos):
        path.unlink(missing_ok=True)
        path.symlink_to("/etc/passwd")


def clock_moved(chaos: "Chaos") -> None:
    clock = chaos.folder / "clock"
    for offset in (chaos.draw.choice((-7200, -600, 600, 7200)), 0):
        new = chaos.folder / "clock.new"
        new.write_text(str(offset))
        new.replace(clock)  # the daemon may be looking
        chaos.live(3)


def spool_hung(chaos: "Chaos") -> None:
    """The process that reads the spool answers nothing for longer than the daemon waits for it."""
    for process in _beside(chaos, "spool"):
        process.suspend()
        chaos.live(8)
        with suppress(psutil.NoSuchProcess):
            process.resume()


def spool_killed(chaos: "Chaos") -> None:
    _kill(chaos, "spool")


def endpoint_killed(chaos: "Chaos") -> None:
    """In a life of the daemon with an endpoint."""
    without = chaos.config.read_text()
    port = free_port()
    munge = chaos.cluster.layout.munge_socket
    chaos.config.write_text(f'{without}[endpoint]\nlisten = "127.0.0.1:{port}"\nmunge_socket = "{munge}"\n')
    chaos.begin_again()
    chaos.live(AGAIN, until=lambda: bool(_beside(chaos, "endpoint")))
    _kill(chaos, "endpoint")
    chaos.config.write_text(without)
    chaos.begin_again()


def _kill(chaos: "Chaos", name: str) -> None:
    """Kill a process beside the daemon's, which has to be started again."""
    killed = _beside(chaos, name)
    for process in killed:
        os.kill(process.pid, signal.SIGKILL)
    if not chaos.live(AGAIN, until=lambda: any(each not in killed for each in _beside(chaos, name))):
        chaos.violations.append(f"the process {name} was not started again within {AGAIN:g} s")


def _beside(chaos: "Chaos", name: str) -> list[psutil.Process]:
    """The processes of that name that the daemon has."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(chaos.pid).children():
            with suppress(psutil.NoSuchProcess):
                if process.cmdline()[-1:] == [name]:
                    found.append(process)
    return found


def _some_reports(chaos: "Chaos") -> list[Path]:
    reports = sorted((chaos.cluster.spool / "reports").iterdir())
    return chaos.draw.sample(reports, min(3, len(reports)))


FAULTS: tuple[Fault, ...] = (
    ledger_read_only,
    ledger_log_removed,
    disk_full,
    slurmctld_gone,
    slurmdbd_gone,
    reports_deleted,
    reports_replaced,
    clock_moved,
    spool_hung,
    spool_killed,
    endpoint_killed,
)
