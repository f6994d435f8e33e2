"""Makes the tables of docs/results.md anew: `make results`, or `python -m docs.make_results NAME...` for some.

Workloads that are not part of the package are looked for in the folder that DATA names; a table that needs one is left
as it is where there is none.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from docs.measure_plain import USERS, turnarounds
from docs.measure_speed import decisions, repeated
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.experiment import summary
from slurmplug.sim.experiment.early_stopping import WithEarlyStopping
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load as workload

PAGE = Path(__file__).with_name("results.md")
DATA = os.environ.get("DATA", "")
POLLUX = ("workload-1", "workload-3", "workload-5", "workload-7")

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One run. `settings` are the policy's, as (key, value)."""

    workload: str
    policy: str
    cluster: str = "16x4"
    seed: int = 0
    load: float = 1.0
    interval: float = 60.0
    stopping: bool = False
    launcher: str = "direct"
    settings: tuple[tuple[str, Any], ...] = ()
    jobs: int | None = None


@cache
def _jobs(name: str, seed: int, load: float, jobs: int | None) -> Workload:
    data = Path(DATA) if DATA else None
    return workload.load(name, seed=seed, load=load, jobs=jobs, data=data)


def run(case: Case) -> Figures:
    """The figures of one run."""
    given = dict(case.settings)
    config = {"policy": case.policy, "interval": case.interval, "policies": {case.policy: given}}
    policy = policy_registry.policy(Config.model_validate(config))
    stops = case.stopping or case.policy == "mlfs"
    chosen = WithEarlyStopping(policy) if stops and case.policy != "mlfs" else policy
    settings = SimulationSettings(case.cluster, case.interval, case.seed, stops, launcher=case.launcher)
    jobs = _jobs(case.workload, case.seed, case.load, case.jobs)
    return summary.summary(Simulation(jobs, chosen, settings).run())


class Runs:
    """Runs cases side by side, each once, whichever tables need them."""

    def __init__(self, pool: Executor) -> None:
        self._pool, self._lock = pool, Lock()
        self._futures: dict[Case, Future[Figures]] = {}

    def of(self, cases: Iterable[Case]) -> list[Figures]:
        """The figures of each case."""
        wanted = list(cases)
        with self._lock:
            for case in wanted:
                if case not in self._futures:
                    self._futures[case] = self._pool.submit(run, case)
        return [self._futures[case].result() for case in wanted]

    def each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The results of a function for each of these arguments."""
        futures = [self._pool.submit(function, *given) for given in arguments]
        return [future.result() for future in futures]

    def column(self, cases: Iterable[Case], name: str) -> np.ndarray:
        """One figure of each case."""
        return np.array([float(figures[name]) for figures in self.of(cases)])


def over(cases: Sequence[Case], **changed: Any) -> list[Case]:
    """The same cases with something changed."""
    return [replace(case, **changed) for case in cases]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def change(values: np.ndarray, reference: np.ndarray) -> str:
    """How much less or more, case by case: the mean of the ratios and its 95% interval (Student's t)."""
    ratios = 100 * (values / reference - 1)
    return f"{ratios.mean():+.0f}%" + (f" ± {half(ratios):.0f}" if len(ratios) > 1 else "")


def points(values: np.ndarray, reference: np.ndarray) -> str:
    """How many points more or less, of shares, case by case: the mean and its 95% interval."""
    more = 100 * (values - reference)
    return f"{more.mean():+.1f}" + (f" ± {half(more):.1f}" if len(more) > 1 else "") + " points"


def span(values: np.ndarray) -> str:
    """Seconds, and the interval of their mean over seeds or workloads."""
    return f"{values.mean():,.0f}" + (f" ± {half(values):,.0f}" if len(values) > 1 else "")


def half(values: np.ndarray) -> float:
    """Half the 95% interval of a mean, by Student's t."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def percent(values: np.ndarray) -> str:
    """Of shares."""
    return f"{100 * values.mean():.1f}%"


def bars(name: str, groups: Mapping[str, Mapping[str, float]], label: str) -> None:
    """A plot in docs/figures: a group of bars each, a bar for each policy in it."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(policy for group in groups.values() for policy in group))
    width = 0.8 / len(names)
    for number, policy in enumerate(names):
        values = [group.get(policy, np.nan) for group in groups.values()]
        axes.bar(np.arange(len(groups)) + (number + 0.5) * width - 0.4, values, width, label=policy)
    axes.set_xticks(np.arange(len(groups)), list(groups))
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=5, fontsize=7)
    figure.savefig(PAGE.with_name("figures") / f"{name}.png", dpi=90)


# --- simulator and MLFS -----------------------------------------------------------------------------------------------


