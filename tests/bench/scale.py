"""A whole cycle beside a real slurmctld with 10,000 pending jobs: `make bench-scale`.

Every time is a median of several cycles of one run. The bare cost of a cycle is that of the clients it calls, with the
same questions and the same writes, run by hand in between. The last line gives the figures.
"""

import argparse
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurmplug import registry
from slurmplug.cluster import parse
from slurmplug.cluster.parse import Marks
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.config import Config
from slurmplug.cycle import Scheduler
from slurmplug.cycle_record import CycleRecord
from slurmplug.forecaster import Forecaster
from slurmplug.intake import Intake
from slurmplug.ledger import Ledger
from slurmplug.sandbox import ClusterSpec, Sandbox

THINKS = ("absorb", "forecast", "decide")
WRITES = 40
"""changed in each cycle, as a busy queue's order changes"""


def submitted(cluster: Sandbox, count: int) -> None:
    """So many jobs of several kinds, by two shells that submit one after the other."""
    loop = """
    i={start}
    while [ $i -lt {end} ]; do
        printf '%s\\n' '#!/bin/sh' "#PLUG --max-iterations=90 --type=t$((i % 20)) --urgency=$((i % 10))" 'sleep 3600' |
            sbatch -Q -o /dev/null --job-name=train-$((i % 300)) --gres=gpu:$((1 + i % 4)) --time=$((10 + i % 600))
        i=$((i + 1))
    done >/dev/null
    """
    halves = [(0, count // 2), (count // 2, count)]
    shells = [
        subprocess.Popen(
            ["sh", "-c", loop.format(start=start, end=end)],
            env=cluster.env("root"), cwd=cluster.home("root"),
        )
        for start, end in halves
    ]  # fmt: skip
    if any(shell.wait() for shell in shells):
        raise SystemExit("a job could not be submitted")


def median_seconds(what: Callable[[], object], times: int) -> float:
    """The median time of a call."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


class Bare:
    """The clients that a cycle calls, with nothing around them."""

    def __init__(self, cluster: Sandbox) -> None:
        self._env = cluster.env("root") | {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
        marks = Marks("fAbCdEfG", "rAbCdEfG")
        options = "--local --noheader --noconvert --all".split()
        self._reads = [
            ["squeue", *options, "--array", "--states=all", "-O", marks.format(parse.JOB_FIELDS)],
            ["sinfo", *options, "--Node", "-O", marks.format(parse.NODE_FIELDS)],
            ["scontrol", "--oneliner", "show", "reservations"],
        ]

    def cycle(self, writes: Sequence[str]) -> float:
        """Seconds that the reads and the writes of a cycle take."""
        began = time.perf_counter()
        for command in self._reads:
            subprocess.run(command, env=self._env, stdout=subprocess.PIPE, check=True)
        text = "".join(f"{line}\n" for line in writes).encode()
        subprocess.run(["scontrol"], env=self._env, input=text, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - began


def cycles(scheduler: Scheduler, cluster: Sandbox, times: int) -> tuple[list[CycleRecord], list[float], list[float]]:
    """Some cycles, each followed by its bare cost; before each some labels are forgotten, to be written again."""
    bare = Bare(cluster)
    records, whole, plain = [], [], []
    for _ in range(times):
        began = time.perf_counter()
        record = scheduler.run()
        whole.append(time.perf_counter() - began)
        if record is None:
            raise SystemExit("the cluster could not be read")
        records.append(record)
        lines = [
            f"update JobId={command.job.job_id} SiteFactor={command.fields['SiteFactor']}"
            for command in record.commands
            if "SiteFactor" in command.fields
        ]
        plain.append(bare.cycle(lines))
        some = list(record.snapshot.jobs.keys)[:: max(1, len(record.snapshot.jobs) // WRITES)]
        scheduler.intake.set_labels(dict.fromkeys(some, float("nan")))
    return records, whole, plain


def backfill_depth(cluster: Sandbox, writes: Sequence[str], seconds: float) -> float:
    """The mean number of jobs that backfill tries a cycle, while so many updates are written every two seconds."""
    cluster.run("root", ["sdiag", "--reset"])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        cluster.run("root", ["scontrol"], input="".join(f"{line}\n" for line in writes))
        time.sleep(2.0)
    told = cluster.run("root", ["sdiag"]).stdout
    found = re.search(r"Depth Mean: (\d+)", told)
    return float(found[1]) if found else float("nan")


def main(argv: Sequence[str] | None = None) -> None:
    """Print what each part takes."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--cycles", type=int, default=7)
    options.add_argument("--continue", dest="continued", action="store_true", help="with bf_continue")
    asked = options.parse_args(argv)
    depth = ("bf_max_job_test=2000", "bf_yield_interval=200000", "bf_yield_sleep=100000", "bf_interval=5")
    spec = ClusterSpec(
        settings={"MaxJobCount": str(asked.jobs + 1000)},
        scheduler=(*depth, *(["bf_continue"] if asked.continued else [])),
    )
    with Sandbox(spec) as cluster, tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        submitted(cluster, asked.jobs)
        print(f"{asked.jobs} jobs submitted in {time.perf_counter() - began:.0f} s", flush=True)
        scheduler = _scheduler(cluster, Path(folder))
        for _ in range(asked.jobs // 500 + 2):  # scripts are read some hundred a cycle
            scheduler.run()
        records, whole, plain = cycles(scheduler, cluster, asked.cycles)
        read, think = (
            statistics.median(sum(record.seconds[name] for name in names) for record in records)
            for names in (("read",), THINKS)
        )
        ratio = statistics.median(a / b for a, b in zip(whole, plain, strict=True))
        commands = statistics.median(len(record.commands) for record in records)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pending = [key.job_id for key in records[-1].snapshot.jobs.keys][-WRITES:]
        quiet = backfill_depth(cluster, [], 30)
        busy = backfill_depth(cluster, [f"update JobId={job_id} SiteFactor=1" for job_id in pending], 30)
    print(
        f"jobs {asked.jobs}, read {read:.2f} s, decide {think:.2f} s, together {read + think:.2f} s, "
        f"cycle {statistics.median(whole):.2f} s with {commands:.0f} writes, {ratio:.2f} times its clients, "
        f"memory {memory:.0f} MB, backfill depth {quiet:.0f}, with {WRITES} writes every 2 s {busy:.0f}, "
        f"bf_continue {'on' if asked.continued else 'off'}"
    )


def _scheduler(cluster: Sandbox, folder: Path) -> Scheduler:
    config = Config.model_validate(
        {
            "mode": {"default": "act"},
            "slurm": {"conf": str(cluster.env("root")["SLURM_CONF"])},
            "spool": {"path": str(cluster.spool)},
            "guardrails": {"writes_per_cycle": 20_000},
        }
    )
    ledger = Ledger(folder / "ledger.db")
    forecaster = Forecaster()
    forecaster.get_ready()
    return Scheduler(SlurmCluster(config), Intake(), forecaster, registry.policy(config), ledger, config)


if __name__ == "__main__":
    main(sys.argv[1:])
