"""Tables on the workload of DL2 (arXiv 1909.06040), how DL2 fares where what it is told is wrong, away from what it was
trained on, and where jobs have parameter servers."""

from collections.abc import Mapping, Sequence

import numpy as np

from docs.results.cases import Case, Runs, over
from docs.results.cells import change, half, markdown, span
from docs.results.states import states_known

SEEDS = tuple(range(5, 15))
"""at load 1, and the first five of them elsewhere"""
CLUSTERS = ("8x4", "16x4", "32x4")
LOADS = (0.5, 1.0, 1.5)
SLOT = 1200.0
WORKLOAD = "gen:dl2"
RIVALS: Mapping[str, str] = {
    "mlf-h": "mlf-h",
    "drf": "drf",
    "optimus": "optimus",
    "srtf": "srtf, by true run times",
}
WRONG: Mapping[str, str] = {
    "nothing": WORKLOAD,
    "run times, by 27%": "gen:dl2?runtime_noise=0.27",
    "speeds, by 27% (Fig. 13)": "gen:dl2?speeds_vary=0.27",
    "epochs, by 20% (Fig. 14)": "gen:dl2?epochs_wrong=0.2",
}
"""what a policy is told wrongly: the deviation of the logarithm of what is forecast of each run time, or by what share
the speed of each hour, or the epochs that a job takes, are more or less than told"""

ELSEWHERE: Sequence[tuple[str, str, float]] = (
    (WORKLOAD, "16x4", 1.0),
    ("gen:dl2?shapes=drawn", "16x4", 1.0),
    (WORKLOAD, "16x4", 3.0),
    (WORKLOAD, "4x4", 0.25),
    (WORKLOAD, "16x8", 2.0),
    (WORKLOAD, "64x4", 4.0),
    ("gen:mlfs", "16x4", 2.4),
    ("gen:mlfs?elastic=off", "16x4", 2.4),
)
"""workload, cluster, and load; the first is as in training"""
FEWER = 100
SERVERS = "gen:dl2?servers=on"
SERVER_MODEL = "policies/models/dl2-servers.safetensors"
SERVER_RIVALS: Mapping[str, str] = {
    "drf": "drf, a server a worker",
    "optimus": "optimus",
    "dl2": "dl2 of J + 1, a server a worker",
}
WITH_SERVERS: Sequence[tuple[str, str, float]] = (
    (SERVERS, "8x4x16x131072", 0.5),
    (SERVERS, "16x4x16x131072", 1.0),
    (SERVERS, "16x4x16x131072", 2.0),
    (f"{SERVERS}&speeds_vary=0.27", "16x4x16x131072", 1.0),
)
"""workload, cluster of four CPUs a GPU, and load"""
TRANSFERS = 0.8
"""of the states, those that have to be known: in the others the daemon lets MLF-H decide"""


def _cases(cluster: str, load: float) -> list[Case]:
    return [Case(WORKLOAD, "dl2", cluster, seed, load, SLOT) for seed in (SEEDS if load == 1 else SEEDS[:5])]


def _row(runs: Runs, cases: list[Case], rivals: Mapping[str, str] = RIVALS) -> list[str]:
    own = runs.column(cases, "jct_mean")
    cells = [span(own / 60)]
    for rival in rivals:
        theirs = runs.column(over(cases, policy=rival, settings=()), "jct_mean")
        ratios = 100 * (own / theirs - 1)
        cells.append(f"{np.mean(theirs) / 60:,.0f} ({ratios.mean():+.1f}% ± {half(ratios):.1f})")
    return cells


def _all(compared: Sequence[list[Case]]) -> list[Case]:
    return [case for cases in compared for policy in ("dl2", *RIVALS) for case in over(cases, policy=policy)]


def dl2(runs: Runs) -> str:
    """DL2 beside its paper's rivals and ours, by cluster and load: mean JCT in minutes."""
    compared = {(cluster, load): _cases(cluster, load) for cluster in CLUSTERS for load in LOADS}
    runs.of(_all(list(compared.values())))  # side by side
    rows = [[cluster, f"{load:g}", *_row(runs, cases)] for (cluster, load), cases in compared.items()]
    return markdown(["cluster", "load", "dl2", *RIVALS.values()], rows)


def dl2_wrong(runs: Runs) -> str:
    """The same on 64 GPUs with fewer jobs, where what is forecast or stated is wrong, for every policy alike."""
    compared = {
        told: [Case(workload, "dl2", "16x4", seed, 1.0, SLOT, jobs=FEWER) for seed in SEEDS[:5]]
        for told, workload in WRONG.items()
    }
    runs.of(_all(list(compared.values())))
    rows = [[told, *_row(runs, cases)] for told, cases in compared.items()]
    return markdown(["what is told wrongly", "dl2", *RIVALS.values()], rows)


def dl2_elsewhere(runs: Runs) -> str:
    """DL2 on other speeds, loads, clusters and workloads than its model was trained on, against MLF-H."""
    compared = [
        [Case(workload, "dl2", cluster, seed, load, SLOT, jobs=FEWER) for seed in SEEDS[:3]]
        for workload, cluster, load in ELSEWHERE
    ]
    runs.of(case for cases in compared for policy in ("dl2", "mlf-h") for case in over(cases, policy=policy))
    known = runs.each(states_known, [(cases[0],) for cases in compared])
    rows = []
    for (workload, cluster, load), cases, (knew, of) in zip(ELSEWHERE, compared, known, strict=True):
        own, theirs = (runs.column(over(cases, policy=policy), "jct_mean") for policy in ("dl2", "mlf-h"))
        share = knew / of
        verdict = "yes" if share >= TRANSFERS else "no: MLF-H decides"
        cells = [f"{theirs.mean() / 60:,.0f}", change(own, theirs), f"{share:.0%}", verdict]
        rows.append([f"`{workload}`", cluster, f"{load:g}", *cells])
    return markdown(["workload", "cluster", "load", "mlf-h, min", "dl2", "states known", "transfers"], rows)


def dl2_servers(runs: Runs) -> str:
    """DL2's 3J + 1 actions where jobs have parameter servers, against rivals: mean JCT in minutes."""
    compared = [
        [
            Case(workload, "dl2", cluster, seed, load, SLOT, settings=(("model", SERVER_MODEL),), jobs=FEWER)
            for seed in SEEDS
        ]
        for workload, cluster, load in WITH_SERVERS
    ]
    rivals = [over(cases, policy=policy, settings=()) for cases in compared for policy in SERVER_RIVALS]
    runs.of(case for cases in [*compared, *rivals] for case in cases)
    rows = [
        [f"`{workload}`", cluster, f"{load:g}", *_row(runs, cases, SERVER_RIVALS)]
        for (workload, cluster, load), cases in zip(WITH_SERVERS, compared, strict=True)
    ]
    return markdown(["workload", "cluster", "load", "dl2 of 3J + 1", *SERVER_RIVALS.values()], rows)