def pollux(load: str = "", policy: str = "tiresias") -> list[Case]:
    """Pollux's workloads; `load`: "", or "-2.0" for the folder of twice the jobs."""
    return [Case(f"pollux:{DATA}/workloads/pollux/workloads{load}/{name}.csv", policy) for name in POLLUX]


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


def mlfs(runs: Runs) -> str:
    """MLF-H and MLFS against Tiresias on Pollux's workloads."""
    rows = []
    plotted: dict[str, dict[str, float]] = {}
    for folder, relative in (("", "1"), ("-2.0", "2")):
        base = pollux(folder)
        reference = runs.column(base, "jct_mean")
        for label, cases in (
            ("tiresias", base),
            ("srtf with true run times", over(base, policy="srtf")),
            ("mlf-h", over(base, policy="mlf-h")),
            ("mlfs", over(base, policy="mlfs")),
            ("tiresias with the same stopping", over(base, stopping=True)),
            ("mlf-h with the same stopping", over(base, policy="mlf-h", stopping=True)),
        ):
            jct = runs.column(cases, "jct_mean")
            plotted.setdefault(f"load {relative}", {})[label] = float(jct.mean())
            cells = [percent(runs.column(cases, name)) for name in ("deadline_ratio", "accuracy_ratio")]
            ratio = change(jct, reference)
            rows.append(
                [relative, label, span(jct), ratio, *cells, f"{runs.column(cases, 'accuracy_by_deadline').mean():.3f}"]
            )
        same = change(
            runs.column(over(base, policy="mlfs"), "jct_mean"), runs.column(over(base, stopping=True), "jct_mean")
        )
        rows.append([relative, "mlfs against tiresias with the same stopping", "", same, "", "", ""])
    bars("mlfs", plotted, "mean JCT, s")
    head = ["load", "policy", "mean JCT, s", "against Tiresias", "deadlines met", "targets met", "accuracy by deadline"]
    return markdown(head, rows)


ALL = (
    "fifo fair drf sjf srtf tetris optimus tiresias gittins gandiva graphene hypersched rrh slaq ml-sjf mlf-h mlfs"
).split()
"""Dorm is not among them: a mixed-integer programme of hundreds of jobs each minute takes hours."""
CHIEF = "fair srtf tiresias hypersched slaq mlf-h mlfs".split()
GROWN: Mapping[str, tuple[str, tuple[tuple[str, Any], ...]]] = {
    "mlf-h, elastic": ("mlf-h", (("grow", True),)),
    "mlfs, elastic": ("mlfs", (("grow", True),)),
}
"""with the rights that fair, SLAQ, Optimus and HyperSched always have: to give a job other numbers of GPUs"""


def gen_mlfs(runs: Runs) -> str:
    """Every policy on the workload of MLFS."""
    rows = []
    plotted: dict[str, dict[str, float]] = {}
    compared = {}
    for x in ("1/4", "1/2", "1", "2", "3"):
        seeds = (0, 1, 2) if x == "1/4" else (0,)
        names = {name: (name, ()) for name in (ALL if x in ("1/4", "1/2") else CHIEF)} | GROWN
        compared[x] = names, [Case(f"gen:mlfs?x={x}", "tiresias", "20x4", seed) for seed in seeds]
    runs.of(
        replace(case, policy=name, settings=how)
        for names, base in reversed(compared.values())
        for name, how in names.values()
        for case in base
    )  # side by side, the longest first
    for x, (names, base) in compared.items():
        reference = runs.column(base, "jct_mean")
        for name, (policy, how) in names.items():
            cases = over(base, policy=policy, settings=how)
            jct = runs.column(cases, "jct_mean")
            if name in CHIEF or name in GROWN:
                plotted.setdefault(f"x = {x}", {})[name] = float((jct / reference).mean())
            accuracy = f"{runs.column(cases, 'accuracy_by_deadline').mean():.3f}"
            deadlines = percent(runs.column(cases, "deadline_ratio"))
            rows.append([x, name, span(jct / 60), change(jct, reference), deadlines, accuracy])
    bars("gen-mlfs", plotted, "mean JCT, of Tiresias'")
    head = ["x", "policy", "mean JCT, min", "against Tiresias", "deadlines met", "accuracy by deadline"]
    return markdown(head, rows)


