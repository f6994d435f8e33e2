"""Two hours of the daemon beside a busy cluster, a cycle a second, and whether what it takes stays level: `make soak`.

Sampled: the resident memory and the descriptors of the daemon and of each of its processes, the ledger with its
write-ahead log, and the daemon's own log. After `SETTLED`, the slope of each has to be below its bound of `BOUNDS`, and
so has the upper end of the slope's 95% interval. A day of the ledger's retention lasts `DAY` seconds here, so that what
it deletes after days is deleted many times. The last lines of the output give the slopes; FOLDER gets `soak.json`, with
all samples, and `soak.svg`.
"""

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from scipy import stats

from slurmplug.sandbox import ClusterSpec, Sandbox
from slurmplug.sandbox.errors import CommandFailed
from tests.live.daemon_process import SLURMPLUG, DaemonProcess, daemon_beside
from tests.live.login_node import LoginNode

ALIVE = 40
"""jobs that wait or run at any time"""
SUBMIT, SAMPLE, ASK = 6.0, 10.0, 60.0
"""seconds from one submission, one sample and one user's question to the next"""
SETTLED = 20 * 60.0
BLOCK = 300.0
"""seconds whose samples are one point of a slope: successive samples are not independent of each other"""
DAY = 300.0
MIB = 1_048_576
BOUNDS = {"memory": 4 * MIB, "descriptors": 1.0, "ledger": MIB, "log": MIB / 4}
"""by which each may grow an hour; the log is one of events, and has no line for each cycle"""
DAEMON = f"""
import logging, sys
from pathlib import Path
from slurmplug.daemon import daemon
from slurmplug.ledger import budgets, ledger
daemon.DAY = ledger.DAY = budgets.INPUTS_IN_FULL = {DAY}
daemon.HOUR = {DAY} / 24
daemon.KEEP_REPORTS = budgets.CYCLES_IN_FULL = budgets.COMMANDS_KEPT = 2 * {DAY}
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
daemon.serve(Path(sys.argv[-1]))
"""
RETENTION = "keep_days = 2\nkeep_inputs_days = 1\n"
JOB = """#!/bin/sh
#SBATCH --job-name={name} --gres=gpu:{gpus} --time=10 --mem=10 --output=/dev/null {options}
{lines}
exec {python} -c '
import time
from slurmplug import report
for i in range(1, {iterations} + 1):
    time.sleep({seconds})
    if report(iteration=i, loss=1 / i, accuracy=1 - 1 / (1 + i)) or {fails} and i == 9:
        raise SystemExit({fails})
'
"""
SORTS: Sequence[Mapping[str, Any]] = (
    {"lines": "#PLUG --target=accuracy>=0.93 --stop=target"},
    {"lines": "#PLUG --max-iterations=40 --urgency=7 --deadline=10m", "gpus": 2},
    {"lines": "#PLUG --target=accuracy>=0.9 --stop=iterations --allow-downgrade=target", "gpus": 4},
    {"lines": "", "iterations": 10},
    {"lines": "#PLUG --type=swept", "options": "--array=0-2", "iterations": 12},
    {"lines": "#PLUG --max-iterations=12", "fails": 1},
    {"lines": "#PLUG --urgency=many --nonsense"},
)


class Slope(NamedTuple):
    """Of what grows, an hour, with its 95% interval."""

    value: float
    low: float
    high: float


def job(number: int, draw: random.Random) -> str:
    """A batch script of a user who has submitted so many before."""
    values = {"gpus": 1, "options": "", "iterations": 30, "fails": 0, **SORTS[number % len(SORTS)]}
    seconds = round(draw.uniform(2.0, 5.0), 1)
    return JOB.format(name=f"soak{number % 20}", seconds=seconds, python=sys.executable, **values)


def sample(daemon: DaemonProcess) -> Iterator[tuple[str, float]]:
    """What is measured, each with its name: a word of `BOUNDS`, and of which process."""
    assert daemon.process is not None
    first = psutil.Process(daemon.process.pid)
    for process in [first, *first.children(recursive=True)]:
        with suppress(psutil.Error):
            arguments = process.cmdline()
            if not arguments or Path(arguments[0]).name != Path(sys.executable).name:
                continue  # a command of Slurm
            name = "daemon" if process.pid == first.pid else arguments[-1]
            yield f"memory {name}", process.memory_info().rss
            yield f"descriptors {name}", process.num_fds()
    files = daemon.ledger_path.parent.glob(f"{daemon.ledger_path.name}*")
    yield "ledger", sum(path.stat().st_size for path in files)
    yield "log", daemon.log.stat().st_size


