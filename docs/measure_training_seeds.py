"""How much MLF-RL depends on the seed of its training.

`python -m docs.measure_training_seeds MODEL...` runs each model on the workloads of the table of MLF-RL in
docs/results.md, on the seeds that judge there: the change of mean JCT against MLF-H, paired by seed, with its 95%
interval.

    for seed in 2000 3000 4000 5000; do slurmplug train mlf-rl --seed $seed --out seed$seed.safetensors; done
    python -m docs.measure_training_seeds policies/models/mlf-rl.safetensors seed?000.safetensors
"""

import sys
from pathlib import Path

import numpy as np

from docs.results import learnt
from docs.results.cases import Case, over, run
from docs.results.cells import change, markdown


def jct(cases: list[Case]) -> np.ndarray:
    """(seeds,) mean JCT in seconds."""
    return np.array([float(run(case)["jct_mean"]) for case in cases])


def main(models: list[str]) -> None:
    """Print the table, a column for each model."""
    rows = []
    for label, workload, cluster, load in learnt.WHERE:
        cases = learnt.cases(workload, cluster, load)
        before = jct(over(cases, policy="mlf-h"))
        after = (jct(over(cases, settings=(("model", str(Path(model).resolve())),))) for model in models)
        rows.append([f"{label}, {cluster}", f"{load:g}", *(change(each, before) for each in after)])
        print(rows[-1], file=sys.stderr, flush=True)
    print(markdown(["workload, cluster", "load", *(Path(model).stem for model in models)], rows))


if __name__ == "__main__":
    main(sys.argv[1:])
