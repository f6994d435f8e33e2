"""`slurmplug usage`: GPU hours, their charge and their urgency, by month, account and user, as sreport's
AccountUtilizationByUser."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from slurmplug.config.schema import Config
from slurmplug.console import table
from slurmplug.console.table import Field
from slurmplug.ledger.sqlite import Row
from slurmplug.reports.charging import highest_rate, highest_urgency
from slurmplug.reports.job_view import Job
from slurmplug.rules.claims import MEAN_URGENCY

HOUR = 3_600.0


class Group(NamedTuple):
    """What usage is summed by. month: 2026-11, in this machine's time zone. user: empty for all of the account."""

    month: str
    account: str
    user: str


@dataclass
class Usage:
    """GPU hours, and their charge: None where the site charges nothing.

    above_mean: the sum of the GPU hours, each times what its job's --urgency is above `MEAN_URGENCY`; None where no job
    has one.
    """

    gpu_hours: float = 0.0
    charge: float | None = None
    above_mean: float | None = None

    def add(self, gpu_hours: float, rate: float | None, urgency: float | None) -> None:
        """Count GPU hours at this rate, of a job that asks for this urgency."""
        above = None if urgency is None else (urgency - MEAN_URGENCY) * gpu_hours
        self.add_usage(Usage(gpu_hours, None if rate is None else rate * gpu_hours, above))

    def add_usage(self, other: "Usage") -> None:
        """Count another usage."""
        self.gpu_hours += other.gpu_hours
        self.charge = _sum(self.charge, other.charge)
        self.above_mean = _sum(self.above_mean, other.above_mean)

    @property
    def urgency(self) -> float | None:
        """The mean over the GPU hours, `MEAN_URGENCY` for jobs that ask for none; None where no job asks for one."""
        if self.above_mean is None or not self.gpu_hours:
            return None
        return MEAN_URGENCY + self.above_mean / self.gpu_hours

    def as_json(self) -> dict[str, float | None]:
        """What `--json` has of it."""
        return {"gpu_hours": self.gpu_hours, "charge": self.charge, "urgency": self.urgency}


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else (one or 0.0) + other


def used(found: Iterable[Row], config: Config, start: float, end: float) -> dict[Group, Usage]:
    """The usage between these times, in order. found: the rows of the jobs that ran then.

    Runs before a requeue count when the job was requeued, as the ledger does not know when they began.
    """
    sums: dict[Group, Usage] = {}
    for row in found:
        job = Job(row, None)
        rate, urgency = highest_rate(job, config), highest_urgency(job, config)
        for at, gpu_seconds in _parts(job, start, end):
            month = datetime.fromtimestamp(at).strftime("%Y-%m")
            group = Group(month, job.facts.account or "", job.facts.user or "")
            sums.setdefault(group, Usage()).add(gpu_seconds / HOUR, rate, urgency)
    return dict(sorted(sums.items()))


def _parts(job: Job, start: float, end: float) -> Iterator[tuple[float, float]]:
    """What the job used: a time in each month, and the GPU seconds in it."""
    before, submit = job.columns["attained_before"], job.facts.submit
    if before > 0 and submit is not None and start <= submit < end:
        yield submit, before
    if job.started is None:
        return
    at, until = max(start, job.started), min(end, job.started + job.elapsed)
    while at < until:
        later = min(until, _next_month(at))
        yield at, job.facts.of_gpus.whole * (later - at)
        at = later


def _next_month(at: float) -> float:
    day = datetime.fromtimestamp(at)
    return datetime(day.year + day.month // 12, day.month % 12 + 1, 1).timestamp()


def total(sums: Iterable[Usage]) -> Usage:
    """All of it together."""
    together = Usage()
    for each in sums:
        together.add_usage(each)
    return together


def as_json(found: dict[Group, Usage]) -> dict[str, Any]:
    """What `slurmplug usage --json` prints: of each user, and all of them together."""
    rows = [{**group._asdict(), **usage.as_json()} for group, usage in found.items()]
    return {"usage": rows, "total": total(found.values()).as_json()}


def lines(found: dict[Group, Usage], *, header: bool) -> list[str]:
    """What `slurmplug usage` prints: each account before its users, as in sreport, and all at the end."""
    rows = [*_with_accounts(found), (Group("total", "", ""), total(found.values()))]
    return table.format_lines(FIELDS, table.columns(FIELDS, rows), header=header, fit=True)


def delimited(found: dict[Group, Usage], *, header: bool) -> list[str]:
    """What `slurmplug usage --parsable2` prints: the same without the last line."""
    return table.delimited_lines(FIELDS, table.columns(FIELDS, _with_accounts(found)), "|", header=header)


def _with_accounts(found: dict[Group, Usage]) -> list[tuple[Group, Usage]]:
    by_account: dict[Group, list[Usage]] = {}
    for group, usage in found.items():
        by_account.setdefault(group._replace(user=""), []).append(usage)
    accounts = [(group, total(usages)) for group, usages in by_account.items()]
    return sorted([*accounts, *found.items()], key=lambda row: row[0])


def _decimal(number: float | None) -> str | None:
    return None if number is None else f"{number:.2f}"


FIELDS: Sequence[Field[tuple[Group, Usage]]] = (
    Field("Month", "text", 7, "", lambda row: row[0].month, left=True),
    Field("Account", "text", 24, "", lambda row: row[0].account, left=True),
    Field("User", "text", 24, "", lambda row: row[0].user, left=True),
    Field("GPUHours", "text", 14, "", lambda row: f"{row[1].gpu_hours:.2f}"),
    Field("Charge", "text", 14, "", lambda row: _decimal(row[1].charge)),
    Field("Urgency", "text", 7, "", lambda row: _decimal(row[1].urgency)),
)
