"""Tables of the policies that decide by models: MLF-RL on the workload of MLFS, and both models as `policy evaluate`
judges them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from docs.results.cases import Case, Figures, Runs, over
from docs.results.cells import change, markdown, percent, span
from docs.results.states import states_known
from docs.results.store import ROOT
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.ledger.policy_models import FOLLOWED
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment import comparison, evaluation
from slurmplug.sim.experiment.comparison import BySeed, FigureComparison, RunFigures

SEEDS = tuple(range(10, 15))
JOBS, INTERVAL = 100, 600.0
OWN_GPUS = 80
"""of the generator's own cluster"""
ELASTIC, RIGID, OTHER = "gen:mlfs", "gen:mlfs?elastic=off", "gen:dl2"
DRAWN = "gen:mlfs?shapes=drawn"
"""with speeds that each seed draws, as in training"""
WHERE: Sequence[tuple[str, str, str, float]] = (
    ("elastic", ELASTIC, "16x4", 3.0),
    ("elastic", ELASTIC, "8x4", 3.0),
    ("elastic", ELASTIC, "32x4", 3.0),
    ("elastic", ELASTIC, "16x4", 6.0),
    ("elastic", ELASTIC, "8x8", 3.0),
    ("elastic, drawn speeds", DRAWN, "16x4", 3.0),
    ("rigid", RIGID, "16x4", 3.0),
    ("`gen:dl2`", OTHER, "16x4", 1.0),
)
"""label, workload, cluster, and load as a multiple of what the generator's arrivals are for that cluster's GPUs"""
WATCHED = SEEDS[:2]
"""of the seeds, those on which it is counted how many states the model knows"""
TRANSFERS = 0.8
"""of the states, that the model knows where it transfers"""
COMPARED = ("jct_mean", "deadline_ratio", "accuracy_ratio", "accuracy_by_deadline", "bandwidth_bytes")
MODEL = str(ROOT / "policies" / "models" / "mlf-rl.safetensors")
WITH_MODEL = "mlfs with the model"
ENTRANTS: Mapping[str, tuple[str, tuple[tuple[str, Any], ...]]] = {
    WITH_MODEL: ("mlfs", (("model", MODEL),)),
    **{name: (name, ()) for name in ("mlfs", "mlf-rl", "fair", "mlf-h", "slaq", "hypersched", "tiresias")},
}
EVALUATED = (("dl2", "gen:dl2"), ("dl2", "gen:mlfs"), ("mlf-rl", "gen:mlfs"), ("mlf-rl", "gen:dl2"))
"""the shipped models, each on the workload of its training and on the other's"""
ON, OF_EVALUATED = "16x4", 100


def cases(workload: str, cluster: str, load: float) -> list[Case]:
    """The runs of `mlf-rl`."""
    factor = load if workload == OTHER else load * sum(parse(cluster).gpus) / OWN_GPUS
    return [Case(workload, "mlf-rl", cluster, seed, factor, INTERVAL, jobs=JOBS) for seed in SEEDS]


def mlf_rl(runs: Runs) -> str:
    """MLF-RL beside MLF-H with its growing rule, by cluster, load and workload."""
    compared = [(label, cluster, load, cases(workload, cluster, load)) for label, workload, cluster, load in WHERE]
    runs.of(case for *_, own in compared for policy in ("mlf-h", "mlf-rl") for case in over(own, policy=policy))
    watched = [[case for case in own if case.seed in WATCHED] for *_, own in compared]
    counted = iter(runs.each(states_known, [(case,) for each in watched for case in each]))
    known = [np.sum([next(counted) for _ in each], axis=0) for each in watched]
    rows = []
    for (label, cluster, load, own), (knew, of) in zip(compared, known, strict=True):
        of_figure = _compared(runs.of(over(own, policy="mlf-h")), runs.of(own))
        shares = (_from_to(of_figure[name], 100, ".1f", "%") for name in ("deadline_ratio", "accuracy_ratio"))
        cells = [f"{of_figure['jct_mean'].before / 60:.0f}", _changed(of_figure["jct_mean"]), *shares]
        cells += [_from_to(of_figure["accuracy_by_deadline"], 1, ".3f"), _bytes(of_figure["bandwidth_bytes"])]
        rows.append([f"{label}, {cluster}", f"{load:g}", *cells, _transfer(knew / of)])
    head = ["workload, cluster", "load", "mlf-h, min", "mean JCT", "deadlines met", "targets met"]
    return markdown([*head, "accuracy by deadline", "bytes between nodes", "states known"], rows)


