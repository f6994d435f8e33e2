"""How many jobs of a log a time limit that `slurmplug suggest` would have suggested had ended.

`python -m docs.measure_suggested_limits LOG...` takes logs as `slurmplug evaluate runtime` does. A job gets the limit
that would have been suggested by the jobs of its user, program and size that had ended when it was submitted, with the
run time forecasts as they would have been. Processors count as GPUs, and a run of 99% of its limit as ended by it; all
others count as completed.
"""

import heapq
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from predictors.trials import runtime
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.intake.job_facts import JobFacts
from slurmplug.learning.dataset_files import read_job_log
from slurmplug.ledger.suggestion_queries import EndedJob
from slurmplug.reports.suggest import suggest
from slurmplug.spool.values import NOT_MEASURED

NOTHING_SEEN = SeenSpeeds()
WINDOW = 30 * 86_400.0
"""Seconds; the default of `suggest`."""
_FACTS = JobFacts(**dict.fromkeys(JobFacts._fields, 0))._replace(gpu_type="", gpu_type_held="")


class Limited(NamedTuple):
    """A job with a suggested limit: seconds that it ran, its own limit, and the suggested one."""

    ran: float
    own: float
    suggested: float


def limited(path: Path) -> Iterator[Limited]:
    """The jobs of a log for which one would have been suggested."""
    log = read_job_log(path)
    forecast, _ = runtime.replay("stack", log.jobs, np.maximum(log.runtimes, 1.0), time.perf_counter)
    longest, by_runs = forecast.quantile(0.95), forecast.source != "time limit"
    ended: dict[tuple[object, ...], list[tuple[float, EndedJob]]] = defaultdict(list)
    running: list[tuple[float, int]] = []
    kinds = [tuple(job.get(name) for name in ("user", "exe", "cpus")) for job in log.jobs]
    for row, job in enumerate(log.jobs):
        while running and running[0][0] <= job["submit"]:
            end, other = heapq.heappop(running)
            known = float(longest[other]) if by_runs[other] and np.isfinite(longest[other]) else None
            ended[kinds[other]].append((end, _ended(log.jobs[other], float(log.runtimes[other]), known)))
        heapq.heappush(running, (float(job["end"]), row))
        own = job.get("time_limit")
        recent = [each for end, each in ended[kinds[row]] if end > job["submit"] - WINDOW]
        for found in suggest(recent, NOTHING_SEEN).suggestions if own else ():
            if found.better is not None and found.better < own:
                yield Limited(float(log.runtimes[row]), float(own), found.better)


def _ended(job: runtime.Job, ran: float, longest: float | None) -> EndedJob:
    limit = job.get("time_limit")
    facts = _FACTS._replace(
        user=str(job.get("user")),
        gpus=int(job.get("cpus") or 0),
        time_limit=limit,
        state="TIMEOUT" if limit and ran >= 0.99 * limit else "COMPLETED",
    )
    return EndedJob(facts, str(job.get("exe")), max(ran, 1.0), False, longest, NOT_MEASURED, None)


def main() -> None:
    """Print a row of each log."""
    print("log | suggested | ended by it | longer than their own | limit, of their own (median)\n---|---|---|---|---")
    for path in map(Path, sys.argv[1:]):
        found = list(limited(path))
        by_it = sum(each.suggested < each.ran < 0.99 * each.own for each in found)
        by_own = sum(each.ran >= 0.99 * each.own for each in found)
        share = float(np.median([each.suggested / each.own for each in found])) if found else float("nan")
        print(f"{path.name} | {len(found)} | {by_it} ({by_it / max(len(found), 1):.1%}) | {by_own} | {share:.0%}")


if __name__ == "__main__":
    main()
