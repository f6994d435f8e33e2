"""The coefficients of `slurmplug.sim.workloads.server_models` from measured speeds by workers and parameter servers.

    python -m docs.fit_server_speeds dl2_ps_worker_speed.csv

The file is a table of the measurements that DL2's authors published beside their code (github.com/pengyanghua/DL2,
config_speed.txt): eight models, synchronous training, 1 to 12 workers and 1 to 23 servers; columns model, sync_mode,
num_ps, num_workers and speed_sum_reported, the workers' speeds together. Rows of speed 0 are left out.
"""

import argparse

import numpy as np
import pandas as pd

from policies.marginal_gain.server_speeds import fitted, rate


def main() -> None:
    """Print, of each model, its coefficients with one worker and one server taking 1, and the relative errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    table = pd.read_csv(parser.parse_args().file)
    table = table[(table.sync_mode == "dist_sync") & (table.speed_sum_reported > 0)]
    for model, rows in table.groupby("model"):
        workers, servers = rows.num_workers.to_numpy(float), rows.num_ps.to_numpy(float)
        measured = rows.speed_sum_reported.to_numpy(float)
        times = fitted(workers, servers, 1 / measured)
        errors = np.abs(rate(times, workers, servers) / measured - 1)
        own = ", ".join(f"{each:.4f}" for each in times / times.sum())
        print(f"{model}: {own}; {len(rows)} points, mean error {errors.mean():.1%}, largest {errors.max():.0%}")


if __name__ == "__main__":
    main()
