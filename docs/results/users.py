"""The table on users without directives."""

import numpy as np

from docs.measure_plain import ELASTIC as ELASTIC_JOBS
from docs.measure_plain import RIGID as RIGID_JOBS
from docs.measure_plain import USERS, turnarounds
from docs.results.cases import Runs
from docs.results.cells import change, markdown, span

SEEDS = (0, 1, 2, 3, 4, 5)
BESIDE = (
    ("mlf-h", RIGID_JOBS, (2, 4, 6)),
    ("mlf-h", ELASTIC_JOBS, (4,)),
    ("fair", ELASTIC_JOBS, (4,)),
)
"""The policy of the others, their jobs, and how many of the users have no directives."""


def plain(runs: Runs) -> str:
    """What users without directives have beside others with them, against Slurm alone."""
    rows = []
    for policy, jobs, shares in BESIDE:
        for share in shares:
            cases = [(name, share, seed, jobs) for name in ("slurm", policy) for seed in SEEDS]
            alone, beside = np.array(runs.each(turnarounds, cases)).reshape(2, len(SEEDS), 3)
            cells = [change(beside[:, column], alone[:, column]) for column in (0, 2, 1)]
            label = f"{policy}, {'elastic' if jobs == ELASTIC_JOBS else 'rigid'}"
            rows.append([f"{100 * share // USERS}%", label, span(alone[:, 0] / 60), *cells])
    head = ["the others' policy and jobs", "their mean JCT under Slurm alone, min", "their JCT", "their wait"]
    return markdown(["users without directives", *head, "JCT of the others"], rows)
