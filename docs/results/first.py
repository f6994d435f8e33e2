"""Who is first: mean JCT by workload and load, ours and rivals alike in speeds, stopping and epsilon."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from docs.results import mlfs
from docs.results.cases import BYPASS, DATA, POLLUX, RIGID, SLAQ, Case, Runs, Settings, ideal, over, pollux
from docs.results.cells import change, markdown, percent, span
from docs.results.plots import Lines, panels

OURS = "mlfs"
RIVALS: Mapping[str, Settings] = {"fair": (), "srtf": (), "tiresias": (), "optimus": (), "slaq": SLAQ, "hypersched": ()}
"""srtf is told the true run times"""
GUARANTEE: Settings = (("guarantee", True),)
LOADS = ("1/4", "1/2", "1", "2", "3")
"""x of MLFS' workload"""
POLLUX_LOADS = {"0.5": "-0.5", "1": "", "1.5": "-1.5", "2": "-2.0"}
"""the folder of each load"""
SIA = ("philly", "saturn")
PHILLY = Case(
    f"elasticflow:{DATA}/workloads/elasticflow_philly_103959.csv",
    "tiresias",
    "16x4",
    load=4.0,
    interval=300.0,
    jobs=150,
)
"""the first jobs of ElasticFlow's part of it, four times as fast: they ask for 1.2 times what the cluster has.
Half of them run for more than six hours, so that decisions come each five minutes."""
CURVES = (("MLFS'", "x = 1"), ("Pollux's", "2"))
"""the workloads and loads of tables that have more runs of each"""
LAUNCHED = (("MLFS'", "x = 1"), ("Pollux's", "1"), ("Pollux's", "2"))
BOUNDED = ("Pollux's", "2")
"""where the bound on passing is also changed"""
BOUNDS = (1.2, BYPASS, 100.0)
"""How many times the time that it would have taken alone a job may take before it goes first; the last is none."""
EPSILONS = (0.001, 0.005, 0.02)
HEAD = ("workload", "load", OURS, *RIVALS)


class Group(NamedTuple):
    """A workload at a load, and its runs under one policy, one for each seed or file."""

    workload: str
    load: str
    base: list[Case]

    def ours(self, *, stopping: bool, settings: Settings = ()) -> list[Case]:
        """The runs of MLFS, or without MLF-C those of MLF-H."""
        return over(self.base, policy="mlfs" if stopping else "mlf-h", settings=settings)

    def entrants(self, *, stopping: bool) -> dict[str, list[Case]]:
        """The runs by label: ours first, with MLF-C's stopping for everybody or nobody."""
        rivals = {name: over(self.base, policy=name, settings=how, stopping=stopping) for name, how in RIVALS.items()}
        return {OURS: self.ours(stopping=stopping), **rivals}


def groups(chosen: Sequence[tuple[str, str]] = ()) -> list[Group]:
    """All workloads and loads that are there, or those chosen by their names."""
    made = [Group("MLFS'", f"x = {x}", mlfs.base(x)) for x in LOADS]
    if DATA:
        made += [Group("Pollux's", load, pollux(folder)) for load, folder in POLLUX_LOADS.items()]
        made += [Group("Sia's", trace, _sia(trace)) for trace in SIA]
        made.append(Group("Philly's", "1", [replace(PHILLY, seed=seed) for seed in mlfs.SEEDS]))
    return [each for each in made if not chosen or (each.workload, each.load) in chosen]


def _sia(trace: str) -> list[Case]:
    return [Case(f"pollux:{DATA}/workloads/sia/{trace}/{name}.csv", "tiresias") for name in POLLUX]


def whole() -> list[Group]:
    """Those of runs in which nobody is stopped."""
    return [each for each in groups() if each.workload == "Pollux's" or (each.workload, each.load) in CURVES]


def first(runs: Runs) -> str:
    """Mean JCT, everybody with the same stopping; of each rival also how much more it is than ours."""
    return _table(runs, _turnaround(runs))


def first_whole(runs: Runs) -> str:
    """Mean JCT where nobody stops a job, and how far above the fluid and the lower bound it is."""
    compared = [(group, group.entrants(stopping=False)) for group in whole()]
    runs.of(case for _, there in compared for cases in there.values() for case in cases)  # side by side
    rows, cell = [], _turnaround(runs)
    for group, there in compared:
        fluid, least = np.array(runs.each(ideal, [(case,) for case in group.base])).T
        jct = runs.column(there[OURS], "jct_mean")
        cells = [cell(there, label) for label in there]
        rows.append([group.workload, group.load, *cells, change(jct, fluid), change(jct, least)])
    return markdown([*HEAD, "mlfs above the fluid", "above the lower bound"], rows)


def first_kept(runs: Runs) -> str:
    """Deadlines and targets met, and accuracy by deadline, with the same stopping."""

    def cell(there: Mapping[str, list[Case]], label: str) -> str:
        met = [percent(runs.column(there[label], name)) for name in ("deadline_ratio", "accuracy_ratio")]
        return " / ".join([*met, f"{runs.column(there[label], 'accuracy_by_deadline').mean():.3f}"])

    return _table(runs, cell)


