"""The demo's view of the queue, from the ledger alone: a live table on a terminal, else a line for each event."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from policies.plan import Reason
from slurmplug.console import times
from slurmplug.console.table import printable
from slurmplug.ledger import queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports import explain, job_view, live_order
from slurmplug.reports.explain import About
from slurmplug.reports.job_view import Job

EVENTS_SHOWN = 6
ENDED_SHOWN = 8
_WIDTHS = {"Job": 6, "User": 6, "Name": 13, "GPUs": 4, "State": 9, "Iteration": 9, "Quantity": 24, "Rank": 6}
_NUMBERS = frozenset({"Job", "GPUs", "Iteration", "Rank"})
MIN_OVERTAKEN = 5
"""pending jobs that a job has to overtake at once for an event"""


@dataclass(frozen=True)
class QueueState:
    """What the ledger has of some jobs at one time, by the jobs' rows in the ledger.

    `order` are the pending jobs by rank, `stops` the reasons of the stops.
    """

    jobs: Mapping[int, Job]
    order: Sequence[int]
    stops: Mapping[int, Reason]

    @classmethod
    def of(cls, ledger: Ledger, which: Sequence[JobId]) -> "QueueState":
        """The state of these jobs. Raises LedgerError."""
        jobs = job_view.jobs(ledger, Selection(tuple(which)))
        return cls(
            jobs={job.row: job for job in jobs},
            order=[job.row for job in live_order.ranked(jobs)],
            stops=queries.stop_reasons(ledger),
        )

    @property
    def live(self) -> list[Job]:
        """The jobs that have not ended."""
        return [job for job in self.jobs.values() if job.live]

    @property
    def running(self) -> list[Job]:
        """The jobs that have started and not ended."""
        return [job for job in self.live if not job.waits]

    @property
    def ended(self) -> list[Job]:
        """The jobs that have ended, the latest first."""
        return sorted((job for job in self.jobs.values() if not job.live), key=lambda job: -(job.ended or 0.0))

    @property
    def gpus(self) -> int:
        """The number of GPUs in use."""
        return sum(job.facts.gpus for job in self.running)

    def why_stopped(self, job: Job) -> str:
        """The reason of the job's stop as a sentence, empty for a job without one."""
        reason = self.stops.get(job.row)
        return explain.sentence(reason, About(job.quantity, job.sign)) if reason else ""


EMPTY_QUEUE = QueueState({}, (), {})


def events(before: QueueState, after: QueueState) -> Iterator[str]:
    """What happened between two states, one line for each event."""
    for row, job in after.jobs.items():
        old = before.jobs.get(row)
        if row in after.stops and row not in before.stops:
            why = after.why_stopped(job)
            yield f"stop       {job_title(job)}: {why[:1].lower()}{why[1:]}"
        if not job.live and (old is None or old.live):
            saved = f", {job.saved:.0f} iterations saved" if job.saved else ""
            elapsed = times.format_duration(job.elapsed)
            yield f"ended      {job_title(job)}: {job.facts.state} after {elapsed}{saved}"
        elif job.live and not job.waits and (old is None or old.waits):
            facts = job.facts
            yield f"started    {job_title(job)}: {gpu_count(facts.gpus)} on {printable(facts.node_list)}"
    yield from _overtakings(before, after)


def _overtakings(before: QueueState, after: QueueState) -> Iterator[str]:
    """The jobs that are ranked before MIN_OVERTAKEN jobs which were pending already and ranked before them."""
    old = {row: position for position, row in enumerate(before.order)}
    for position, row in enumerate(after.order):
        behind = [old[other] for other in after.order[position + 1 :] if other in old]
        if sum(other < old.get(row, len(old)) for other in behind) >= MIN_OVERTAKEN:
            yield f"rank       {job_title(after.jobs[row])}: now {position + 1} of {len(after.order)} pending jobs"


def job_title(job: Job) -> str:
    """The job's id and name."""
    return f"{job.id} {printable(job.facts.name)}"


def gpu_count(gpus: int) -> str:
    """1 GPU, 2 GPUs."""
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"


class EventPrinter:
    """Prints a line for each event, with the seconds since the start."""

    def __init__(self, console: Console, gpus: int) -> None:
        self._console, self._gpus = console, gpus
        self._began = time.monotonic()
        self._state = EMPTY_QUEUE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        return

    def add_event(self, text: str) -> None:
        """Print one event."""
        self._put(Text(f"{time.monotonic() - self._began:4.0f} s  {text}"))

    def show(self, state: QueueState) -> None:
        """Show a new state, by what has changed since the last one."""
        for event in events(self._state, state):
            self.add_event(event)
        self._state = state

    def _put(self, line: Text) -> None:
        self._console.print(line)


class LiveTable(EventPrinter):
    """Draws the queue as a table on a terminal, below the latest events."""

    def __init__(self, console: Console, gpus: int) -> None:
        super().__init__(console, gpus)
        self._latest: deque[Text] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._live.stop()

    def show(self, state: QueueState) -> None:
        """Draw the table again."""
        super().show(state)
        self._live.update(Group(self._head(state), *self._latest, _queue(state, self._console.width)), refresh=True)

    def _put(self, line: Text) -> None:
        line.truncate(self._console.width, overflow="ellipsis")
        self._latest.append(line)

    def _head(self, state: QueueState) -> RenderableType:
        pending = len(state.live) - len(state.running)
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(self._gpus, state.gpus, width=self._gpus),
            f"GPUs: {state.gpus} of {self._gpus}    jobs: {len(state.running)} running, {pending} pending, "
            f"{len(state.ended)} ended, {len(state.stops)} stops requested",
        )
        return line


def make_view(console: Console, gpus: int) -> EventPrinter:
    """The view for a console: a live table on a terminal that can draw it. `gpus` are those of the cluster."""
    kind = LiveTable if console.is_terminal and not console.is_dumb_terminal else EventPrinter
    return kind(console, gpus)


def _queue(state: QueueState, width: int) -> Table:
    """The running jobs, the pending ones by rank, and those that ended last."""
    width_left = max(0, width - sum(_WIDTHS.values()) - 2 * len(_WIDTHS))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, wide in _WIDTHS.items():
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", no_wrap=True, width=wide)
    table.add_column("Why", no_wrap=True)
    ranked = [state.jobs[row] for row in state.order]
    others = [job for job in state.live if job.waits and job.row not in set(state.order)]
    for job in [*state.running, *ranked, *others, *state.ended[:ENDED_SHOWN]]:
        facts, style = job.facts, "dim" if not job.live else "" if job.waits else "bold"
        cells = [job.id, facts.user, facts.name, str(facts.gpus), facts.state, _iterations(job), _quantity(job)]
        cells += [_rank(job), (state.why_stopped(job) or _nodes_or_reason(job))[:width_left]]
        table.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    return table


def _iterations(job: Job) -> str:
    most = job.directives.max_iterations if job.directives else None
    if job.iteration is None:
        return ""
    return f"{job.iteration:.0f} of {most}" if most else f"{job.iteration:.0f}"


def _quantity(job: Job) -> str:
    if job.value is None:
        return ""
    target = job.directives.target if job.directives else None
    return f"{job.quantity} {job.value:.3f}" + (f" ({target.relation} {target.value:g})" if target else "")


def _rank(job: Job) -> str:
    return f"{job.ranking.score:.3g}" if job.ranking and job.ranking.score is not None and job.live else ""


def _nodes_or_reason(job: Job) -> str:
    if job.waits:
        return job.facts.reason
    return job.facts.node_list if job.live else times.format_duration(job.elapsed)