def live(daemon: DaemonProcess, login: Path, seconds: float, draw: random.Random, out: Path) -> list[dict[str, float]]:
    """Keep the cluster busy for so long; the samples, which are also written as they come."""
    cluster, samples = daemon.cluster, []
    began = submit = measure = ask = time.monotonic()
    jobs = 0
    while (now := time.monotonic()) < began + seconds:
        assert daemon.process is not None
        if daemon.process.poll() is not None:
            raise SystemExit(f"the daemon ended by itself:\n{daemon.log.read_text()[-3000:]}")
        user = cluster.researchers[jobs % len(cluster.researchers)]
        if now >= submit:
            submit += SUBMIT
            alive = cluster.run("root", ["squeue", "-h", "-r", "-o", "%A"]).stdout.split()
            if len(alive) < ALIVE:
                cluster.sbatch(user, job(jobs, draw))
                jobs += 1
            elif draw.random() < 0.3:
                cluster.run("root", ["scancel", "--quiet", draw.choice(alive)], check=False)
        if now >= ask:
            ask += ASK
            which = draw.choice((["queue"], ["acct"], ["prio"]))
            with suppress(CommandFailed):
                cluster.run(user, [SLURMPLUG, *which], env={"SLURMPLUG_CONFIG": str(login)})
        if now >= measure:
            measure += SAMPLE
            samples.append({"seconds": now - began, "jobs": jobs, "cycles": daemon.cycles(), **dict(sample(daemon))})
            out.with_suffix(".new").write_text(json.dumps(samples))
            out.with_suffix(".new").replace(out)
        time.sleep(0.5)
    return samples


def measured(samples: Sequence[Mapping[str, float]]) -> list[str]:
    """What is in most samples: not a process that has just been forked to become a command of Slurm."""
    counts = Counter(name for each in samples for name in each)
    return sorted(name for name, count in counts.items() if name.split()[0] in BOUNDS and 2 * count > len(samples))


def slopes(samples: Sequence[Mapping[str, float]], settled: float = SETTLED) -> dict[str, Slope]:
    """By how much each grows an hour once it has settled (Theil and Sen, of the means of the blocks)."""
    found = {}
    for name in measured(samples):
        at, values = np.array([(each["seconds"], each[name]) for each in samples if name in each]).T
        blocks = [
            (at[inside].mean() / 3600, values[inside].mean())
            for start in np.arange(settled, at[-1] - BLOCK / 2, BLOCK)
            if (inside := (at >= start) & (at < start + BLOCK)).any()
        ]
        if len(blocks) >= 3:
            hours, means = np.array(blocks).T
            value, _, low, high = stats.theilslopes(means, hours)
            found[name] = Slope(float(value), float(low), float(high))
    return found


def verdicts(found: Mapping[str, Slope]) -> tuple[list[str], bool]:
    """A line for each slope, and whether all are within their bounds."""
    lines, well = [], bool(found)
    for name, slope in found.items():
        bound = BOUNDS[name.split()[0]]
        within = slope.high <= bound
        well &= within
        scale, unit = (1.0, "") if name.startswith("descriptors") else (1024.0, " KiB")
        value, low, high, most = (each / scale for each in (*slope, bound))
        line = f"{name}: {value:+.2f}{unit} an hour (95%: {low:+.2f} to {high:+.2f}; bound {most:g})"
        lines.append(line if within else f"{line}: NOT LEVEL")
    return lines, well


def plot(samples: Sequence[Mapping[str, float]], path: Path) -> None:
    """Every sample, with what is not judged shaded."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 6), sharex=True, layout="constrained")
    titles = {"memory": "memory (MiB)", "descriptors": "descriptors", "ledger": "ledger (MiB)", "log": "log (KiB)"}
    scales = {"memory": MIB, "descriptors": 1, "ledger": MIB, "log": 1024}
    for axis, (word, title) in zip(axes.flat, titles.items(), strict=True):
        for name in measured(samples):
            if name.split()[0] == word:
                points = [(each["seconds"] / 60, each[name] / scales[word]) for each in samples if name in each]
                axis.plot(*zip(*points, strict=True), linewidth=1, label=name.removeprefix(word).strip() or None)
        axis.axvspan(0, SETTLED / 60, color="0.93", zorder=0)
        axis.set_title(title, fontsize=10)
        axis.set_ylim(bottom=0)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("minutes")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def run(cluster: Sandbox, seconds: float, seed: int, out: Path) -> list[dict[str, float]]:
    """The daemon beside the cluster for so long."""
    with daemon_beside(cluster) as daemon:
        login = LoginNode(cluster)
        daemon.program = (sys.executable, "-c", DAEMON)
        daemon.start(RETENTION + login.listen)  # the first lines go on with [ledger]
        samples = live(daemon, login.config, seconds, random.Random(seed), out / "soak.json")
        (out / "daemon.log").write_text(daemon.log.read_text())
        assert daemon.signal(signal.SIGTERM) == 0
    return samples


def main(argv: Sequence[str] | None = None) -> None:
    """Run, or show what an earlier run gave so far."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/soak"), metavar="FOLDER")
    parser.add_argument("--show", action="store_true", help="judge and draw the samples that FOLDER has")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.show:
        samples = json.loads((options.out / "soak.json").read_text())
    else:
        with Sandbox(ClusterSpec()) as cluster:
            samples = run(cluster, options.minutes * 60, options.seed, options.out)
    plot(samples, options.out / "soak.svg")
    lines, well = verdicts(slopes(samples))
    last = samples[-1]
    print("\n".join([*lines, f"{last['seconds'] / 60:.0f} minutes, {last['cycles']} cycles, {last['jobs']} jobs"]))
    sys.exit(not well)


if __name__ == "__main__":
    main(sys.argv[1:])
