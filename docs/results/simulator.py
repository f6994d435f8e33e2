"""Tables on the simulator itself: what others publish, and how long it and its decisions take."""

from dataclasses import replace
from functools import partial

import numpy as np

from docs.measure_speed import decisions, repeated
from docs.results.cases import DATA, POLLUX, Case, Runs, jobs_of, pollux, run
from docs.results.cells import markdown


def parity(runs: Runs) -> str:
    """Tiresias and Optimus beside what Pollux's own simulator gives."""
    published = np.genfromtxt(
        f"{DATA}/workloads/pollux_fig8a_jct.csv", delimiter=",", names=True, dtype=None, encoding="utf-8"
    )
    rows = []
    for name in ("tiresias", "optimus"):
        for folder, relative in (("-0.5", 0.5), ("", 1.0), ("-1.5", 1.5), ("-2.0", 2.0)):
            ours = runs.column(pollux(folder, name), "jct_mean")
            chosen = (published["policy"] == name) & (published["relative_load"] == relative)
            by_workload = dict(zip(published["workload"][chosen], published["avg_jct_s"][chosen], strict=True))
            theirs = np.array([by_workload[each] for each in POLLUX])
            each = ", ".join(f"{100 * (a / b - 1):+.1f}" for a, b in zip(ours, theirs, strict=True))
            mean = f"{100 * (ours.mean() / theirs.mean() - 1):+.1f}%"
            rows.append([name, f"{relative:g}", f"{ours.mean():,.0f}", f"{theirs.mean():,.0f}", mean, each])
    return markdown(["policy", "load", "ours, s", "Pollux', s", "in the mean", "each, %"], rows)


def speed() -> str:
    """How long simulations take, one at a time."""
    philly, one = Case(f"philly:{DATA}/traces/philly_jobs.csv.gz", "fifo", "309x8"), pollux()[0]
    goals = {
        philly: "60",
        replace(philly, policy="mlfs"): "180",
        one: "1",
        replace(one, policy="optimus"): "1",
        replace(one, policy="mlfs"): "",
    }
    rows = []
    for case, goal in goals.items():
        jobs_of(case.workload, case.seed, case.load, case.jobs)  # read before the clock starts
        figures, seconds, processor = repeated(partial(run, case))
        name = case.workload.rpartition("/")[2]
        decide_ms = f"{figures['decide_ms_mean']:.2f}"
        jobs = f"{figures['jobs']:,}"
        rows.append([name, case.policy, jobs, goal, f"{seconds:.1f}", f"{processor:.1f}", decide_ms])
    head = ["workload", "policy", "jobs", "at most, s", "seconds", "of the processor", "decide, ms"]
    return markdown(head, rows)


GOALS = {
    "mlfs: 1860 jobs-mlf-h": "5",
    "mlfs: 10000 jobs-mlf-h": "50",
    "mlfs: 100000 jobs-mlf-h": "600",
    "slaq: slaq": "50",
    "oasis: alike servers joined": "10",
    "oasis: each server": "10",
}


def decide() -> str:
    """How long decisions take, those of `make bench`."""
    rows = [[name, GOALS.get(name, ""), f"{milliseconds:.1f}"] for name, milliseconds in decisions()]
    return markdown(["decision", "at most, ms", "of the processor, ms"], rows)
