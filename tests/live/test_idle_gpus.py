"""A job that leaves its GPUs idle is told so and then stopped; one that uses them again is not."""

import sys
from collections.abc import Callable
from pathlib import Path

from slurmplug.sandbox import Sandbox
from slurmplug.sandbox.spec import ClusterSpec, Node
from tests.live.daemon_process import daemon_beside
from tests.live.test_notifications import mailbox

NVML = """
import os
from types import SimpleNamespace

def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetHandleByUUID(uuid): return 0
def nvmlDeviceGetUtilizationRates(handle): return SimpleNamespace(gpu=float(open(os.environ["GPU_USE"]).read()))
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(used=1, total=2)
"""
"""A GPU whose use is in a file, in percent."""
SCRIPT = """#!/bin/sh
#SBATCH --gres=gpu:1
#PLUG --max-iterations=100000
export PYTHONPATH={folder} GPU_USE={use}
exec {python} -c '
import sys, time
from slurmplug_report import report
library = sys.modules["slurmplug_report.report"]
library.LOAD_SECONDS = library.IDLE_SECONDS = library.BATCH_SECONDS = 0.2
for iteration in range(1, 100000):
    stop = report(iteration=iteration)
    if stop:
        sys.exit(0 if stop.reason == "idle" else 1)
    time.sleep(0.1)
'
"""
"""A program that reports the use of its GPUs more often than every half minute."""
SETTINGS = """
[stop]
idle_gpus = 20
grace = 60
[notifications]
mail = "all"
"""


def test_a_job_with_idle_gpus_is_told_and_then_stopped_unless_it_uses_them(
    folder: Path, special_cluster: Callable[[ClusterSpec], Sandbox]
) -> None:
    program, box = mailbox(folder)
    (folder / "pynvml.py").write_text(NVML)
    uses = [folder / "idle", folder / "other"]
    for each in uses:
        each.write_text("1")
    cluster = special_cluster(ClusterSpec(nodes=(Node(),), settings={"MailProg": str(program)}))
    user = cluster.researchers[0]
    with daemon_beside(cluster) as daemon:
        daemon.start(SETTINGS)
        idle, other = (
            cluster.sbatch(user, SCRIPT.format(folder=folder, use=use, python=sys.executable)) for use in uses
        )
        cluster.wait(lambda: box.read_text().count(": idle GPUs") >= 2, 240, "mail about both jobs")
        uses[1].write_text("90")
        assert "If they stay so, slurmplug stops the job once it has run on for 00:00:20." in box.read_text()
        cluster.wait_job(idle, "COMPLETED", 120)
        daemon.pass_cycles()
        stop = daemon.operation(idle)
        assert (stop["rule"], stop["result"]) == ("idle GPUs", "stopped")
        cluster.wait(
            lambda: daemon.query("SELECT max(started) - min(at) > 40 AS late FROM cycles, notifications")[0]["late"],
            90,
            "a while after the other job was told",
        )
        assert cluster.job(other)["JobState"] == "RUNNING"
        assert not daemon.operation(other)
