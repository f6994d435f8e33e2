"""What `slurmplug replay` prints of what it found, and says about it."""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from slurmplug.console import table, times
from slurmplug.console.table import Field, printable
from slurmplug.sim.experiment import replay_report
from slurmplug.sim.experiment.replay import NOTICED
from slurmplug.sim.experiment.replay_page import Notes
from slurmplug.sim.experiment.replay_report import ReplayReport, Table
from slurmplug.sim.experiment.replayed_waits import NEAR, ReplayedWaits

_LEGEND = (
    f"A job gains (loses) if it ends more than {NOTICED:.0f} s earlier (later) than under Slurm alone; a job that was"
    " stopped early can gain, too. *_mean and *_most say by how much."
)
_LIMITS = ("limits of QOS and associations", "limits of QOS and associations, which may have been different then")
"""that are not known, and that are"""
_MAY_BE_OF = (
    "reservations",
    "nodes that were down",
    "the nodes of each partition",
    "jobs that are not in the file",
    "priorities that are not in it",
)
_WAITED_FOR = (
    "a limit of its user, account or QOS, nodes of its partition, a reservation, nodes that were down, a time of day, a"
    " hold, or GPUs on one node"
)
_OR_THE_LIMITS = (
    ", or more than a limit of their QOS or associations allows a job (the limits may have been different then)"
)
_CONSIDERABLE = 0.1
"""of the waiting, or of the GPUs"""
_OFTEN = 0.25
"""of the waiting; a twenty-fourth of it where it ends at any time"""


def notes(made: ReplayReport, statements: Sequence[str]) -> Notes:
    """What the text and the page say in words."""
    return Notes(statements, tuple(_warnings(made)), _LEGEND)


def lines(made: ReplayReport, said: Notes) -> Iterator[str]:
    """The text, what happened first."""
    if made.waits is not None:
        yield from _table_lines(replay_report.waits_table(made.waits))
    yield from map(printable, said.warnings)
    for shown in replay_report.tables(made):
        yield ""
        yield from _table_lines(shown)
    yield ""
    yield said.legend
    yield from map(printable, said.statements)
    if made.not_followed:
        yield printable(f"Not followed of the site's settings: {'; '.join(made.not_followed)}.")


def json_lines(made: ReplayReport, said: Notes) -> Iterator[str]:
    """All of it as JSON."""
    words = {"statements": list(said.statements), "warnings": list(said.warnings)}
    yield table.to_json({**replay_report.as_json(made), **words})


def _warnings(made: ReplayReport) -> Iterator[str]:
    """What limits what can be read from the figures, a sentence each."""
    if made.waits is None:
        yield "The log does not say how long jobs waited, so the replay cannot be compared with what happened."
    elif not made.waits.near:
        listed = list(dict.fromkeys([*made.not_followed, _LIMITS[made.has_limits], *_MAY_BE_OF]))
        yield (
            f"The replayed mean wait is not within {NEAR:.0%} of the true one, so read all waits below with care."
            f" The reason may be something that the replay does not model: {', '.join(listed)}."
        )
        yield from _reasons(made.waits)
    if made.never_started:
        yield (
            f"{made.never_started} jobs never start: they request more CPUs or memory than the nodes have"
            f"{_OR_THE_LIMITS if made.has_limits else ''}; --slurm-conf or --cluster NODESxGPUSxCPUSxMIB says what the"
            " nodes are."
        )
    if made.samples == 1:
        yield "One sample gives no interval."


def _reasons(waits: ReplayedWaits) -> Iterator[str]:
    """What the log itself says of why the waits are apart."""
    shorter, idle = waits.true_mean - waits.replayed_mean, waits.true_idle - waits.replayed_idle
    if shorter > 0 and idle > _CONSIDERABLE * shorter:
        yield (
            f"During {waits.true_idle / waits.true_mean:.0%} of the true waiting, at least as many GPUs as the job"
            f" requested were idle (CPUs, if it requested no GPUs): {times.format_duration(waits.true_idle)} of the"
            f" mean wait, {times.format_duration(waits.replayed_idle)} in the replay. This is"
            f" {min(idle / shorter, 1.0):.0%} of the difference. Such a job waited for something that is not in the"
            f" log: {_WAITED_FOR}."
        )
        if waits.waiters:
            named = (f"{each.what} {each.name} ({each.share:.0%})" for each in waits.waiters)
            yield f"The jobs that waited beside idle GPUs were those of {', '.join(named)}."
        if waits.same_hour > _OFTEN:
            yield (
                f"{waits.same_hour:.0%} of that waiting ended within one hour of the day: there are probably jobs that"
                " may run only at some times."
            )
    if waits.true_most < (1 - _CONSIDERABLE) * waits.gpus:
        yield (
            f"The jobs held at most {waits.true_most:.0f} of the {waits.gpus} GPUs of the replay. If they waited for"
            " GPUs, the cluster had fewer: name its nodes with --cluster."
        )
    if waits.true_most > waits.gpus:
        yield (
            f"The jobs held {waits.true_most:.0f} GPUs, more than the {waits.gpus} of the replay: name the nodes of"
            " that time with --cluster."
        )


def _table_lines(shown: Table) -> Iterator[str]:
    yield printable(shown.title)
    fields = [
        Field[tuple[str, ...]](heading.upper(), "text", 40, "", itemgetter(at), left=at == 0)
        for at, heading in enumerate(shown.headings)
    ]
    for line in table.format_lines(fields, table.columns(fields, shown.rows), rule=False, fit=True):
        yield line.rstrip()
