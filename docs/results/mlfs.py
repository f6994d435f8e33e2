"""Tables on the workload of MLFS (CoNEXT 2020), and what each part of MLFS is worth."""

from collections.abc import Mapping, Sequence

import numpy as np

from docs.results.cases import RIGID, SLAQ, Case, Runs, Setting, Settings, over
from docs.results.cells import change, markdown, percent, points, span
from docs.results.plots import Lines, panels

CLUSTER = "20x4"
SEEDS = (20, 21, 22)
"""on which nothing was developed or chosen"""
INTERVAL = 300.0
"""Seconds between decisions: each minute takes three times as long, and the order of the policies is the same."""
LOADS = {"1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0, "3": 3.0}
"""x of the generator, 620 x jobs"""
ALL = "fifo drf sjf tetris gittins gandiva graphene rrh ml-sjf".split()
"""at the least x only, beside `RIVALS`. Dorm is not among them: a mixed-integer programme of hundreds of jobs each
minute takes hours."""
RIVALS: Mapping[str, Settings] = {"fair": (), "srtf": (), "tiresias": (), "optimus": (), "slaq": SLAQ, "hypersched": ()}
OURS: Mapping[str, tuple[str, Settings]] = {
    "mlf-h, rigid": ("mlf-h", RIGID),
    "mlfs, rigid": ("mlfs", RIGID),
    "mlf-h": ("mlf-h", ()),
    "mlfs": ("mlfs", ()),
}
STOPPED = ("fair", "srtf", "tiresias", "optimus", "slaq")
"""the rivals that are also run with the same stopping"""
SAME = "{}, same stopping"

PANELS: Mapping[str, tuple[str, float]] = {
    "mean JCT, min (4b, 5b)": ("jct_mean", 60),
    "deadlines met, % (4c, 5c)": ("deadline_ratio", 0.01),
    "mean wait, min (4d, 5d)": ("wait_mean", 60),
    "accuracy by deadline (4e, 5e)": ("accuracy_by_deadline", 1),
    "targets met by deadline, % (4f, 5f)": ("accuracy_ratio", 0.01),
    "bandwidth, TB (4g, 5g)": ("bandwidth_bytes", 1e12),
    "makespan, h": ("makespan", 3600),
}
"""figures of a run as in the paper's figures 4 and 5, and what they are divided by"""


def base(x: str, seeds: Sequence[int] = SEEDS) -> list[Case]:
    """Tiresias on the workload at x."""
    return [Case(f"gen:mlfs?x={x}", "tiresias", CLUSTER, seed, interval=INTERVAL) for seed in seeds]


def entrants(x: str) -> dict[str, list[Case]]:
    """The runs at x, by the policy's label."""
    cases = base(x, SEEDS if LOADS[x] < 1 else SEEDS[:1])
    there = {name: over(cases, policy=name, settings=how) for name, how in RIVALS.items()}
    there |= {name: over(cases, policy=name) for name in (ALL if x == "1/4" else ())}
    there |= {SAME.format(name): over(there[name], stopping=True) for name in STOPPED}
    return there | {label: over(cases, policy=name, settings=how) for label, (name, how) in OURS.items()}


def gen_mlfs(runs: Runs) -> str:
    """Every policy on the workload of MLFS, without and with the same stopping."""
    compared = {x: entrants(x) for x in LOADS}
    runs.of(case for there in reversed(compared.values()) for cases in there.values() for case in cases)
    rows = []
    for x, there in compared.items():
        reference = runs.column(there["tiresias"], "jct_mean")
        for label, cases in there.items():
            jct = runs.column(cases, "jct_mean")
            rows.append(
                [x, label, span(jct / 60), change(jct, reference)]
                + [percent(runs.column(cases, name)) for name in ("deadline_ratio", "accuracy_ratio")]
                + [f"{runs.column(cases, 'accuracy_by_deadline').mean():.3f}"]
                + [span(runs.column(cases, "wait_mean") / 60), f"{runs.column(cases, 'makespan').mean() / 3600:.0f}"]
                + [f"{runs.column(cases, 'bandwidth_bytes').mean() / 1e12:,.0f}"]
            )
    _draw(runs, compared)
    head = ["x", "policy", "mean JCT, min", "against Tiresias", "deadlines met", "targets met", "accuracy by deadline"]
    return markdown([*head, "mean wait, min", "makespan, h", "bandwidth, TB"], rows)


def _draw(runs: Runs, compared: Mapping[str, Mapping[str, list[Case]]]) -> None:
    """Figures 4 and 5 of the paper: as it has them, MLFS beside rivals that stop nobody; and all with its stopping."""
    ours = ("mlf-h, rigid", "mlfs, rigid", "mlfs")
    for name, labels in (
        ("gen-mlfs", (*RIVALS, *ours)),
        ("gen-mlfs-stopping", (*map(SAME.format, STOPPED), "mlfs, rigid", "mlfs")),
    ):
        drawn: dict[str, Lines] = {
            "CDF of JCT at x = 2, by minutes (4a, 5a)": _distribution(runs, compared["2"], labels)
        }
        for title, (figure, unit) in PANELS.items():
            drawn[title] = {
                label: (list(LOADS.values()), [runs.column(compared[x][label], figure).mean() / unit for x in LOADS])
                for label in labels
            }
        panels(name, drawn)


def _distribution(runs: Runs, there: Mapping[str, list[Case]], labels: Sequence[str]) -> Lines:
    """The share of the jobs of all seeds that take at most so many minutes."""
    minutes = np.linspace(0, 300, 61)
    lines = {}
    for label in labels:
        jct = np.concatenate([figures["jct"] for figures in runs.of(there[label])])
        lines[label] = (minutes.tolist(), [float((jct <= 60 * each).mean()) for each in minutes])
    return lines


def ablations(runs: Runs) -> str:
    """What each part of MLFS is worth on its own workload, in parts and not elastic: figures 6 to 9 of the paper."""
    compared = []
    for x, part, setting, figure in ABLATIONS:
        cases = [
            Case(
                f"gen:mlfs?x={x}&partitions=on&elastic=off",
                "mlf-h",
                CLUSTER,
                seed,
                interval=INTERVAL,
                settings=RIGID,
            )
            for seed in SEEDS
        ]
        without = over(cases, settings=(*RIGID, setting)) if setting else cases
        compared.append((x, part, figure, cases if setting else over(cases, policy="mlfs"), without))
    runs.of(case for *_, whole, without in compared for case in (*whole, *without))  # side by side
    rows = []
    for x, part, figure, whole, without in compared:
        values, reference = runs.column(whole, figure), runs.column(without, figure)
        if figure in SCALES:
            scale, unit = SCALES[figure]
            before, gain = f"{reference.mean() / scale:,.0f} {unit}", change(values, reference)
        else:
            before, gain = percent(reference), points(values, reference)
        rows.append([x, part, figure.replace("_", " "), before, gain])
    return markdown(["x", "part", "figure", "without it", "with it against without"], rows)


ABLATIONS: Sequence[tuple[str, str, Setting | None, str]] = (
    ("1", "urgency", ("use_urgency", False), "urgent_deadline_ratio"),
    ("1", "deadline term", ("use_deadline", False), "deadline_ratio"),
    ("1", "bandwidth in placement", ("use_bandwidth", False), "jct_mean"),
    ("1", "bandwidth in placement", ("use_bandwidth", False), "bandwidth_bytes"),
    ("1", "migration", ("migrate", False), "overload_s"),
    ("1", "migration", ("migrate", False), "bandwidth_bytes"),
    ("1", "migration", ("migrate", False), "accuracy_by_deadline"),
    ("1", "migration", ("migrate", False), "jct_mean"),
    ("1", "MLF-C", None, "overload_s"),
    ("1", "MLF-C", None, "bandwidth_bytes"),
    ("1", "MLF-C", None, "accuracy_by_deadline"),
    ("1", "MLF-C", None, "jct_mean"),
)
"""MLF-H at each x, with all and without one of its parts; MLFS against it for MLF-C"""
SCALES = {"bandwidth_bytes": (1e12, "TB"), "jct_mean": (60, "min"), "overload_s": (3600, "h")}