def ablations(runs: Runs) -> str:
    """What each part of MLFS is worth on its own workload, in parts and not elastic."""
    compared = []
    for x, part, setting, figure in ABLATIONS:
        base = [Case(f"gen:mlfs?x={x}&partitions=on&elastic=off", "mlf-h", "20x4", seed) for seed in (0, 1, 2)]
        whole, without = (base, over(base, settings=(setting,))) if setting else (over(base, policy="mlfs"), base)
        compared.append((x, part, figure, whole, without))
    runs.of(case for *_, whole, without in compared for case in (*whole, *without))  # side by side
    rows = []
    for x, part, figure, whole, without in compared:
        values, reference = runs.column(whole, figure), runs.column(without, figure)
        if figure.endswith("ratio"):
            before, gain = percent(reference), points(values, reference)
        else:
            scale, unit = SCALES[figure]
            before, gain = f"{reference.mean() / scale:,.0f} {unit}", change(values, reference)
        rows.append([x, part, figure.replace("_", " "), before, gain])
    return markdown(["x", "part", "figure", "without it", "with it against without"], rows)


ABLATIONS = (
    ("1", "urgency", ("use_urgency", False), "urgent_deadline_ratio"),
    ("1", "deadline term", ("use_deadline", False), "deadline_ratio"),
    ("1", "bandwidth in placement", ("use_bandwidth", False), "bandwidth_bytes"),
    ("1", "migration", ("migrate", False), "jct_mean"),
    ("1", "migration", ("migrate", False), "overload_s"),
    ("1", "migration", ("migrate", False), "bandwidth_bytes"),
    ("1", "MLF-C", None, "jct_mean"),
    ("2", "urgency", ("use_urgency", False), "urgent_deadline_ratio"),
    ("2", "deadline term", ("use_deadline", False), "deadline_ratio"),
    ("2", "migration", ("migrate", False), "jct_mean"),
)
"""MLF-H at each x, with all and without one of its parts; MLFS against it for MLF-C"""
SCALES = {"bandwidth_bytes": (1e12, "TB"), "jct_mean": (60, "min"), "overload_s": (3600, "h")}


def plain(runs: Runs) -> str:
    """What users without directives have beside others under MLF-H, against Slurm alone."""
    rows = []
    for share in (2, 4, 6):
        cases = [(policy, share, seed) for policy in ("slurm", "mlf-h") for seed in (0, 1, 2)]
        figures = np.array(runs.each(turnarounds, cases)).reshape(2, 3, 3)
        alone, beside = figures
        cells = [change(beside[:, column], alone[:, column]) for column in (0, 2, 1)]
        before = span(alone[:, 0] / 60)
        rows.append([f"{100 * share // USERS}%", before, *cells])
    head = [
        "users without directives",
        "their mean JCT under Slurm alone, min",
        "their JCT",
        "their wait",
        "JCT of the others",
    ]
    return markdown(head, rows)


# --- SLAQ ----------------------------------------------------------------------------------------------


def slaq(runs: Runs) -> str:
    """SLAQ against fair shares on its own workload, where a resize costs nothing."""
    rows = []
    for arrival in (15, 10, 4):
        base = [Case(f"gen:slaq?arrival={arrival}", "fair", "20x32", seed, interval=3.0) for seed in (0, 1, 2)]
        for name in ("slaq", "slaq-maxmin"):
            ours = over(base, policy=name)
            cells = [
                change(runs.column(ours, figure), runs.column(base, figure))
                for figure in ("loss_integral", "time_to_90_loss", "time_to_95_loss", "jct_mean")
            ]
            rows.append([f"{arrival} s", name, *cells])
    head = ["arrivals", "policy", "loss integral", "time to 90%", "time to 95%", "mean JCT"]
    return markdown(head, rows)


def slaq_restart(runs: Runs) -> str:
    """On Pollux's workloads, where each resize costs a restart of 30 s, by the epoch."""
    rows = []
    for epoch in (60.0, 300.0, 900.0):
        base = over(pollux("", "fair"), interval=epoch)
        ours = over(base, policy="slaq", settings=(("speed", "forecast"), ("restart", 30.0)))
        cells = [
            change(runs.column(ours, figure), runs.column(base, figure))
            for figure in ("loss_integral", "time_to_90_loss", "jct_mean")
        ]
        rows.append([f"{epoch:g} s", *cells, f"{runs.column(ours, 'resizes').mean():.0f}"])
    return markdown(["epoch", "loss integral", "time to 90%", "mean JCT", "resizes"], rows)


# --- OASiS ----------------------------------------------------------------------------------------------


def oasis(runs: Runs) -> str:
    """The sum of utilities, against OASiS'."""
    rows = []
    plotted: dict[str, dict[str, float]] = {}
    for load in (0.5, 1.0, 2.0):
        base = [Case("gen:oasis", "oasis", "50x4", seed, load=load, interval=600.0) for seed in (0, 1, 2)]
        own = runs.column(base, "utility")
        others = {name: runs.column(over(base, policy=name), "utility") for name in ("fifo", "drf", "rrh", "dorm")}
        plotted[f"load {load:g}"] = {name: float(values.mean()) for name, values in {"oasis": own, **others}.items()}
        cells = [change(values, own) for values in others.values()]
        rows.append([f"{load:g}", span(own), *cells])
    bars("oasis", plotted, "sum of utilities")
    return markdown(["load", "OASiS' utility", "FIFO", "DRF", "RRH", "Dorm"], rows)


