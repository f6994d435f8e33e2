"""The page of the nodes: which jobs ran where and when."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from slurmplug.cluster.hostlist import expand
from slurmplug.console.table import counted
from slurmplug.console.times import format_time
from slurmplug.endpoint.web.svg import Chart
from slurmplug.endpoint.web.time_axis import Window
from slurmplug.ledger import page_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.reports import job_view
from slurmplug.reports.job_view import Job
from slurmplug.reports.viewer import Viewer

MOST_JOBS, MOST_NODES, MOST_LANES = 500, 200, 16
"""in one chart; of the jobs the latest"""
LANE = 14
"""the height of a job in the chart"""


class Run(NamedTuple):
    """A job on its nodes."""

    job: Job
    nodes: Sequence[str]
    start: float
    end: float
    text: str
    """what is said of it"""

    @property
    def kind(self) -> str:
        """Its class in the style sheet."""
        return "stopped" if self.job.stop else "managed" if self.job.managed else "plain"


def values(ledger: LedgerFile, viewer: Viewer, window: Window) -> dict[str, Any]:
    """What the page shows."""
    owner = None if viewer.sees_all else viewer.uid
    rows = page_queries.runs(ledger, window.start, window.end, owner, MOST_JOBS + 1)
    found = [each for job in job_view.jobs_in_rows(ledger, rows[:MOST_JOBS]) if (each := _run(job)) is not None]
    by_node: dict[str, list[Run]] = defaultdict(list)
    for each in sorted(found, key=lambda run: run.start):
        for node in each.nodes:
            by_node[node].append(each)
    shown = sorted(by_node, key=_natural)
    return {
        "chart": _drawn({node: by_node[node] for node in shown[:MOST_NODES]}, window) if shown else None,
        "runs": found,
        "more_jobs": MOST_JOBS if len(rows) > MOST_JOBS else 0,
        "more_nodes": max(0, len(shown) - MOST_NODES),
    }


def _run(job: Job) -> Run | None:
    until = job.seen if job.live else job.ended
    if job.started is None or until is None:
        return None
    try:
        nodes = sorted(set(expand(job.facts.node_list or "")))
    except ValueError:
        return None
    facts = job.facts
    about = f"{facts.name}, {facts.user}, {counted(facts.gpus or 0, 'GPU')}, {facts.state}"
    ended = "now" if job.live else format_time(until)
    return Run(job, nodes, job.started, until, f"{job.id}: {about}, {format_time(job.started)} to {ended}")


def _drawn(nodes: Mapping[str, Sequence[Run]], window: Window) -> Markup:
    placed = {node: _lanes(runs) for node, runs in nodes.items()}
    tops, top = {}, 0
    for node, lanes in placed.items():
        tops[node] = top
        top += max(lane for _, lane in lanes) + 1
    middles = {-(tops[node] + (max(lane for _, lane in lanes) + 1) / 2): node for node, lanes in placed.items()}
    chart = Chart("Jobs by node and time", (window.start, window.end), (-top, 0.0), height=top * LANE + 54)
    chart.axes(window.axis(), list(middles), ("time", ""), (window.text, middles.__getitem__))
    for node, lanes in placed.items():
        for each, lane in lanes:
            y = -(tops[node] + lane)
            chart.box(each.kind, (each.start, each.end), (y - 0.92, y - 0.08), each.text, f"job?id={each.job.id}")
    return chart.markup()


def _lanes(runs: Iterable[Run]) -> list[tuple[Run, int]]:
    """Each of these runs, the first to start first, and the lowest lane that is free then."""
    ends: list[float] = []
    placed = []
    for each in runs:
        free = next((lane for lane, end in enumerate(ends) if end <= each.start), len(ends))
        if free == len(ends) < MOST_LANES:
            ends.append(each.end)
        free = min(free, MOST_LANES - 1)
        ends[free] = max(ends[free], each.end)
        placed.append((each, free))
    return placed


def _natural(name: str) -> list[tuple[int, str]]:
    """A key by which n2 comes before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
