"""A whole cycle, and the reports, beside a real slurmctld with 10,000 pending jobs: `make bench-scale`.

Every time is a median of several cycles of one run. The bare cost of a cycle is that of the clients it calls, with the
same questions and as many writes, run by hand before it. Before each, slurmctld has time to do what the writes before
set off, as it has where a cycle comes once a minute, and not always the same, so that none keeps step with backfill.
The last line gives the figures. With `--single N`, N of the jobs are single ones, and the others elements of arrays of
1,000, which are submitted faster: `--jobs 100000 --single 30000`. Scripts, which are read beside the cycles, are not
read, but made up. With `--made-up`, what squeue and sinfo would answer
is made up, and takes next to no time.
"""

import argparse
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.snapshot import JobKey
from slurmplug.cluster import parse, scripts
from slurmplug.cluster.parse import Separators
from slurmplug.cluster.port import Command
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.intake.intake import Intake
from slurmplug.ledger.ledger import Ledger
from slurmplug.processes import background
from slurmplug.sandbox import ClusterSpec, Sandbox
from slurmplug.sandbox.render import SCHEDULER
from tests.bench.made_up_slurm import SCRIPT, MadeUpClient, script

THINKS = ("absorb", "forecast", "decide")
ARRAY = 1_000
"""elements of an array"""
REPORTS = ("queue", "queue --me", "prio", "acct -S now-1hours", "why {job}")
WRITES = (40, 500)
"""changed in a cycle: as a busy queue's order changes, and as many as `writes_per_cycle` allows"""
ALL = 10_000
"""up to so many jobs, all are written, too"""
REST = (4.0, 9.0)
"""seconds, at least and at most, that a slurmctld is left alone; it schedules anew up to 3 s after priorities change"""
CONTINUE = "bf_continue"
BUSY = 40
"""written every two seconds while backfill is looked at"""
BACKFILL = (
    ("no writes", 0, 2.0),
    ("40 every 2 s", 40, 2.0),
    ("200 every 10 s", 200, 10.0),
    ("600 every 30 s", 600, 30.0),
)
"""ways to write: their name, how many at once, every so many seconds"""


