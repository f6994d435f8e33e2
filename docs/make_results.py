"""Makes the tables of docs/results.md anew: `make results`, or `python -m docs.make_results NAME...` for some.

Workloads that are not part of the package are looked for in the folder that DATA names; a table that needs one is left
as it is where there is none. Results of runs are kept in .results, so that what was interrupted goes on: as long as
neither the code nor the data change, nothing is run twice.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from docs.results import dials, dl2, first, learnt, mlfs, others, papers, simulator, users
from docs.results.cases import DATA, Runs
from docs.results.headline import headline, more_time
from docs.results.lanes import Lanes
from docs.results.plots import bars
from docs.results.store import ROOT, Store

PAGE = Path(__file__).with_name("results.md")
PROCESSES = 2

TABLES: Mapping[str, Callable[[Runs], str]] = {
    "gen-mlfs": mlfs.gen_mlfs,
    "first": first.first,
    "first-kept": first.first_kept,
    "first-fairness": first.first_fairness,
    "first-whole": first.first_whole,
    "launched": first.launched,
    "variants": first.variants,
    "epsilons": first.epsilons,
    "plain": users.plain,
    "dials": dials.dials,
    "ablations": mlfs.ablations,
    "slaq": others.slaq,
    "slaq-allocation": papers.slaq_allocation,
    "slaq-restart": others.slaq_restart,
    "oasis": others.oasis,
    "parity": simulator.parity,
    "oasis-published": papers.oasis_published,
    "oasis-bounds": papers.oasis_bounds,
    "ml-sjf": papers.ml_sjf,
    "dl2": dl2.dl2,
    "dl2-wrong": dl2.dl2_wrong,
    "dl2-elsewhere": dl2.dl2_elsewhere,
    "dl2-servers": dl2.dl2_servers,
    "mlf-rl": learnt.mlf_rl,
    "mlf-rl-rivals": learnt.mlf_rl_rivals,
    "models": learnt.evaluations,
}
"""those that take longest first"""
CLOCKED: Mapping[str, Callable[[], str]] = {"speed": simulator.speed, "decide": simulator.decide}
"""These measure time, and need the machine to themselves; no other table has a time in it."""
HEADLINE = "headline"
"""made at the end of every call, from the tables that are on the page then"""
LOGS = frozenset({"slaq-restart", "parity", "speed"})
"""These replay what DATA holds."""


def renewed(page: str, name: str, table: str) -> str:
    """The page with this table in its place."""
    begin, end = f"<!-- made by python -m docs.make_results {name} -->", "<!-- end -->"
    head, _, rest = page.partition(begin)
    if not rest:
        raise SystemExit(f"{PAGE} has no place for {name}: write {begin} and {end}")
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"


def main(names: Sequence[str]) -> None:
    """Make these tables, or all."""
    known = [*TABLES, *CLOCKED, HEADLINE]
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no table {name!r}: {', '.join(known)}")
    wanted = [name for name in names or known if DATA or name not in LOGS]
    for name in set(names or known).difference(wanted):
        print(f"{name} is left as it is: DATA names no folder with the workloads that it replays", flush=True)
    with Lanes(PROCESSES) as lanes, ThreadPoolExecutor(len(TABLES)) as waiting:
        runs = Runs(lanes, Store(ROOT / ".results", DATA))  # each table waits in a thread, so that none keeps another
        tables = {waiting.submit(TABLES[name], runs): name for name in wanted if name in TABLES}
        for table in as_completed(tables):
            write(tables[table], table.result())
        print(f"{runs.minutes():.1f} minutes of the processor, with those of results that were kept", flush=True)
    for name in wanted:
        if name in CLOCKED:
            write(name, CLOCKED[name]())
    page = PAGE.read_text(encoding="utf-8")
    bars("first", more_time(page), "mean JCT, % more than mlfs")
    write(HEADLINE, headline(page))


def write(name: str, table: str) -> None:
    """Show it, and put it into its place on the page."""
    print(f"## {name}\n\n{table}\n", flush=True)
    new = PAGE.with_suffix(".new")
    new.write_text(renewed(PAGE.read_text(encoding="utf-8"), name, table), encoding="utf-8")
    new.replace(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
