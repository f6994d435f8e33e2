"""How long a replay of a month of a large site takes, and its memory: `python -m tests.bench.month`.

The accounting is made up: 500,000 jobs in 30 days on 250 nodes of 8 GPUs, of which they need 85%, more by day than by
night. `--jobs N` takes a part of the month with as many jobs a day; further options are those of `slurmplug replay`.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

JOBS, SECONDS = 500_000, 30 * 86_400
NODES, GPUS_A_NODE, USED = 250, 8, 0.85
GPUS, OF_GPUS = (1, 2, 4, 8, 16, 32), (0.62, 0.12, 0.12, 0.09, 0.03, 0.02)
USERS, ACCOUNTS = 400, 40
SPREAD = 1.6
"""standard deviation of the logarithm of the run times"""
LONGEST = 2 * 86_400
HEADING = "JobID|User|Account|Partition|QOS|Submit|ElapsedRaw|TimelimitRaw|AllocTRES|NCPUS|State|JobName"
CONF = f"""
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=1000
SelectTypeParameters=CR_Core_Memory
NodeName=n[1-{NODES}] Gres=gpu:{GPUS_A_NODE} CPUs=64 RealMemory=512000
PartitionName=gpu Nodes=n[1-{NODES}] Default=YES MaxTime=3-0
"""


def accounting(jobs: int, seed: int = 0) -> str:
    """What sacct would list."""
    rng = np.random.default_rng(seed)
    hours = rng.random(jobs) * SECONDS * jobs / JOBS / 3600
    submit = 1_770_000_000 + 3600 * np.sort(hours + 2 * np.sin(hours * np.pi / 12))
    gpus = rng.choice(GPUS, size=jobs, p=OF_GPUS)
    seconds = np.clip(np.exp(SPREAD * rng.standard_normal(jobs)), 0, LONGEST)
    seconds *= USED * NODES * GPUS_A_NODE * SECONDS * jobs / JOBS / (seconds @ gpus)
    seconds = np.clip(seconds, 10, LONGEST).astype(int)
    limit = np.ceil(seconds * rng.uniform(1.1, 5.0, jobs) / 3600).astype(int) * 60
    user = (USERS * rng.random(jobs) ** 3).astype(int)
    columns = zip(*(each.tolist() for each in (user, submit.astype(int), seconds, limit, gpus)), strict=True)
    rows = (
        f"{n}|u{u}|a{u % ACCOUNTS}|gpu|normal|{s}|{r}|{t}|cpu={8 * g},gres/gpu={g},mem={32 * g}G|{8 * g}|C|j{u}-{r % 7}"
        for n, (u, s, r, t, g) in enumerate(columns)
    )
    return "\n".join([HEADING, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        log, conf = Path(folder) / "sacct.txt", Path(folder) / "slurm.conf"
        log.write_text(accounting(given.jobs))
        conf.write_text(CONF)
        program = [sys.executable, "-c", "from slurmplug.commands import main; main()", "replay"]
        began = time.perf_counter()
        subprocess.run([*program, "--sacct", str(log), "--slurm-conf", str(conf), *options], check=True)
        seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{given.jobs} jobs: {seconds:.0f} s, {memory:.0f} MiB")


if __name__ == "__main__":
    main()
