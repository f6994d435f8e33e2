"""The options that name a log of past jobs, of which exactly one is to be given."""

import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from slurmplug.commands.options import with_options
from slurmplug.config.schema import Config
from slurmplug.console import progress
from slurmplug.errors import UsageError

_OPTIONS = (
    click.argument("name", metavar="[WORKLOAD]", required=False),
    click.option(
        "--sacct", "sacct_path", metavar="FILE", help="What `sacct --parsable2` listed; the same as sacct:FILE."
    ),
    click.option("--from-ledger", is_flag=True, help="The jobs in the ledger that ran and were not stopped."),
    click.option("--since", default="", metavar="TIME", help="What sacct lists from TIME on, such as now-30days."),
)


@dataclass(frozen=True)
class PastJobs:
    """The log, as the options name it."""

    name: str | None
    sacct_path: str | None
    from_ledger: bool
    since: str

    @property
    def title(self) -> str:
        """What it is called in a report."""
        return self.name or self.sacct_path or (f"sacct since {self.since}" if self.since else "the ledger")

    @contextmanager
    def opened(self, config: Config, ledger_path: Path | None) -> Iterator[str]:
        """The log as `load` names it. ledger_path: of the ledger, if not the configuration's.

        Raises:
            UsageError: none is named, or several
            ReadFailed: sacct does not answer
        """
        if sum(map(bool, (self.name, self.sacct_path, self.from_ledger, self.since))) != 1:
            raise UsageError(
                "name one log of past jobs: --sacct FILE, --from-ledger, --since now-30days, or a log such as swf:FILE"
            )
        if self.since:
            from slurmplug.cluster.job_history import JobHistoryClient  # noqa: PLC0415  other pasts do without

            with tempfile.TemporaryDirectory(prefix="slurmplug-") as folder:
                path = Path(folder) / "sacct.txt"
                with progress.spinner("sacct"):
                    listed = JobHistoryClient(config.slurm.conf, config.slurm.bin).runs(self.since)
                path.write_text(listed, encoding="utf-8")
                yield f"sacct:{path}"
        elif self.from_ledger:
            yield f"ledger:{ledger_path or config.ledger.path}"
        else:
            yield self.name or f"sacct:{self.sacct_path}"


def past_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that name a log; the command gets `past`."""

    @functools.wraps(command)
    def with_past(*, name: str | None, sacct_path: str | None, from_ledger: bool, since: str, **others: Any) -> None:
        command(past=PastJobs(name, sacct_path, from_ledger, since), **others)

    return with_options(with_past, _OPTIONS)
