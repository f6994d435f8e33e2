"""The daemon, with places at which it can be killed. Run as `python -c THIS CONFIG FOLDER`.

Each line of its input starts the daemon, as a process of its own: forked from this one, which has all modules, so that
a daemon that was killed is back in a second. Its process id is told, and then how it ended, as `subprocess` would.

In FOLDER: `kill` lists the places at which it may kill itself, one a line, and `died` tells at which it did; `passed`
gathers the places that it passed; `clock` is by how many seconds its clock is wrong; while there is `full`, no file can
grow. A place is the kind of an operation, its step, and a moment: before the cycle is written, when it is written, when
Slurm was told, when its answer is written.
"""

import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from slurmplug.cluster.port import Command, Outcome
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.cycle.record import CycleRecord
from slurmplug.daemon.daemon import serve
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.ledger.ledger import Ledger

CONFIG, FOLDER = map(Path, sys.argv[1:3])
_begin, _finish, _apply = Ledger.begin, Ledger.finish, SlurmCluster.apply
_now_under_way: set[str] = set()


def passes(places: Iterable[str]) -> None:
    """Note the places, and die at the one that is wanted."""
    reached = sorted(set(places))
    if reached:
        with (FOLDER / "passed").open("a") as file:
            file.write("".join(f"{place}\n" for place in reached))
    deadly = [place for place in reached if place in wanted()]
    if deadly:
        (FOLDER / "died").write_text(deadly[0])
        os.kill(os.getpid(), signal.SIGKILL)


def wanted() -> set[str]:
    """Where it may die."""
    path = FOLDER / "kill"
    return set(path.read_text().splitlines()) if path.exists() else set()


def step_of(command: Command) -> str:
    """What a command says: the kind of its operation and the step; `rank label` for a label."""
    if not command.operation:
        return "rank label"
    kind = command.operation.split("-")[1]
    return f"{kind} {command.id.removeprefix(command.operation).split('-')[1]}"


def begin(ledger: Ledger, record: CycleRecord) -> None:
    _now_under_way.clear()
    _now_under_way.update(f"{operation.kind} {operation.step}" for operation in record.operations)
    _now_under_way.update(step_of(command) for command in record.commands)
    passes(f"{step} unwritten" for step in _now_under_way)
    most = 4096 if (FOLDER / "full").exists() else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        _begin(ledger, record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    passes(f"{step} written" for step in _now_under_way)


def apply(cluster: SlurmCluster, commands: Sequence[Command]) -> Sequence[Outcome]:
    for at, command in enumerate(commands):
        if f"{step_of(command)} said" in wanted():
            _apply(cluster, commands[: at + 1])  # those behind it are never said
            passes([f"{step_of(command)} said"])
    outcomes = _apply(cluster, commands)
    passes(f"{step_of(command)} said" for command in commands)
    return outcomes


def finish(ledger: Ledger, *arguments: Any) -> None:
    _finish(ledger, *arguments)
    passes(f"{step} finished" for step in _now_under_way)


def now(_: SlurmCluster) -> float:
    clock = FOLDER / "clock"
    return time.time() + (float(clock.read_text()) if clock.exists() else 0.0)


def wait(cluster: SlurmCluster, until: float) -> bool:
    time.sleep(max(0.0, min(until - now(cluster), 1.0)))
    return True


def live() -> int:
    """One life of the daemon, in a process of its own; the exit status."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    try:
        serve(CONFIG)
    except BaseException:
        logging.exception("the daemon ends")
        return 1
    return 0


Ledger.begin, Ledger.finish = begin, finish  # type: ignore[method-assign, assignment]
SlurmCluster.apply, SlurmCluster.now, SlurmCluster.wait = apply, now, wait  # type: ignore[method-assign, assignment]
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
Forecaster().get_ready()  # imports what is imported late
for _ in sys.stdin:
    if not (child := os.fork()):
        os._exit(live())
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