def submitted(cluster: Sandbox, count: int, single: int | None = None) -> None:
    """So many jobs of several kinds, by two shells that submit one after the other; all but `single`, in arrays."""
    loop = """
    i={start}
    while [ $i -lt {end} ]; do
        echo "{script}" |
            sbatch -Q {more} --job-name=train-$((i % 300)) --gres=gpu:$((1 + i % 4)) --time=$((10 + i % 600))
        i=$((i + 1))
    done >/dev/null
    """
    alone = count if single is None else single
    arrays = (count - alone) // ARRAY
    whole = f"--array=0-{ARRAY - 1}"
    parts = [(0, alone // 2, ""), (alone // 2, alone, ""), (0, arrays // 2, whole), (arrays // 2, arrays, whole)]
    for pair in (parts[:2], parts[2:]):
        shells = [
            subprocess.Popen(
                ["sh", "-c", loop.format(start=start, end=end, more=more, script=SCRIPT)],
                env=cluster.env("root"), cwd=cluster.home("root"),
            )
            for start, end, more in pair
        ]  # fmt: skip
        ended = [shell.wait() for shell in shells]
        if any(ended):
            raise SystemExit("a job could not be submitted")


class Bare:
    """The clients that a cycle calls, with nothing around them."""

    def __init__(self, cluster: Sandbox) -> None:
        self._env = cluster.env("root") | {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
        separators = Separators("fAbCdEfG", "rAbCdEfG")
        options = "--local --noheader --noconvert --all".split()
        self._reads = [
            ["squeue", *options, "--array", "--states=all", "-O", separators.format(parse.JOB_FIELDS)],
            ["sinfo", *options, "--Node", "-O", separators.format(parse.NODE_FIELDS)],
            ["scontrol", "--oneliner", "show", "reservations"],
            ["scontrol", "show", "config"],
        ]

    def cycle(self, writes: Sequence[str]) -> float:
        """Seconds that the reads and the writes of a cycle take."""
        began = time.perf_counter()
        for command in self._reads:
            subprocess.run(command, env=self._env, stdout=subprocess.PIPE, check=True, start_new_session=True)
        text = "".join(f"{line}\n" for line in writes).encode()
        subprocess.run(
            ["scontrol"], env=self._env, input=text, stdout=subprocess.DEVNULL, check=False, start_new_session=True
        )  # each in a session of its own, as a cycle's are: the kernel divides a busy machine between sessions; it
        # exits 1 where a job has ended meanwhile
        return time.perf_counter() - began


@dataclass
class Cycles:
    """What some cycles took, in seconds, each beside its bare cost."""

    read: list[float] = field(default_factory=list)
    think: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    """of the CPU, without the clients: what a busy machine changes least"""
    bare: list[float] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)

    def figures(self) -> str:
        """In one line."""
        read, think, whole = (statistics.median(each) for each in (self.read, self.think, self.whole))
        line = f"{statistics.median(self.writes):.0f} writes: read {read:.2f} s, decide {think:.2f} s, "
        line += f"together {read + think:.2f} s, cycle {whole:.2f} s ({statistics.median(self.own):.2f} s of the CPU)"
        if not self.bare:
            return line
        ratio = statistics.median(a / b for a, b in zip(self.whole, self.bare, strict=True))
        return f"{line}, its clients {statistics.median(self.bare):.2f} s, {ratio:.2f} times"


def cycles(scheduler: Scheduler, writes: int, times: int, slurm: Bare | MadeUpClient) -> Cycles:
    """Some cycles, each after its bare cost, whose writes exchange so many labels, which the cycle writes again.

    In a Slurm that is made up, the labels are exchanged at no cost.
    """
    found = Cycles()
    for _ in range(times):
        labels = exchanged(scheduler, writes)
        if isinstance(slurm, MadeUpClient):
            slurm.set_site_factors({job.job_id: int(value) for job, value in labels.items()})
        else:
            rest()
            found.bare.append(slurm.cycle([label(scheduler, job, value) for job, value in labels.items()]))
            rest()
        scheduler.intake.set_site_factors(labels)
        began, used = time.perf_counter(), time.process_time()
        record = scheduler.run()
        found.whole.append(time.perf_counter() - began)
        found.own.append(time.process_time() - used)
        if record is None:
            raise SystemExit("the cluster could not be read")
        found.read.append(record.seconds["read"])
        found.think.append(sum(record.seconds[name] for name in THINKS))
        found.writes.append(len(record.commands))
    return found


def rest() -> None:
    """Leave slurmctld alone for some time."""
    time.sleep(random.uniform(*REST))


def reports(cluster: Sandbox, folder: Path, job: int) -> str:
    """What each report takes beside the ledger, the median of three: seconds, and of those of the processor."""
    config, found = folder / "slurmplug.toml", []
    config.write_text(f'spool.path = "{cluster.spool}"\nledger.path = "{folder}/ledger.db"\n')
    env = {**cluster.env("root"), "SLURMPLUG_CONFIG": str(config)}
    for report in REPORTS:
        command = [str(Path(sys.executable).with_name("slurmplug")), *report.format(job=job).split()]
        taken = []
        for _ in range(3):
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            taken.append((time.perf_counter() - began, used))
        seconds, used = (statistics.median(each) for each in zip(*taken, strict=True))
        found.append(f"{report.split('{')[0].strip()} {seconds:.2f} s ({used:.2f} s of the CPU)")
    return ", ".join(found)


def exchanged(scheduler: Scheduler, count: int) -> Mapping[JobKey, float]:
    """The labels of about so many jobs, each with another's."""
    labels: Mapping[JobKey, float] = scheduler.ledger.site_factors()  # type: ignore[attr-defined]
    some = list(labels)[:: max(1, len(labels) // count)]
    return dict(zip(some, (labels[key] for key in [*some[1:], *some[:1]]), strict=True))


def label(scheduler: Scheduler, job: JobKey, value: float) -> str:
    """The line for scontrol that sets a job's label."""
    command = Command("", "update", job, {"SiteFactor": f"{value:.0f}"})
    address = scheduler.port._address(command)  # type: ignore[attr-defined]
    return f"update JobId={address} SiteFactor={value:.0f}"


def backfill_depth(cluster: Sandbox, writes: Sequence[str], seconds: float, every: float = 2.0) -> float:
    """The mean number of jobs that backfill tries a cycle, while these updates are written at once, every so many
    seconds."""
    cluster.run("root", ["sdiag", "--reset"])
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        cluster.run("root", ["scontrol"], input="".join(f"{line}\n" for line in writes))
        time.sleep(max(0.0, min(every, until - now)))
    result = cluster.run("root", ["sdiag"]).stdout
    found = re.search(r"Depth Mean: (\d+)", result)
    return float(found[1]) if found else float("nan")


def made_up(jobs: int, times: int) -> str:
    """The figures of a queue that is made up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "reports").mkdir()
        (folder / "requests").mkdir()
        client = MadeUpClient(jobs)
        scheduler = made_up_scheduler(folder, client)
        for _ in range(2):
            scheduler.run()
        return cycles(scheduler, WRITES[0], times, client).figures()


def made_up_scheduler(folder: Path, client: MadeUpClient) -> Scheduler:
    """The scheduler of a queue that is made up, with the spool and the ledger in a folder."""
    scheduler = _scheduler(folder, None, folder)
    port: Any = scheduler.port
    port._client = port._scripts._client = port._accounting._client = client
    _read_all_scripts_at_once()
    return scheduler


def short_yields(jobs: int, seconds: float) -> str:
    """How many jobs backfill tries where it yields after 2 ms, by how the same updates a second are written."""
    words = ("bf_max_job_test=2000", "bf_yield_interval=2000", "bf_yield_sleep=50000", "bf_max_time=60")
    parameters = ",".join([*(word for word in SCHEDULER if word != CONTINUE), *words])
    found = {}
    with Sandbox(ClusterSpec(settings={"SchedulerParameters": parameters})) as cluster:
        submitted(cluster, jobs)
        listed = cluster.run("root", ["squeue", "-h", "-t", "PD", "-o", "%A"]).stdout.split()
        for name, count, every in BACKFILL:
            writes = [f"update JobId={job_id} SiteFactor={number}" for number, job_id in enumerate(listed[-count:])]
            found[name] = backfill_depth(cluster, writes if count else [], seconds, every)
            print(f"{name}: {found[name]:.0f}", flush=True)
        conf = cluster.layout.slurm_conf
        conf.write_text(conf.read_text().replace(parameters, f"{parameters},{CONTINUE}"))
        cluster.run("root", ["scontrol", "reconfigure"])
        name, count, every = BACKFILL[1]
        writes = [f"update JobId={job_id} SiteFactor={number}" for number, job_id in enumerate(listed[-count:])]
        found[f"{name}, bf_continue"] = backfill_depth(cluster, writes, seconds, every)
    return f"{len(listed)} jobs; " + "; ".join(f"{name}: {depth:.0f}" for name, depth in found.items())


def main(argv: Sequence[str] | None = None) -> None:
    """Print what each part takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--single", type=int, help="of the jobs; the others are in arrays")
    parser.add_argument("--cycles", type=int, default=7)
    parser.add_argument("--made-up", action="store_true", help="what the clients answer is made up")
    parser.add_argument("--short-yields", action="store_true", help="what writes cost backfill that yields often")
    options = parser.parse_args(argv)
    if options.short_yields:
        print(short_yields(options.jobs, 40.0))
        return
    if options.made_up:
        print(f"{options.jobs} jobs, made up; {made_up(options.jobs, options.cycles)}, {_memory()}")
        return
    depth = ("bf_max_job_test=2000", "bf_yield_interval=200000", "bf_yield_sleep=100000", "bf_interval=5")
    scheduler_parameters = ",".join([*(word for word in SCHEDULER if word != CONTINUE), *depth, "defer"])
    spec = ClusterSpec(settings={"MaxJobCount": str(options.jobs + 1000), "SchedulerParameters": scheduler_parameters})
    with Sandbox(spec) as cluster, tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        submitted(cluster, options.jobs, options.single)
        print(f"{options.jobs} jobs submitted in {time.perf_counter() - began:.0f} s", flush=True)
        scheduler = _scheduler(cluster.spool, cluster.env("root")["SLURM_CONF"], Path(folder))
        port: Any = scheduler.port
        port._scripts._client.script = script
        _read_all_scripts_at_once()
        for _ in range(2):
            scheduler.run()
        print(f"known after {time.perf_counter() - began:.0f} s", flush=True)
        bare = Bare(cluster)
        found = [cycles(scheduler, count, options.cycles, bare) for count in WRITES]
        if options.jobs <= ALL:
            found.append(cycles(scheduler, options.jobs, 1, bare))
        for each in found:
            print(each.figures(), flush=True)
        print(reports(cluster, Path(folder), max(scheduler.intake.alive)), flush=True)
        pending = list(scheduler.intake.alive)[-BUSY:]
        writes = [f"update JobId={job_id} SiteFactor=1" for job_id in pending]
        depths = [backfill_depth(cluster, some, 30) for some in ([], writes)]
        conf = cluster.layout.slurm_conf
        conf.write_text(conf.read_text().replace(scheduler_parameters, f"{scheduler_parameters},{CONTINUE}"))
        cluster.run("root", ["scontrol", "reconfigure"])
        depths += [backfill_depth(cluster, some, 30) for some in ([], writes)]
    quiet, busy, quiet_on, busy_on = depths
    figures = "; ".join(each.figures() for each in found)
    print(
        f"{options.jobs} jobs; {figures}; {_memory()}; backfill tries {quiet:.0f} jobs a cycle, "
        f"with {BUSY} writes every 2 s {busy:.0f}, with bf_continue {quiet_on:.0f} and {busy_on:.0f}"
    )


def _read_all_scripts_at_once() -> None:
    background.WAIT = scripts.FIRST_SECONDS = scripts.MOST_SECONDS = 3_600.0


def _memory() -> str:
    return f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"


def _scheduler(spool: Path, conf: str | None, folder: Path) -> Scheduler:
    config = Config.from_table(
        {
            "mode": {"default": "act"},
            "slurm": {"conf": conf},
            "spool": {"path": str(spool)},
            "guardrails": {"writes_per_cycle": 200_000},
        }
    )
    ledger = Ledger(folder / "ledger.db")
    forecaster = Forecaster()
    forecaster.get_ready()
    return Scheduler(SlurmCluster(config), Intake(), forecaster, policy_registry.policy(config), ledger, config)


if __name__ == "__main__":
    main(sys.argv[1:])
