"""A replay of how a job waited on a real Slurm until what its account had used was below a limit again."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from slurmplug.commands import main
from slurmplug.sandbox import ClusterSpec, Sandbox

SPEC = ClusterSpec(weights={"Age": 1000, "FairShare": 1000}, settings={"PriorityDecayHalfLife": "00:01:00"})
SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:{} --time=5 --mem=1 --output=/dev/null\nsleep {}\n"


def test_a_replay_waits_until_what_an_account_has_used_has_halved_often_enough(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path
) -> None:
    """A minute of a GPU may be used, and usage halves each minute; the other account has no limit."""
    cluster = special_cluster(SPEC)
    vision, language = cluster.researchers[:2]
    time.sleep(2)  # sacct lists what ended in the second from which on it is asked
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    first = cluster.sbatch(vision, SCRIPT.format(4, 60))
    cluster.wait_job(first, "COMPLETED", 120)  # a limit that there was before would have ended it
    cluster.run("root", ["sacctmgr", "-i", "modify", "account", "vision", "set", "GrpTRESMins=gres/gpu=1"])
    held, free = cluster.sbatch(vision, SCRIPT.format(1, 5)), cluster.sbatch(language, SCRIPT.format(1, 5))
    for job in (free, held):
        cluster.wait_job(job, "COMPLETED", 300)
    dump, config = cluster.folder / "dump.cfg", tmp_path / "slurmplug.toml"
    cluster.run("root", ["sacctmgr", "dump", cluster.name, f"file={dump}"])
    config.write_text(f'[slurm]\nconf = "{cluster.layout.slurm_conf}"\n')
    conf = f"--slurm-conf={cluster.layout.slurm_conf}"
    given = ["replay", f"--since={since}", conf, f"--config={config}", "--samples=1", "--json"]
    with_limit, without = (
        json.loads(CliRunner().invoke(main, [*given, *more]).output)["waits"] for more in ([f"--sacctmgr={dump}"], [])
    )
    print(with_limit, without)
    assert with_limit["true_mean"] > 10 > without["replayed_mean"]
    assert abs(np.log(with_limit["replayed_mean"] / with_limit["true_mean"])) < np.log(2)