# --- ML-SJF ----------------------------------------------------------------------------------------------


def ml_sjf(runs: Runs) -> str:
    """Mean waits on the workload of ML-SJF."""
    rows = []
    for kind in ("flask", "mapreduce", "sklearn", "mixed"):
        name = f"gen:ml-sjf?type={kind}"
        base = [Case(name, "ml-sjf", "1x4x4x15000", seed, interval=1.0) for seed in (0, 1, 2)]
        guess = runs.column(over(base, settings=(("estimate", "random"),)), "wait_mean")
        cells = [
            change(runs.column(over(base, settings=settings), "wait_mean"), guess)
            for settings in ((), (("estimate", "type"),), (("mix", 6.0),))
        ]
        rows.append([kind, span(guess), *cells, change(runs.column(over(base, policy="drf"), "wait_mean"), guess)])
    return markdown(["type", "random guess, s", "predicted", "by type's mean", "predicted, mixed", "DRF"], rows)


# --- elastic ----------------------------------------------------------------------------------------------

RIGID = frozenset({"fifo", "srtf", "tiresias", "gittins", "mlf-h"})
ELASTIC: Mapping[str, tuple[tuple[str, Any], ...] | None] = {
    "fifo": None,
    "srtf": None,
    "tiresias": None,
    "gittins": None,
    "fair": (),
    "optimus": (),
    "slaq": (("speed", "forecast"),),
    "mlf-h": (("grow", True),),
}
"""what makes each elastic; None where nothing does"""


def elastic(runs: Runs) -> str:
    """With a stated target, within 1% of the final best; the same rights for all."""

    rows = []
    for name, settings in ELASTIC.items():
        cells = []
        for stopping, grows in ((False, False), (False, True), (True, True)):
            if (grows and settings is None) or (not grows and name not in RIGID):
                cells.append("-")
                continue
            cases = over(pollux("", name), stopping=stopping, settings=settings if grows else ())
            cells.append(span(runs.column(cases, "jct_mean")))
        rows.append([name, *cells])
    return markdown(["policy", "non-elastic, s", "elastic, s", "elastic and stopping, s"], rows)


# --- speed ----------------------------------------------------------------------------------------------


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
        _jobs(case.workload, case.seed, case.load, case.jobs)  # read before the clock starts
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


TABLES: Mapping[str, Callable[[Runs], str]] = {
    "plain": plain,
    "gen-mlfs": gen_mlfs,
    "ablations": ablations,
    "mlfs": mlfs,
    "slaq": slaq,
    "slaq-restart": slaq_restart,
    "oasis": oasis,
    "elastic": elastic,
    "parity": parity,
    "ml-sjf": ml_sjf,
}
"""those that take longest first"""
CLOCKED: Mapping[str, Callable[[], str]] = {"speed": speed, "decide": decide}
"""These measure time, and need the machine to themselves; no other table has a time in it."""
LOGS = frozenset({"mlfs", "slaq-restart", "elastic", "parity", "speed"})
"""These replay what DATA holds."""


def renewed(page: str, name: str, table: str) -> str:
    """The page with this table in its place."""
    begin, end = f"<!-- made by python -m docs.make_results {name} -->", "<!-- end -->"
    head, _, rest = page.partition(begin)
    if not rest:
        raise SystemExit(f"{PAGE} has no place for {name}: write {begin} and {end}")
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"


def main(names: Sequence[str]) -> None:
    """Make these tables, or all."""
    known = [*TABLES, *CLOCKED]
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no table {name!r}: {', '.join(known)}")
    wanted = [name for name in names or known if DATA or name not in LOGS]
    for name in set(names or known).difference(wanted):
        print(f"{name} is left as it is: DATA names no folder with the workloads that it replays", flush=True)
    with ProcessPoolExecutor(2) as pool, ThreadPoolExecutor(len(TABLES)) as waiting:  # no table keeps another waiting
        runs = Runs(pool)
        tables = {waiting.submit(TABLES[name], runs): name for name in wanted if name in TABLES}
        for table in as_completed(tables):
            write(tables[table], table.result())
    for name in wanted:
        if name in CLOCKED:
            write(name, CLOCKED[name]())


def write(name: str, table: str) -> None:
    """Show it, and put it into its place on the page."""
    print(f"## {name}\n\n{table}\n", flush=True)
    new = PAGE.with_suffix(".new")
    new.write_text(renewed(PAGE.read_text(encoding="utf-8"), name, table), encoding="utf-8")
    new.replace(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
