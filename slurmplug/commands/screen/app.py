"""The application: the queue, a job's story, and what is done to jobs.

What may take long is asked in threads of its own (`processes.background`), so that keys are always answered, and the
application ends without waiting for answers.
"""

import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from slurmplug.commands import queue_table
from slurmplug.commands.screen.dialogs import HELP, ConfirmDialog, SortMenu, TextDialog, shown
from slurmplug.commands.screen.job_list import JobList
from slurmplug.commands.screen.rows import SORTED_BY, Order
from slurmplug.console.table import counted, printable
from slurmplug.errors import SlurmplugError
from slurmplug.ledger.selection import WAITING
from slurmplug.processes.background import in_thread

if TYPE_CHECKING:
    from slurmplug.cluster.user_client import Change
    from slurmplug.commands.screen.source import Queue, Source

T = TypeVar("T")

QUEUE_SECONDS = 5.0
"""from one reading of the queue to the next"""
STORY_SECONDS = 10.0
"""likewise of a job's story: the endpoint counts two or three requests for it"""


class Answered(Message):
    """A question was answered; `take` does what is to be done about it."""

    def __init__(self, take: Callable[[], None]) -> None:
        super().__init__()
        self.take = take


class Top(App[None]):
    """`slurmplug top`."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "slurmplug top"
    BINDINGS = [  # noqa: RUF012 as textual declares it
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False),
    ]
    CSS = """
    * { scrollbar-size-horizontal: 0; }
    .line { height: 1; text-wrap: nowrap; text-overflow: clip; }
    #heading { text-style: bold underline; }
    JobList, StoryScreen > VerticalScroll { scrollbar-gutter: stable; }
    .notice { height: auto; max-height: 3; text-style: bold; }
    Input { border: none; height: 1; padding: 0; }
    ModalScreen { align: center middle; }
    ModalScreen > VerticalScroll, OptionList {
        border: solid; padding: 0 1; width: auto; max-width: 90%; height: auto; max-height: 90%;
    }
    ModalScreen Static { width: auto; max-width: 100%; }
    """

    def __init__(self, source: "Source") -> None:
        """source: what is asked for everything that is shown."""
        super().__init__()
        self.source = source
        self.theme = "ansi-dark"  # the terminal's own colours

    def on_mount(self) -> None:
        """Begin with the queue."""
        self.push_screen(QueueScreen())

    def ask(self, name: str, call: Callable[[], T], take: Callable[["Future[T]"], None]) -> None:
        """Begin a call in a thread of its own; `take` gets its result here. name: of the thread."""

        def answered(future: "Future[T]") -> None:
            if self.is_running:
                self.post_message(Answered(partial(take, future)))

        in_thread(name, call).add_done_callback(answered)

    def on_answered(self, answered: Answered) -> None:
        """Do what is to be done about it."""
        answered.take()

    def action_help(self) -> None:
        """What the keys do."""
        self.push_screen(TextDialog(HELP))


class JobScreen(Screen[None]):
    """A screen with a job that can be held, released and cancelled."""

    app: Top
    CHANGES = (
        Binding("h", "change('hold')", "Hold"),
        Binding("r", "change('release')", "Release"),
        Binding("c", "change('cancel')", "Cancel"),
    )

    @abstractmethod
    def job(self) -> str | None:
        """The id of the job that it is about, as squeue shows it."""

    @abstractmethod
    def about(self) -> str:
        """The job as it is named in a question."""

    @abstractmethod
    def ask_again(self) -> None:
        """Read again what is shown."""

    def action_change(self, change: "Change") -> None:
        """Hold, release or cancel the job, once that is confirmed."""
        job = self.job()
        if job is None:
            return

        def answer(yes: bool | None) -> None:
            if yes:
                call = partial(self.app.source.change, change, job)
                self.app.ask(f"{change} {job}", call, partial(self._take_changed, change, job))

        self.app.push_screen(ConfirmDialog(f"{change.capitalize()} {self.about()}?"), answer)

    def _take_changed(self, change: str, job: str, future: "Future[str]") -> None:
        objection = result(future)
        if isinstance(objection, Failed) or objection:
            self.app.push_screen(TextDialog(f"{change} {job}: {objection}"))
        else:
            self.app.notify(f"{change} {printable(job)}: done", markup=False)
        self.ask_again()


class QueueScreen(JobScreen):
    """The queue, refreshed every few seconds."""

    BINDINGS = [  # noqa: RUF012 as textual declares it
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("enter", "story", "Story", key_display="Enter", priority=False),
        *JobScreen.CHANGES,
        Binding("escape", "unfilter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._queue: Queue | None = None
        self._lines: list[str] = []
        """of all jobs, for the present width"""
        self._order = Order()
        self._rows: list[int] = []
        """in that order"""
        self._asked: float | None = None
        """when an answer was asked for that has not come"""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static("slurmplug top: reading the queue", id="summary", classes="line", markup=False)
        yield Static("", id="heading", classes="line", markup=False)
        yield JobList()
        yield Static("", id="notice", classes="notice", markup=False)
        yield Input(placeholder="user=  name=  state=  partition=  or any text", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Ask for the queue, now and again."""
        self._input.display = False
        self.query_one("#notice").display = False
        self.query_one(JobList).focus()
        self.ask_again()
        self.set_interval(QUEUE_SECONDS, self.ask_again)

    def job(self) -> str | None:
        """The selected one."""
        return self.query_one(JobList).selected

    def about(self) -> str:
        """Its id, name and user."""
        job, queue = self.job(), self._queue
        if job is None or queue is None:
            return ""
        row = list(queue.values["jobid"]).index(job)
        return f"job {job} ({queue.values['jobname'][row]}, of {queue.values['user'][row]})"

    def ask_again(self) -> None:
        """Read the queue, unless the last answer is still to come, or another screen covers this one."""
        if self._asked is not None:
            if time.time() - self._asked >= QUEUE_SECONDS:
                self._say(f"No answer yet to what was asked at {_clock(self._asked)}.")
        elif self.app.screen is self or self._queue is None:
            self._asked = time.time()
            self.app.ask("queue", self.app.source.queue, self._take_queue)

    def _take_queue(self, future: "Future[Queue]") -> None:
        self._asked = None
        answer = result(future)
        if isinstance(answer, Failed):
            self._say(str(answer))
            return
        self._queue = answer
        self._say(answer.notice)
        self._rows = self._order.rows(answer.values)
        self._make_lines()

    def _make_lines(self) -> None:
        """The lines of the jobs, for the width that there is."""
        if self._queue is not None:
            width = self.query_one(JobList).scrollable_content_region.width
            heading, *self._lines = queue_table.lines(self._queue.values, max(width, 1), header=True)
            self.query_one("#heading", Static).update(heading)
            self._show()

    def _show(self) -> None:
        """Show the lines that pass the filter, in order."""
        queue = self._queue
        if queue is None:
            return
        rows, ids = queue.searchable.filtered(self._input.value, self._rows), queue.values["jobid"]
        self.query_one(JobList).show([self._lines[row] for row in rows], [ids[row] for row in rows])
        parts = [f"{len(rows)} of {counted(len(ids), 'job')}" if self._input.value else counted(len(ids), "job")]
        parts += [f"{sum(state in WAITING for state in queue.values['state'])} waiting"]
        column, reverse = self._order
        parts += [f"by {column}{', reversed' if reverse else ''}"] if column else []
        self.query_one("#summary", Static).update("  ".join(["slurmplug top", *parts, _clock(queue.at)]))

    def _say(self, text: str) -> None:
        notice = self.query_one("#notice", Static)
        notice.display = bool(text)
        notice.update(shown(text.splitlines()))

    def on_resize(self) -> None:
        """Other columns fit."""
        self.call_after_refresh(self._make_lines)

    def on_screen_resume(self) -> None:
        """What was covered is old."""
        self.ask_again()

    @property
    def _input(self) -> Input:
        return self.query_one(Input)

    def action_filter(self) -> None:
        """Type a filter."""
        self._input.display = True
        self._input.focus()

    def action_unfilter(self) -> None:
        """Show all jobs again."""
        self._input.value = ""
        self._end_typing()

    def on_input_changed(self) -> None:
        """Show what passes the filter so far."""
        self._show()

    def on_input_submitted(self) -> None:
        """Keep the filter, and go on with the list."""
        self._end_typing()

    def _end_typing(self) -> None:
        self._input.display = bool(self._input.value)
        self.query_one(JobList).focus()

    def action_sort(self) -> None:
        """Choose a column."""

        def sort(column: str | None) -> None:
            if column is not None:
                self._order = self._order.chosen(column)
                self._rows = self._order.rows(self._queue.values) if self._queue else []
                self._show()

        self.app.push_screen(SortMenu(SORTED_BY, self._order.column), sort)

    def action_story(self) -> None:
        """Open the selected job."""
        if (job := self.job()) is not None:
            self.app.push_screen(StoryScreen(job, self.about()))


