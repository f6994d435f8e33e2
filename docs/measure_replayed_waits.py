"""How near a replay of KTH-SP2 comes when it knows one rule of the site, which the log shows but does not state.

`python -m docs.measure_replayed_waits KTH-SP2-1996.swf.gz`. The rule: a job whose time limit is above four hours runs
outside working hours only, Monday to Friday until six, by the clock that the log began with (UTC+2). That these begin
at nine is what nearly all jobs kept; a few ended, by their limits, until ten: both are replayed.
"""

import sys
from dataclasses import replace
from math import inf

import numpy as np

from policies.baselines.slurm import Slurm
from predictors.arrays import Bools, Floats, Ints
from slurmplug.sim.experiment.simulation import NO_CONTENTION, Simulation, SimulationSettings
from slurmplug.sim.slurm.cluster import SlurmSimCluster
from slurmplug.sim.slurm.multifactor import Weights
from slurmplug.sim.slurm.queue import Pending
from slurmplug.sim.slurm.settings import LauncherSettings, Reservations
from slurmplug.sim.workloads.load import load

BEGINS = 843_480_031 + 2 * 3600
"""UnixStartTime of the log's header, as its clock showed it"""
HOUR, DAY = 3600.0, 86_400.0
CLOSED = 18 * HOUR
SHORT = 4 * HOUR
OF_SLURM = LauncherSettings(
    Weights(age=0, fairshare=0, job_size=0, partition=0),
    bf_max_job_test=1000,
    bf_interval=30,
    reservations=Reservations(),
)
"""as `slurmplug replay` has it by PriorityType=priority/basic and bf_max_job_test=1000"""
LOOK = HOUR
"""seconds between two scheduling passes that are made where nothing happens"""


def until_work(now: Floats, opens_at: float) -> Floats:
    """Seconds (n,) from each of these until the next working hours, 0 within them. opens_at: hours."""
    clock = now + BEGINS
    day, second = np.divmod(clock, DAY)
    weekday = (day.astype(np.int64) + 3) % 7  # the epoch began on a Thursday
    left = np.full(len(now), inf)
    for later in range(4, -1, -1):
        opens = later * DAY + opens_at * HOUR - second
        left = np.where(((weekday + later) % 7 < 5) & (opens >= 0), opens, left)
    return np.where((weekday < 5) & (second >= opens_at * HOUR) & (second < CLOSED), 0.0, left)


def may_start(now: Floats, limit: Floats, opens_at: float) -> Bools:
    """Whether jobs of these limits (n,) may start at these times (n,)."""
    return np.asarray((limit <= SHORT) | (limit <= until_work(now, opens_at)))


class OfKth(SlurmSimCluster):
    """A simulated Slurm with that rule."""

    opens_at = 9.0

    def wait(self, until: float) -> bool:
        """As without it; and passes are also made where only the time of day changed."""
        alive = True
        while alive and self.engine.now < until:
            self.engine.changes += 1
            alive = super().wait(min(until, (self.engine.now // LOOK + 1) * LOOK))
        return alive

    def _pending(self, waiting: Ints) -> Pending:
        pending = super()._pending(waiting)
        late = ~may_start(np.full(len(waiting), self.engine.now), pending.time_limit, self.opens_at)
        return replace(pending, begin=np.where(late, inf, pending.begin))


def main() -> None:
    """Print how many jobs kept the rule, and the mean waits."""
    log = load(f"swf:{sys.argv[1]}")
    waited, submitted, limit = (
        np.array([getattr(job, name) for job in log.jobs]) for name in ("waited", "submit", "time_limit")
    )
    long = limit > SHORT
    print(f"{long.sum()} of {len(long)} jobs have a limit above four hours")
    print(f"mean wait, true: {waited.mean():.0f} s")
    settings = SimulationSettings(
        f"{log.nodes}x{log.gpus_a_node}", launcher="slurm", slurm=OF_SLURM, contention=NO_CONTENTION, cycles=False
    )
    for opens_at in (None, 9.0, 10.0):
        simulation = Simulation(log, Slurm(), settings)
        cluster = SlurmSimCluster(simulation.engine, OF_SLURM)
        rule = "without the rule"
        if opens_at is not None:
            cluster = OfKth(simulation.engine, OF_SLURM)
            cluster.opens_at = opens_at
            kept = may_start(submitted + waited, limit, opens_at)[long].mean()
            rule = f"with work from {opens_at:.0f}:00, which {kept:.1%} of these kept"
        simulation.port = cluster
        mean = float(np.mean([job.wait for job in simulation.run().finished]))
        print(f"mean wait, replayed {rule}: {mean:.0f} s, {mean / waited.mean() - 1:+.1%}")


if __name__ == "__main__":
    main()
