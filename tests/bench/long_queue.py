"""The processor time of a replay's cycles under mlfs beside a long queue: `python -m tests.bench.long_queue`.

The first jobs of the month of `tests.bench.month` come within ten minutes, a tenth of them managed; `--jobs N`,
`--cycles N`. Processor time, as the machine may have other work.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from policies.mlfs.mlfs import MLFS
from slurmplug.config.schema import Config
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.experiment.simulation import NO_CONTENTION, Simulation, SimulationSettings
from slurmplug.sim.slurm import site_conf
from slurmplug.sim.workloads.assumed import with_assumed_directives
from slurmplug.sim.workloads.load import load
from tests.bench.month import CONF, accounting

WITHIN = 600.0
"""seconds in which all jobs come"""
MANAGED = 0.1


def simulation(jobs: int, policy: MLFS) -> Simulation:
    """Of so many jobs."""
    with tempfile.TemporaryDirectory() as folder:
        log, conf = Path(folder) / "sacct.txt", Path(folder) / "slurm.conf"
        log.write_text(accounting(jobs))
        conf.write_text(CONF)
        workload, site = load(f"sacct:{log}"), site_conf.read(conf)
    last = workload.jobs[-1].submit
    crowded = tuple(replace(job, submit=job.submit * WITHIN / last) for job in workload.jobs)
    settings = SimulationSettings(
        site.cluster,
        Config().interval,
        run_times="forecast",
        launcher="slurm",
        slurm=site.settings,
        contention=NO_CONTENTION,
    )
    return Simulation(
        with_assumed_directives(replace(workload, jobs=crowded), MANAGED, 0), policy, settings, once_grown()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2500)
    parser.add_argument("--cycles", type=int, default=60)
    given = parser.parse_args()
    made = simulation(given.jobs, MLFS())
    Forecaster().get_ready()
    began, cycles, decided, there = time.process_time(), made.cycles(), None, 0
    for _ in range(given.cycles):
        observed = cycles.send(decided)
        decided = made.scheduler.decide(observed)
        there += len(observed.snapshot.jobs)
    seconds = (time.process_time() - began) / given.cycles
    print(f"{1000 * seconds:.0f} ms of the processor a cycle, with {there / given.cycles:.0f} jobs in the mean")


if __name__ == "__main__":
    main()
