"""The same real jobs under Slurm alone and under slurmplug, policy by policy: `make bench-live`.

`rigid`: jobs that never are restarted, so that order and stopping are all that a policy can give; OASiS also keeps jobs
waiting until they are admitted. `elastic`: jobs with checkpoints, most of them with a range of GPUs, which are resized
where they wait, grown, shrunk and preempted; nobody stops them early.

Each seed's jobs run once under every policy, on a fresh cluster of 16 GPUs, a few clusters side by side. A daemon knows
how another draw of such jobs went. Changes are by seed; ± is the 95% interval of their mean. Where docs/results.md
names the command, its table is written there. `--simulated` has the same jobs in the simulator, for what is to be
expected, and there one order that has the true run times.
"""

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from scipy import stats

from predictors.arrays import Floats
from tests.bench.live_runs import ADMITS, ALONE, DESIGNS, Design, Figures, history, measured, simulated

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
END = "<!-- end -->"
Runs = Mapping[str, Sequence[Figures]]
"""by row, in the order of the seeds"""
Row = tuple[str, float | None]
"""a policy, and its bound on being passed where it is not the default"""


def table(runs: Runs, design: Design) -> str:
    """A line a row. The worst job: of all seeds, and the mean of each seed's."""
    columns = {
        head: (name, form)
        for head, (name, form) in design.columns.items()
        if any(name in each for several in runs.values() for each in several)
    }
    head = ("policy", "mean JCT", "against Slurm alone", "worst job", *columns)
    lines: list[tuple[str, ...]] = [head, ("---",) * len(head)]
    alone = [np.array(each["turnaround"]) for each in runs[ALONE]]
    for row, several in runs.items():
        ours = [np.array(each["turnaround"]) for each in several]
        pairs = list(zip(ours, alone, strict=True))
        # where some never ran, the same jobs are compared
        change = np.array([np.nanmean(mine) / theirs[~np.isnan(mine)].mean() - 1 for mine, theirs in pairs])
        worst = [float(np.nanmax(mine / theirs)) for mine, theirs in pairs]
        against = (f"{interval(100 * change)}%", f"{max(worst):.1f} times (mean {np.mean(worst):.1f})")
        lines.append((
            row,
            f"{np.mean([np.nanmean(mine) for mine in ours]):.1f} s",
            *(("", "") if row == ALONE else against),
            *(_cell([each[name] for each in several if name in each], form) for name, form in columns.values()),
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(values: Sequence[float], form: str) -> str:
    return form.format(np.mean(values)) if values else ""


def interval(values: Floats) -> str:
    """The mean, and half the width of its interval of 95%, where there are several."""
    if len(values) < 2:
        return f"{values.mean():+.0f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.0f} ± {half:.0f}"


def row(policy: str, max_bypass: float | None) -> str:
    """What a run is called in the table."""
    return policy if max_bypass is None else f"{policy}, max_bypass {max_bypass:g}"


class Kept:
    """What was run before, in a folder: figures by design, row and seed, and the ledgers that daemons begin with."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._design, self._ledger = name, DESIGNS[name], folder / f"{name}.db"
        self._path = folder / f"{name}.json"
        self._figures: dict[str, Figures] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def runs(self, rows: Sequence[Row], seeds: Sequence[int], at_once: int) -> Runs:
        """The figures by row. What is not there is run, seed by seed, so many clusters side by side."""
        missing = [(*each, seed) for seed in seeds for each in rows if self._key(*each, seed) not in self._figures]
        if missing and not self._ledger.exists():
            history(self._design, self._ledger)
        with ThreadPoolExecutor(at_once) as pool:
            running = {pool.submit(self._measured, run): run for run in missing}
            for future in as_completed(running):
                if future.exception() is None:
                    self._keep(self._key(*running[future]), future.result())
            for future in running:
                future.result()  # raises what failed, once the others are kept
        return {row(*each): [self._figures[self._key(*each, seed)] for seed in seeds] for each in rows}

    def _keep(self, key: str, made: Figures) -> None:
        print(f"{key}: {json.dumps({**made, 'turnaround': np.mean(made['turnaround'])})}", flush=True)
        self._figures[key] = made
        self._path.write_text(json.dumps(self._figures))

    def _measured(self, run: tuple[str, float | None, int]) -> Figures:
        policy, max_bypass, seed = run
        return measured(self._design, policy, seed, ledger=self._ledger, max_bypass=max_bypass)

    def _key(self, policy: str, max_bypass: float | None, seed: int) -> str:
        return f"{row(policy, max_bypass)}, seed {seed}"


def written(page: str, command: str, made: str) -> str:
    """The page with the table where it names the command; as it is where it does not."""
    head, mark, rest = page.partition(f"<!-- made by {command} -->")
    return f"{head}{mark}\n\n{made}\n\n{END}{rest.partition(END)[2]}" if mark else page


def command(asked: argparse.Namespace) -> str:
    """By which the page names a table: what it is of, and not how it was run."""
    words = ["python -m tests.bench.live", asked.jobs, *(["--simulated"] if asked.simulated else [])]
    words += [f"--first-seed {asked.first_seed}"] if asked.first_seed != 1 else []
    words += [f"--seeds {asked.seeds}", *(f"--policy {shlex.quote(each)}" for each in asked.policy or ())]
    return " ".join([*words, *(f"--max-bypass {each:g}" for each in asked.max_bypass or ())])


def options() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", choices=DESIGNS)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--policy", action="append", help="of the table's rows; Slurm alone is always run")
    parser.add_argument("--max-bypass", type=float, action="append", help="guardrails.max_bypass, or inf")
    parser.add_argument("--at-once", type=int, default=2, help="how many clusters side by side")
    parser.add_argument("--keep", type=Path, help="a folder for what was run, which is not run again")
    parser.add_argument("--simulated", action="store_true", help="in the simulator, in minutes")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is asked for, print the table, and write it where the page names the command."""
    parser = options()
    asked = parser.parse_args(argv)
    design = DESIGNS[asked.jobs]
    known = list(design.policies)
    if asked.simulated:
        known = [*(name for name in known if name != ADMITS), *design.simulated]
    if unknown := set(asked.policy or ()) - set(known):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(known)}")
    named = [name for name in known if name != ALONE and (not asked.policy or name in asked.policy)]
    rows = [(ALONE, None), *((name, bound) for name in named for bound in asked.max_bypass or (None,))]
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    if asked.simulated:
        runs: Runs = {
            row(*each): [simulated(design, each[0], seed, max_bypass=each[1]) for seed in seeds] for each in rows
        }
    else:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            keep = asked.keep or Path(folder)
            keep.mkdir(parents=True, exist_ok=True)
            runs = Kept(asked.jobs, keep).runs(rows, seeds, asked.at_once)
    made = table(runs, design)
    print(f"\n{made}")
    page = PAGE.read_text()
    if (changed := written(page, command(asked), made)) != page:
        PAGE.write_text(changed)


if __name__ == "__main__":
    main(sys.argv[1:])
