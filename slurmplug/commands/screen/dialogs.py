"""What is asked and said in front of the queue. No text is read as markup."""

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from slurmplug.console.table import printable

HELP = """\
Up, Down, PageUp, PageDown, Home, End   select a job
Enter   what `slurmplug why` says of it, its learning curve, the end of its output
/       filter, as you type: words that occur in a job's line, or
        user=NAME name=NAME partition=NAME state=PD; all of them have to fit
Escape  takes the filter away, and goes back
s       sort by a column; the same column again reverses the order
h r c   hold, release or cancel the job, by scontrol and scancel, with your rights
?       this
q       quit

The columns are those of `slurmplug queue`; a wider terminal shows more of them.
"""


class TextDialog(ModalScreen[None]):
    """Shows a text until a key is pressed that closes it."""

    BINDINGS = [Binding("escape,enter,q,question_mark", "close", "Close")]  # noqa: RUF012 as textual declares it

    def __init__(self, text: str) -> None:
        """text: may have line breaks; what else is unprintable is escaped."""
        super().__init__()
        self._text = shown(text.splitlines())

    def compose(self) -> ComposeResult:
        """The text, and how to close it."""
        with VerticalScroll():
            yield Static(f"{self._text}\n\nEnter: close", markup=False)

    def action_close(self) -> None:
        """Back to what was there before."""
        self.dismiss(None)


class ConfirmDialog(ModalScreen[bool]):
    """Asks a question; y answers it with yes, n or Escape with no."""

    BINDINGS = [  # noqa: RUF012 as textual declares it
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        """question: unprintable characters are escaped."""
        super().__init__()
        self._question = printable(question)

    def compose(self) -> ComposeResult:
        """The question, and its answers."""
        with VerticalScroll():
            yield Static(f"{self._question}\n\ny: yes   n: no", markup=False)

    def action_answer(self, yes: bool) -> None:
        """Give the answer."""
        self.dismiss(yes)


class SortMenu(ModalScreen[str | None]):
    """The columns; the answer is empty for the queue's own order, and None for no change."""

    BINDINGS = [Binding("escape,q", "close", "Close")]  # noqa: RUF012 as textual declares it
    OWN_ORDER = "the queue's own order"

    def __init__(self, columns: Iterable[str], now: str) -> None:
        """now: the column that is sorted by."""
        super().__init__()
        self._columns, self._now = ["", *columns], now

    def compose(self) -> ComposeResult:
        """The menu, at the present column."""
        menu = OptionList(*(Option(each or self.OWN_ORDER) for each in self._columns), markup=False, compact=True)
        menu.highlighted = self._columns.index(self._now)
        yield menu

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """The column is chosen."""
        self.dismiss(self._columns[event.option_index])

    def action_close(self) -> None:
        """No change."""
        self.dismiss(None)


def shown(lines: Iterable[str]) -> str:
    """The lines as a text that can be shown: without control characters other than its line breaks."""
    return "\n".join(map(printable, lines))
