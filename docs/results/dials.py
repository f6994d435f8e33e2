"""The table on two settings that trade mean JCT for fairness and for the waits of users without directives."""

from collections.abc import Mapping

import numpy as np

from docs.measure_plain import ELASTIC, Setup, priced
from docs.results.cases import Runs
from docs.results.cells import change, markdown, percent, span

SEEDS = (30, 31, 32, 33, 34, 35)
"""by which nothing else is judged"""
PLAIN = 4
"""of the eight users, half"""
DEFAULT = Setup("mlf-h")
DIALS: Mapping[str, tuple[Setup, ...]] = {
    "keep": tuple(Setup("mlf-h", keep=each) for each in (1.0, DEFAULT.keep, 4.0)),
    "max_bypass": tuple(Setup("mlf-h", max_bypass=each) for each in (1.2, DEFAULT.max_bypass, 100.0)),
}


def dials(runs: Runs) -> str:
    """What each setting costs in time, and brings in fairness and to users without directives."""
    compared = [(name, setup) for name, setups in DIALS.items() for setup in setups]
    alone, usual, *made = np.array(
        runs.each(priced, _calls(Setup("slurm"), DEFAULT, *(setup for _, setup in compared)))
    ).reshape(2 + len(compared), len(SEEDS), 6)
    rows = []
    for (name, setup), figures in zip(compared, made, strict=True):
        jct, plain, wait, unfair, rho, slowdown = figures.T
        label = f"{name} = {getattr(setup, name):g}" + (" (default)" if setup == DEFAULT else "")
        of_plain = [change(plain, alone[:, 1]), change(wait, alone[:, 2])]
        fairness = " / ".join([percent(unfair), f"{rho.mean():.1f}", f"{slowdown.mean():.1f}"])
        rows.append([label, span(jct / 60), change(jct, usual[:, 0]), *of_plain, fairness])
    head = ["setting", "mean JCT, min", "against the default", "users without directives: JCT", "their wait"]
    return markdown([*head, "above 1.1 / worst rho / worst job"], rows)


def _calls(*setups: Setup) -> list[tuple[Setup, int, int, str]]:
    return [(setup, PLAIN, seed, ELASTIC) for setup in setups for seed in SEEDS]
