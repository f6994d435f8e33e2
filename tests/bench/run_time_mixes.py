"""How often 90% intervals of run times hold on mixes (docs/predictors.md): `python -m tests.bench.run_time_mixes`."""

import numpy as np

from tests.run_time_sites import site
from tests.unit.forecasting.test_coverage import MIXES, forecasts, within

SEEDS = range(500, 506)


def main() -> None:
    print("| site | all jobs | the stopped ones | by seed |\n|---|---|---|---|")
    for name, mix in MIXES.items():
        sites = [site(seed, **mix) for seed in SEEDS]
        inside = [within(forecasts(one), one) for one in sites]
        stopped = np.concatenate([one.stopped for one in sites])
        every = np.concatenate(inside)
        of_stopped = f"{every[stopped].mean():.2f}" if stopped.any() else ""
        by_seed = ", ".join(f"{each.mean():.2f}" for each in inside)
        print(f"| {name} | {every.mean():.2f} | {of_stopped} | {by_seed} |", flush=True)


if __name__ == "__main__":
    main()
