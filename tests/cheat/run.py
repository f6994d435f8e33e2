"""Every cheater beside its honest twin, and the bounds of docs/security.md: `make cheat`.

Rows by name, as arguments, or all; `--seeds` how many each simulated row is played with. Ends with 1 where a bound is
broken.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from slurmplug.sandbox import Sandbox
from tests.cheat.harness import SEEDS, Row, Stage, judge, rows, table


def main(argv: Sequence[str] | None = None) -> None:
    """Play the rows and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("rows", nargs="*", help="names of rows")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--simulated", action="store_true", help="leave out the rows that need a real Slurm")
    asked = options.parse_args(argv)
    known = {row.name: row for row in rows()}
    if unknown := set(asked.rows) - known.keys():
        options.error(f"no rows {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    chosen = [row for row in known.values() if row.name in asked.rows or not asked.rows]
    verdicts = []
    with ExitStack() as stack:
        cluster: Sandbox | None = None
        for row in chosen:
            if row.live and asked.simulated:
                continue
            if row.live and cluster is None:
                cluster = stack.enter_context(Sandbox())
            verdicts.append(judge(row, stages(row, asked.seeds, cluster)))
            print(table(verdicts[-1:]).splitlines()[-1], flush=True)
    print(f"\n{table(verdicts)}\n\nsimulated: seeds 0 to {asked.seeds - 1}; live: once")
    sys.exit(not all(verdict.ok for verdict in verdicts))


def stages(row: Row, seeds: int, cluster: Sandbox | None) -> list[Stage]:
    """One for each seed, or the real one."""
    return [Stage(cluster=cluster)] if row.live else [Stage(seed) for seed in range(seeds)]


if __name__ == "__main__":
    main(sys.argv[1:])
