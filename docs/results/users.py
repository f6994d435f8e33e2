"""Tables on what users see: those without directives, and all on Pollux's workloads."""

import numpy as np

from docs.measure_plain import USERS, turnarounds
from docs.results.cases import RIGID, Runs, over, pollux
from docs.results.cells import change, markdown, percent, span
from docs.results.plots import bars


def plain(runs: Runs) -> str:
    """What users without directives have beside others under MLF-H, against Slurm alone."""
    rows = []
    for share in (2, 4, 6):
        cases = [(policy, share, seed) for policy in ("slurm", "mlf-h") for seed in SEEDS]
        alone, beside = np.array(runs.each(turnarounds, cases)).reshape(2, len(SEEDS), 3)
        cells = [change(beside[:, column], alone[:, column]) for column in (0, 2, 1)]
        rows.append([f"{100 * share // USERS}%", span(alone[:, 0] / 60), *cells])
    head = ["their mean JCT under Slurm alone, min", "their JCT", "their wait", "JCT of the others"]
    return markdown(["users without directives", *head], rows)


SEEDS = (0, 1, 2)


def on_pollux(runs: Runs) -> str:
    """MLF-H and MLFS against Tiresias on Pollux's workloads."""
    rows = []
    plotted: dict[str, dict[str, float]] = {}
    for folder, relative in (("", "1"), ("-2.0", "2")):
        base = pollux(folder)
        reference = runs.column(base, "jct_mean")
        for label, cases in (
            ("tiresias", base),
            ("srtf with true run times", over(base, policy="srtf")),
            ("mlf-h, rigid", over(base, policy="mlf-h", settings=RIGID)),
            ("mlfs, rigid", over(base, policy="mlfs", settings=RIGID)),
            ("tiresias with the same stopping", over(base, stopping=True)),
            ("srtf with the same stopping", over(base, policy="srtf", stopping=True)),
        ):
            jct = runs.column(cases, "jct_mean")
            plotted.setdefault(f"load {relative}", {})[label] = float(jct.mean())
            cells = [percent(runs.column(cases, name)) for name in ("deadline_ratio", "accuracy_ratio")]
            ratio = change(jct, reference)
            rows.append(
                [relative, label, span(jct), ratio, *cells, f"{runs.column(cases, 'accuracy_by_deadline').mean():.3f}"]
            )
        same = change(
            runs.column(over(base, policy="mlfs", settings=RIGID), "jct_mean"),
            runs.column(over(base, stopping=True), "jct_mean"),
        )
        rows.append([relative, "mlfs against tiresias with the same stopping", "", same, "", "", ""])
    bars("mlfs", plotted, "mean JCT, s")
    head = ["load", "policy", "mean JCT, s", "against Tiresias", "deadlines met", "targets met", "accuracy by deadline"]
    return markdown(head, rows)
