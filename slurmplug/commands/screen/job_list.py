"""The lines of the queue, of which only those in view are drawn: ten thousand take no longer than twenty."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.events import Click
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip


class JobList(ScrollView, can_focus=True):
    """A line for each job, one of which is selected."""

    BINDINGS = [  # noqa: RUF012 as textual declares it
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move_page(-1)", show=False),
        Binding("pagedown", "move_page(1)", show=False),
        Binding("home", "move_to(0)", show=False),
        Binding("end", "move_to(-1)", show=False),
    ]

    def __init__(self) -> None:
        """Without any job yet."""
        super().__init__()
        self._lines: Sequence[str] = ()
        self._jobs: Sequence[str] = ()
        self._cursor = 0

    @property
    def cursor(self) -> int:
        """The number of the selected line."""
        return self._cursor

    @property
    def selected(self) -> str | None:
        """The id of the selected job; None where there is none."""
        return self._jobs[self._cursor] if self._jobs else None

    def show(self, lines: Sequence[str], jobs: Sequence[str]) -> None:
        """Show these lines, without unprintable characters, of these jobs.

        The selected job stays selected if it is there, and in view if it was.
        """
        before, in_view = self.selected, self.scroll_offset.y <= self._cursor < self.scroll_offset.y + self.size.height
        self._lines, self._jobs = lines, jobs
        self.virtual_size = Size(self.size.width, len(lines))
        self._select(jobs.index(before) if before is not None and before in jobs else self._cursor, follow=in_view)

    def render_line(self, y: int) -> Strip:
        """One line of the view."""
        width, at = self.size.width, self.scroll_offset.y + y
        style = self.rich_style
        if at == self._cursor and self._lines:
            style += Style(reverse=True, bold=self.has_focus)
        text = self._lines[at] if at < len(self._lines) else ""
        return Strip([Segment(text, style)]).adjust_cell_length(width, style)

    def action_move(self, by: int) -> None:
        """Select a job further down, or up."""
        self._select(self._cursor + by)

    def action_move_page(self, by: int) -> None:
        """Select a job further down, or up, by as many lines as are in view."""
        self._select(self._cursor + by * max(1, self.size.height - 1))

    def action_move_to(self, at: int) -> None:
        """Select the first job, or by -1 the last."""
        self._select(at if at >= 0 else len(self._lines) - 1)

    def on_click(self, event: Click) -> None:
        """Select the job that is clicked."""
        if self.scroll_offset.y + event.y < len(self._lines):
            self._select(self.scroll_offset.y + event.y)

    def _select(self, at: int, *, follow: bool = True) -> None:
        self._cursor = min(max(at, 0), max(len(self._lines) - 1, 0))
        if follow:
            self.scroll_to_region(Region(0, self._cursor, 1, 1), animate=False, force=True)
        self.refresh()