class StoryScreen(JobScreen):
    """What is known of one job, refreshed every few seconds."""

    BINDINGS = [  # noqa: RUF012 as textual declares it
        Binding("escape", "close", "Back", key_display="Esc"),
        *JobScreen.CHANGES,
    ]

    def __init__(self, job: str, about: str) -> None:
        super().__init__()
        self._job, self._about = job, about
        self._asked: set[str] = set()
        """the parts of which an answer is still to come"""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(printable(self._about), classes="line", markup=False)
        with VerticalScroll():
            yield Static("", id="story", markup=False)
            yield Static("", id="output", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Ask for both, now and again."""
        self.query_one(VerticalScroll).focus()
        self.call_after_refresh(self.ask_again)
        self.set_interval(STORY_SECONDS, self.ask_again)

    def job(self) -> str:
        """The one that was opened."""
        return self._job

    def about(self) -> str:
        """As the queue named it."""
        return self._about

    def ask_again(self) -> None:
        """Read what is known of the job, and the end of its output, each unless its last answer is still to come."""
        width = self.query_one(VerticalScroll).scrollable_content_region.width
        source = self.app.source
        self._ask("story", partial(source.story, self._job, width))
        self._ask("output", partial(source.output, self._job))

    def _ask(self, part: str, call: Callable[[], list[str]]) -> None:
        if part not in self._asked:
            self._asked.add(part)
            self.app.ask(part, call, partial(self._take, part))

    def _take(self, part: str, future: "Future[list[str]]") -> None:
        self._asked.remove(part)
        answer = result(future)
        if not self.is_attached:
            return
        lines = answer.splitlines() if isinstance(answer, Failed) else answer
        heading = ["", "Output:"] if part == "output" else []
        self.query_one(f"#{part}", Static).update(shown([*heading, *lines]))

    def action_close(self) -> None:
        """Back to the queue."""
        self.dismiss(None)


class Failed(str):
    """Why there is no answer."""

    __slots__ = ()


def result(future: "Future[T]") -> "T | Failed":
    """The answer; where an error says that there is none, its text."""
    try:
        return future.result()
    except (SlurmplugError, OSError) as error:
        return Failed(error)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def run(source: "Source") -> int:
    """Show the screen until it is quit; the exit status."""
    top = Top(source)
    top.run()
    return top.return_code or 0
