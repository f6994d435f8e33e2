"""A job that is passed again and again is put first in a real Slurm, and `why` says so."""

import time
from contextlib import closing
from pathlib import Path

import numpy as np

from policies.plan import Plan
from policies.snapshot import Snapshot
from slurmplug.config.schema import Config
from slurmplug.ledger.ledger import Ledger
from slurmplug.sandbox import Sandbox
from tests.ledgers import Planned, run
from tests.live.operated import operated
from tests.schedulers import begun

BRIEF = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4 --time=1\nsleep 6\n"
WIDE = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4 --time=1\n#PLUG --manage=on\nsleep 600\n"
LATER = "#!/bin/sh\n#SBATCH --gres=gpu:4 --time=1\n#PLUG --manage=on\nsleep 600\n"


def latest_first(snapshot: Snapshot) -> Plan:
    return Plan(np.array([key.job_id for key in snapshot.jobs.keys], dtype=float))


def test_a_job_that_later_ones_passed_goes_first_and_why_says_so(cluster: Sandbox, tmp_path: Path) -> None:
    user = cluster.researchers[0]

    def priority(job: int) -> int:
        return int(cluster.run("root", ["squeue", "-h", "-j", str(job), "-o", "%Q"]).stdout)

    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        settings = {"mode": {"default": "act"}, "guardrails": {"max_bypass": 1.2}}
        scheduler = begun(operated(cluster, tmp_path), Planned(latest_first), ledger, Config.from_table(settings))

        def cycle() -> bool:
            assert scheduler.run() is not None
            return True

        cluster.wait_job(cluster.sbatch(user, BRIEF), "RUNNING")
        passed = cluster.sbatch(user, WIDE)
        time.sleep(1.1)  # Slurm keeps whole seconds
        later = [cluster.sbatch(user, LATER) for _ in range(5)]
        cycle()
        assert priority(later[-1]) > priority(passed)
        cluster.wait_job(later[-1], "RUNNING")
        waits = later[0]
        cluster.wait(lambda: cycle() and priority(passed) > priority(waits), 60, "the job that was passed to be first")
        told = run("why", "--ledger", str(tmp_path / "ledger.db"), str(passed)).output
        assert "It goes first: jobs that came later were put before it" in told
