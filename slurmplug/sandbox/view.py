"""The demo's view of the queue, from the ledger alone: a live table on a terminal, else a line an event."""

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
from slurmplug import times
from slurmplug.ledger import queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports import explain, job_view
from slurmplug.reports.explain import About
from slurmplug.reports.job_view import Job
from slurmplug.table import printable

EVENTS_SHOWN = 6
ENDED_SHOWN = 8
_WIDTHS = {"Job": 6, "User": 6, "Name": 13, "GPUs": 4, "State": 9, "Iteration": 9, "Quantity": 24, "Rank": 6}
_NUMBERS = frozenset({"Job", "GPUs", "Iteration", "Rank"})
LEAP = 5
"""how many waiting jobs are overtaken at once where it is worth a line"""


@dataclass(frozen=True)
class Scene:
    """What the ledger tells at one moment. `order`: the waiting jobs by rank. `stops`: why, by the job's row."""

    jobs: Mapping[int, Job]
    order: Sequence[int]
    stops: Mapping[int, Reason]

    @classmethod
    def of(cls, ledger: Ledger, which: Sequence[JobId]) -> "Scene":
        """Of these jobs. Raises LedgerError."""
        jobs = job_view.jobs(ledger, Selection(tuple(which)))
        return cls(
            jobs={job.row: job for job in jobs},
            order=[job.row for job in job_view.ranked(jobs)],
            stops=queries.stop_reasons(ledger),
        )

    @property
    def live(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.live]

    @property
    def running(self) -> list[Job]:
        return [job for job in self.live if not job.waits]

    @property
    def ended(self) -> list[Job]:
        """The latest first."""
        return sorted((job for job in self.jobs.values() if not job.live), key=lambda job: -(job.ended or 0.0))

    @property
    def gpus(self) -> int:
        """In use."""
        return sum(job.record.facts.gpus for job in self.running)

    def why_stopped(self, job: Job) -> str:
        """A sentence, empty for a job that nobody asked to stop."""
        reason = self.stops.get(job.row)
        return explain.sentence(reason, About(job.record.quantity, job.record.sign)) if reason else ""


NOTHING = Scene({}, (), {})


def events(before: Scene, after: Scene) -> Iterator[str]:
    """What happened between two scenes, a line each."""
    for row, job in after.jobs.items():
        old = before.jobs.get(row)
        if row in after.stops and row not in before.stops:
            why = after.why_stopped(job)
            yield f"stop       {named(job)}: {why[:1].lower()}{why[1:]}"
        if not job.live and (old is None or old.live):
            saved = f", {job.saved:.0f} iterations saved" if job.saved else ""
            yield f"ended      {named(job)}: {job.record.facts.state} after {times.span(job.elapsed)}{saved}"
        elif job.live and not job.waits and (old is None or old.waits):
            facts = job.record.facts
            yield f"started    {named(job)}: {counted(facts.gpus)} on {printable(facts.node_list)}"
    yield from _leaps(before, after)


def _leaps(before: Scene, after: Scene) -> Iterator[str]:
    """Who is now before many of those who waited already, and was not before."""
    were = {row: place for place, row in enumerate(before.order)}
    for place, row in enumerate(after.order):
        behind = [were[other] for other in after.order[place + 1 :] if other in were]
        if sum(other < were.get(row, len(were)) for other in behind) >= LEAP:
            yield f"rank       {named(after.jobs[row])}: now {place + 1} of {len(after.order)} that wait"


def named(job: Job) -> str:
    """The job's id and name."""
    return f"{job.id} {printable(job.record.facts.name)}"


def counted(gpus: int) -> str:
    """1 GPU, 2 GPUs."""
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"


class Lines:
    """A line an event, each with the seconds since the beginning."""

    def __init__(self, console: Console, gpus: int) -> None:
        self._console, self._gpus = console, gpus
        self._began = time.monotonic()
        self._scene = NOTHING

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        return

    def tell(self, text: str) -> None:
        """One event."""
        self._put(Text(f"{time.monotonic() - self._began:4.0f} s  {text}"))

    def show(self, scene: Scene) -> None:
        """How things stand now."""
        for event in events(self._scene, scene):
            self.tell(event)
        self._scene = scene

    def _put(self, line: Text) -> None:
        self._console.print(line)


class Board(Lines):
    """The queue as a table that is drawn again and again, under the latest events."""

    def __init__(self, console: Console, gpus: int) -> None:
        super().__init__(console, gpus)
        self._latest: deque[Text] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._live.stop()

    def show(self, scene: Scene) -> None:
        super().show(scene)
        self._live.update(Group(self._head(scene), *self._latest, _queue(scene, self._console.width)), refresh=True)

    def _put(self, line: Text) -> None:
        line.truncate(self._console.width, overflow="ellipsis")
        self._latest.append(line)

    def _head(self, scene: Scene) -> RenderableType:
        waiting = len(scene.live) - len(scene.running)
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(self._gpus, scene.gpus, width=self._gpus),
            f"GPUs: {scene.gpus} of {self._gpus}    jobs: {len(scene.running)} run, {waiting} wait, "
            f"{len(scene.ended)} ended, {len(scene.stops)} asked to stop",
        )
        return line


def view(console: Console, gpus: int) -> Lines:
    """The view that suits the console, of a cluster of so many GPUs."""
    return Board(console, gpus) if console.is_terminal and not console.is_dumb_terminal else Lines(console, gpus)


def _queue(scene: Scene, width: int) -> Table:
    """Who runs, who waits in the order of rank, who ended last."""
    room = max(0, width - sum(_WIDTHS.values()) - 2 * len(_WIDTHS))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, wide in _WIDTHS.items():
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", no_wrap=True, width=wide)
    table.add_column("Why", no_wrap=True)
    ranked = [scene.jobs[row] for row in scene.order]
    others = [job for job in scene.live if job.waits and job.row not in set(scene.order)]
    for job in [*scene.running, *ranked, *others, *scene.ended[:ENDED_SHOWN]]:
        facts, style = job.record.facts, "dim" if not job.live else "" if job.waits else "bold"
        cells = [job.id, facts.user, facts.name, str(facts.gpus), facts.state, _iterations(job), _quantity(job)]
        cells += [_rank(job), (scene.why_stopped(job) or _whereabouts(job))[:room]]
        table.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    return table


def _iterations(job: Job) -> str:
    most = job.record.directives.max_iterations if job.record.directives else None
    if job.iteration is None:
        return ""
    return f"{job.iteration:.0f} of {most}" if most else f"{job.iteration:.0f}"


def _quantity(job: Job) -> str:
    if job.value is None:
        return ""
    target = job.record.directives.target if job.record.directives else None
    return f"{job.record.quantity} {job.value:.3f}" + (f" ({target.relation} {target.value:g})" if target else "")


def _rank(job: Job) -> str:
    return f"{job.ranking.score:.3g}" if job.ranking and job.ranking.score is not None and job.live else ""


def _whereabouts(job: Job) -> str:
    if job.waits:
        return job.record.facts.reason
    return job.record.facts.node_list if job.live else times.span(job.elapsed)