def first_fairness(runs: Runs) -> str:
    """Jobs above 1.1 in finish-time fairness, the worst of it, and the worst slowdown, with the same stopping."""
    return _table(runs, lambda there, label: _fairness(runs, there[label]))


def _fairness(runs: Runs, cases: list[Case]) -> str:
    worst = [f"{runs.column(cases, name).mean():.1f}" for name in ("rho_max", "slowdown_max")]
    return " / ".join([percent(runs.column(cases, "unfair_ratio")), *worst])


Cell = Callable[[Mapping[str, list[Case]], str], str]


def _turnaround(runs: Runs) -> Cell:
    def cell(there: Mapping[str, list[Case]], label: str) -> str:
        jct = runs.column(there[label], "jct_mean")
        if label == OURS:
            return span(jct / 60)
        return f"{jct.mean() / 60:,.0f} ({change(jct, runs.column(there[OURS], 'jct_mean'))})"

    return cell


def _table(runs: Runs, cell: Cell) -> str:
    compared = [(group, group.entrants(stopping=True)) for group in groups()]
    runs.of(case for _, there in compared for cases in there.values() for case in cases)  # side by side
    rows = [[group.workload, group.load, *(cell(there, label) for label in there)] for group, there in compared]
    return markdown(HEAD, rows)


def variants(runs: Runs) -> str:
    """Other ways to size jobs: the minimum guaranteed, none sized, and admission by deadline as in ElasticFlow."""
    rows = []
    for group in groups(CURVES):
        ours = group.ours(stopping=True)
        there = {
            "mlfs": ours,
            "mlfs, minimum guaranteed": group.ours(stopping=True, settings=GUARANTEE),
            "mlfs, rigid": group.ours(stopping=True, settings=RIGID),
            "fair": over(group.base, policy="fair", stopping=True),
            "elasticflow": over(group.base, policy="elasticflow", stopping=True),
        }
        for label, cases in there.items():
            jct = runs.column(cases, "jct_mean")
            met = [percent(runs.column(cases, name)) for name in ("deadline_ratio", "accuracy_ratio")]
            against = change(jct, runs.column(ours, "jct_mean"))
            rows.append([group.workload, group.load, label, span(jct / 60), against, *met, _fairness(runs, cases)])
    head = ["workload", "load", "policy", "mean JCT, min", "against mlfs", "deadlines met", "targets met"]
    return markdown([*head, "above 1.1 / worst rho / worst job"], rows)


def epsilons(runs: Runs) -> str:
    """Mean JCT against targets met, by MLF-C's epsilon."""
    rows = []
    drawn: dict[str, Lines] = {}
    for group in groups(CURVES):
        lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
        for name in ("mlfs", "fair", "srtf"):
            cases = over(group.base, policy=name, stopping=name != OURS)
            met, jct = (
                [runs.column(over(cases, epsilon=each), figure) for each in EPSILONS]
                for figure in ("accuracy_ratio", "jct_mean")
            )
            lines[name] = ([100 * float(each.mean()) for each in met], [float(np.mean(each)) / 60 for each in jct])
            for each, share, seconds in zip(EPSILONS, met, jct, strict=True):
                rows.append([group.workload, group.load, name, f"{each:g}", span(seconds / 60), percent(share)])
        drawn[f"{group.workload} workload, {group.load}: mean JCT in min by targets met in %"] = lines
    panels("epsilons", drawn, columns=2)
    return markdown(["workload", "load", "policy", "epsilon", "mean JCT, min", "targets met"], rows)


def launched(runs: Runs) -> str:
    """What is left under a Slurm that launches the jobs, against Slurm alone; and what the bound on passing costs."""
    compared = []
    for group in groups(LAUNCHED):
        slurm = over(group.base, launcher="slurm")
        there = {
            "slurm": over(slurm, policy="slurm"),
            "slurm, same stopping": over(slurm, policy="slurm", stopping=True),
            "fair, same stopping": over(slurm, policy="fair", stopping=True),
            "mlfs": over(slurm, policy="mlfs"),
        }
        if (group.workload, group.load) == BOUNDED:
            others = [bound for bound in BOUNDS if bound != BYPASS]
            there |= {f"mlfs, max_bypass = {each:g}": over(there["mlfs"], max_bypass=each) for each in others}
        compared.append((group, there))
    runs.of(case for _, there in compared for cases in there.values() for case in cases)  # side by side
    rows = []
    for group, there in compared:
        reference = runs.column(there["slurm"], "jct_mean")
        for label, cases in there.items():
            jct = runs.column(cases, "jct_mean")
            met = [percent(runs.column(cases, name)) for name in ("deadline_ratio", "accuracy_ratio")]
            sized = [f"{runs.column(cases, name).mean():,.0f}" for name in ("resized_starts", "resizes")]
            against = change(jct, reference)
            rows.append(
                [group.workload, group.load, label, span(jct / 60), against, *met, *sized, _fairness(runs, cases)]
            )
    head = ["workload", "load", "policy", "mean JCT, min", "against Slurm alone", "deadlines met", "targets met"]
    return markdown([*head, "other sizes at a start", "later", "above 1.1 / worst rho / worst job"], rows)
