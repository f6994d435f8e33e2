"""How far a long command is, on standard error if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def bar(title: str, what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar; yields a function of how many are done, and of how many; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.completed}/{task.total} " + what), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def spinner(title: str) -> Iterator[None]:
    """Show a spinner with the title and the time since it began, for work of which it is not known how much is left."""
    columns = (SpinnerColumn(), TextColumn(title), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(title, total=None)
        yield
