"""A live cluster under load, while the daemon is killed at every place and everything around it fails: `make chaos`.

The last line of the output gives the counts. It ends with status 1 where an invariant was violated, or a place was
passed at which the daemon was never killed.
"""

import argparse
import os
import pwd
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from slurmplug.ledger.ledger import Ledger
from slurmplug.sandbox import ClusterSpec, Sandbox
from slurmplug.sandbox.errors import CommandFailed
from tests.live.chaos import invariants
from tests.live.chaos.crowd import Crowd
from tests.live.chaos.faults import FAULTS
from tests.live.chaos.steering import steer
from tests.live.test_submit_plugin import CHECK, site_script

HERE = Path(__file__).parent
ALIVE = 18
PATIENCE = 30
"""times that none of the places that are left is passed in 20 s, before it is told that they were not"""
FEW = 20
"""places; of more, half are tried at a time, or those that are passed often would always come first"""
FAULTS_A_KILL = 0.3
DRAINS, DRAINS_TO_UNDO = 0.03, 0.5
"""The chance that the nodes are drained when a look finds a job that is about to go on elsewhere; and where a place is
left that is only passed when such a job does not start at once."""
LOOK = 1.0
"""seconds from one look at what leads to the places that are left to the next"""
DRAINED = 8.0
"""seconds: longer than it is waited for"""
LIMITS = {
    "requeues_per_cycle": 4,
    "requeues_per_hour": 400,
    "requeues_per_user": 300,
    "stops_per_cycle": 3,
    "stops_per_hour": 2000,  # else none is left for the places of a stop
}
SETTINGS = """
interval = 1
policy = "{policy}:Churn"
[mode]
default = "act"
admit = "act"
[slurm]
conf = "{conf}"
[spool]
path = "{spool}"
[ledger]
path = "{ledger}"
[operations]
placement = "exclude"
interval = 1
start_limit = 2
watch_limit = 20
[guardrails]
first_seen = 0
minimum_run = 0
requeue_cooldown = 0
requeue_cost = 0
requeues_per_job = 1000
breaker_failures = 1000
{limits}
"""