def mlf_rl_rivals(runs: Runs) -> str:
    """The policies on the first line of that table; nobody but `mlfs` stops jobs."""
    first = cases(*WHERE[0][1:])
    there = {label: over(first, policy=name, settings=how) for label, (name, how) in ENTRANTS.items()}
    runs.of(case for each in there.values() for case in each)
    jct = {label: runs.column(each, "jct_mean") for label, each in there.items()}
    rows = []
    for label in sorted(there, key=lambda each: float(jct[each].mean())):
        against = [change(jct[own], jct[label]) if own != label else "" for own in ("mlf-rl", WITH_MODEL)]
        rows.append(
            [label, span(jct[label] / 60), *against]
            + [percent(runs.column(there[label], name)) for name in ("deadline_ratio", "accuracy_ratio")]
            + [f"{runs.column(there[label], 'accuracy_by_deadline').mean():.3f}"]
            + [f"{runs.column(there[label], 'bandwidth_bytes').mean() / 1e12:,.0f}"]
        )
    head = ["policy", "mean JCT, min", "`mlf-rl` against it", "`mlfs` with the model against it", "deadlines met"]
    return markdown([*head, "targets met", "accuracy by deadline", "bytes, TB"], rows)


def evaluated(policy: str, workload: str, seed: int) -> tuple[RunFigures, RunFigures]:
    """The configured policy's figures and those of the shipped model in its place, as `policy evaluate` simulates
    them."""
    config, model = Config.from_table({"interval": INTERVAL}), model_files.shipped(policy)
    assert model is not None
    configured = policy_registry.policy(config)
    candidate = policy_registry.promoted(config, model, configured)
    made = evaluation.workloads(workload, (seed,), OF_EVALUATED)
    before, after = evaluation.runs(made, candidate, configured, config, cluster=ON)
    return before[seed], after[seed]


def evaluations(runs: Runs) -> str:
    """What `slurmplug policy evaluate` says of the shipped models."""
    pairs = runs.each(evaluated, [(*which, seed) for which in EVALUATED for seed in range(len(SEEDS))])
    rows = []
    for number, (policy, workload) in enumerate(EVALUATED):
        own = pairs[len(SEEDS) * number : len(SEEDS) * (number + 1)]
        before, after = ({seed: pair[side] for seed, pair in enumerate(own)} for side in (0, 1))
        of_figure = _by_figure(before, after)
        minutes = (_from_to(of_figure[name], 1 / 60, ".0f") for name in ("jct_mean", "wait_mean"))
        cells = [*minutes, _changed(of_figure["jct_mean"]), _from_to(of_figure["deadline_ratio"], 100, ".1f", "%")]
        cells += [_from_to(of_figure["accuracy_by_deadline"], 1, ".3f"), _bytes(of_figure["bandwidth_bytes"])]
        cells += [_from_to(of_figure["preemptions"], 1, ".0f"), f"{of_figure[FOLLOWED].after:.0%}"]
        rows.append([policy, f"`{workload}`", *cells])
    head = ["model", "workload", "mean JCT, min", "mean wait, min", "change of JCT", "deadlines met"]
    return markdown([*head, "accuracy by deadline", "bytes between nodes", "preemptions", "cycles decided"], rows)


def _compared(before: Sequence[Figures], after: Sequence[Figures]) -> dict[str, FigureComparison]:
    """As `slurmplug compare` does, by figure."""
    first, second = (
        {seed: RunFigures("", seed, {name: float(run[name]) for name in COMPARED}) for seed, run in enumerate(side)}
        for side in (before, after)
    )
    return _by_figure(first, second)


def _by_figure(before: BySeed, after: BySeed) -> dict[str, FigureComparison]:
    return {row.figure: row for row in comparison.compare_figures(before, after, evaluation.CONFIDENCE)}


def _transfer(share: float) -> str:
    return f"{share:.0%}" if share >= TRANSFERS else f"{share:.0%}: does not transfer"


def _changed(row: FigureComparison) -> str:
    return f"{row.change:+.1%} ({100 * row.low:+.1f} to {100 * row.high:+.1f})"


def _bytes(row: FigureComparison) -> str:
    """The change; where it is too little before for one, both in TB."""
    if row.before < 1e12 or not np.isfinite(row.high):
        return f"{row.before / 1e12:.1f} to {row.after / 1e12:.1f} TB"
    return f"{row.change:+.0%} ({100 * row.low:+.0f} to {100 * row.high:+.0f})"


def _from_to(row: FigureComparison, factor: float, form: str, unit: str = "") -> str:
    return f"{factor * row.before:{form}}{unit} to {factor * row.after:{form}}{unit}"