class Lives:
    """The process that forks daemons, one after the other."""

    def __init__(self, argv: Sequence[str], **how: Any) -> None:
        self._parent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **how)
        self._told = b""
        self.pid = 0

    def begin(self) -> None:
        """One more life; returns when the process is there."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(b"again\n")
        self._told = b""
        self.pid = int(self._line(120.0) or 0)
        if not self.pid:
            raise SystemExit("the daemon could not be started")

    def status(self) -> int | None:
        """How the present life ended, None while it lasts."""
        if not self._told:
            self._told = self._line(0.0)
        return int(self._told) if self._told else None

    def end(self) -> None:
        """Tell the present life to stop, and wait for that."""
        if self.status() is None:
            os.kill(self.pid, signal.SIGTERM)
            self._told = self._line(60.0)

    def close(self) -> None:
        """There will be no other."""
        self.end()
        with self._parent:
            assert self._parent.stdin is not None
            self._parent.stdin.close()
            self._parent.wait(60)

    def _line(self, patience: float) -> bytes:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline() if select.select([self._parent.stdout], [], [], patience)[0] else b""


class Chaos:
    """A cluster, its crowd, and a daemon that can be killed."""

    def __init__(self, cluster: Sandbox, folder: Path, seed: int) -> None:
        self.cluster, self.folder = cluster, folder
        self.crowd = Crowd(cluster)
        self.draw = random.Random(seed)
        self.kills: list[str] = []
        self.faults: list[str] = []
        self.violations: list[str] = []
        self.drains = 0
        self._drained_until: float | None = None
        self.lives: Lives | None = None
        self.ledger, self.config = folder / "ledger" / "ledger.db", folder / "slurmplug.toml"
        conf, policy = cluster.env(cluster.operator)["SLURM_CONF"], folder / "churn.py"
        policy.write_text((HERE / "churn.py").read_text())
        self.config.write_text(
            SETTINGS.format(
                policy=policy, conf=conf, spool=cluster.spool, ledger=self.ledger,
                limits="\n".join(f"{name} = {value}" for name, value in LIMITS.items()),
            )
        )  # fmt: skip
        account = pwd.getpwnam(cluster.operator)
        self.ledger.parent.mkdir()
        for path in (folder, policy, self.ledger.parent):
            os.chown(path, account.pw_uid, account.pw_gid)
        self._account = account

    # --- the daemon -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the daemon; it reads what to do from the folder."""
        if self.lives is None:
            with (self.folder / "log").open("ab") as log:
                self.lives = Lives(
                    [sys.executable, "-c", (HERE / "faulty_daemon.py").read_text(), str(self.config), str(self.folder)],
                    user=self._account.pw_uid, group=self._account.pw_gid, extra_groups=[],
                    env=self.cluster.env(self.cluster.operator), stderr=log, cwd="/",
                )  # fmt: skip
        self.lives.begin()

    def begin_again(self) -> None:
        """Another life of the daemon, with the configuration as it is now."""
        self.end()
        self.start()

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self.lives is not None
        return self.lives.pid

    def died(self) -> bool:
        return self.lives is not None and self.lives.status() is not None

    def last_words(self) -> str:
        """The end of the daemon's log."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def end(self) -> None:
        """End the daemon in its own way."""
        if self.lives is not None:
            self.lives.end()

    def close(self) -> None:
        """End it for good."""
        if self.lives is not None:
            self.lives.close()

    def passed(self) -> set[str]:
        """All places that were passed so far."""
        path = self.folder / "passed"
        return set(path.read_text().splitlines()) if path.exists() else set()

    def cycles(self) -> int:
        ledger = Ledger(self.ledger, readonly=True)
        try:
            return int(ledger.query("SELECT count(*) AS n FROM cycles")[0]["n"])
        finally:
            ledger.close()

    def live(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Keep the crowd and the daemon going for so long, or until something holds; whether it did."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if until():
                return True
            if self.died():
                raise SystemExit(f"the daemon ended by itself: {self.last_words()}")
            self._meanwhile(DRAINS)
            time.sleep(0.5)
        return until()

    def killed(self, places: Collection[str], patience: float) -> bool:
        """Let the daemon run into one of these places; whether it did. It is started again."""
        kill = self.folder / "kill"
        kill.write_text("\n".join(places))
        kill.chmod(0o644)
        late = any(step in place for place in places for step in (" confirm ", " undo "))
        drains = DRAINS_TO_UNDO if late else DRAINS
        look = time.monotonic()
        limit = look + patience
        while time.monotonic() < limit and not self.died():
            self._meanwhile(drains)
            if time.monotonic() >= look:
                steer(self, places if len(places) <= FEW else ())
                look += LOOK
            time.sleep(0.2)
        kill.unlink()
        if not self.died():
            return False
        assert self.lives is not None
        if self.lives.status() != -9:
            raise SystemExit(f"the daemon ended by itself with {self.lives.status()}: {self.last_words()}")
        self.kills.append((self.folder / "died").read_text())
        before = self.cycles()
        self.start()
        self.live(60, until=lambda: self.cycles() > before)  # it cannot begin without a ledger that it can write
        return True

    # --- everything around it ---------------------------------------------------------------------------------------

    def _meanwhile(self, drains: float) -> None:
        """Researchers submit; an operator, by that chance, drains the nodes as a job is about to go on elsewhere."""
        with suppress(CommandFailed):  # slurmctld is one of the things that fail
            self.crowd.fill(ALIVE)
            if self._drained_until is not None:
                if time.monotonic() > self._drained_until:
                    self.resume()
            elif self._moving() and self.draw.random() < drains:
                self.cluster.run("root", ["scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=chaos"])
                self._drained_until = time.monotonic() + DRAINED
                self.drains += 1

    def resume(self) -> None:
        """The nodes take jobs again."""
        if self._drained_until is not None:
            self.cluster.run("root", ["scontrol", "update", "NodeName=ALL", "State=UNDRAIN"])
            self._drained_until = None

    def _moving(self) -> bool:
        """Whether a job that was requeued is about to be given its place."""
        if not self.passed():  # the first daemon may still be making the ledger
            return False
        with closing(Ledger(self.ledger, readonly=True)) as ledger:
            return bool(ledger.query("SELECT 1 FROM operations WHERE step = 'settle' AND requeued IS NOT NULL"))

    def fault(self) -> None:
        """One of the faults, by chance, and its end."""
        one = self.draw.choice(FAULTS)
        self.faults.append(one.__name__)
        one(self)


def spec(folder: Path) -> ClusterSpec:
    """A cluster whose submit plugin holds who waits for admission."""
    script = site_script(folder, CHECK)
    script.write_text(script.read_text().replace("slurmplug.check(", "slurmplug.hold("))
    return ClusterSpec(job_submit=script)


def run(cluster: Sandbox, folder: Path, *, seed: int, seconds: float, kills: int | None = None) -> tuple[str, bool]:
    """So many kills at most, or one at each place, within so many seconds; the counts in a line, and whether all is
    well."""
    chaos = Chaos(cluster, folder, seed)
    with closing(chaos):
        return _run(chaos, seconds, kills or sys.maxsize, all_places=kills is None)


def _run(chaos: Chaos, seconds: float, kills: int, *, all_places: bool) -> tuple[str, bool]:
    limit = time.monotonic() + seconds
    chaos.start()
    chaos.live(min(20.0, seconds / 4), until=lambda: len(chaos.passed()) > 20)
    misses = 0
    while time.monotonic() < limit and len(chaos.kills) < kills and misses < PATIENCE:
        left = sorted(chaos.passed() - set(chaos.kills))
        few = chaos.draw.sample(left, len(left) // 2) if len(left) > FEW else left
        misses = 0 if few and chaos.killed(few, patience=20.0) else misses + 1
        if chaos.draw.random() < FAULTS_A_KILL:
            chaos.fault()
        if not left:
            chaos.live(10)
    chaos.resume()
    violations, after = invariants.after(chaos)
    violations = [*chaos.violations, *violations]
    places, died = chaos.passed(), set(chaos.kills)
    counts = f"kills {len(chaos.kills)}, places {len(died)}/{len(places)}, faults {len(chaos.faults)}, "
    counts += f"drains {chaos.drains}, {after}"
    alive = [f"not killed at {place}" for place in sorted(places - died)] if all_places else []
    lines = [*violations, *alive, f"{counts}, violations {len(violations)}"]
    return "\n".join(lines), not violations and not alive


def main(argv: Sequence[str] | None = None) -> None:
    """All places, within a time that is given."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=2700.0)
    asked = options.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as name, ExitStack() as stack:
        Path(name).chmod(0o755)
        cluster = stack.enter_context(Sandbox(spec(Path(name))))
        summary, well = run(cluster, Path(name), seed=asked.seed, seconds=asked.seconds)
    print(summary)
    sys.exit(not well)


if __name__ == "__main__":
    main(sys.argv[1:])
