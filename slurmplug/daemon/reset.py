"""Reset: undoes in Slurm what slurmplug set there, with or without a daemon, with or without a ledger.

In three stages: the steps are gathered from the ledger, or else from Slurm and the spool; their commands are applied;
and their outcomes are written to the ledger and returned.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from policies.snapshot import JobKey
from slurmplug.cluster.port import ClusterPort, Command, JobRows, Outcome, Reading, Traces
from slurmplug.cluster.states import LIVE_STATES
from slurmplug.errors import UsageError
from slurmplug.ledger import queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId
from slurmplug.operations import (
    MOVES,
    NODE_LIST_FIELDS,
    PRIORITY_FIELDS,
    RESERVATION_PREFIX,
    Operation,
    goes_first,
    request_fields,
    sizes,
)
from slurmplug.rules.guardrails import GivenSize


@dataclass(frozen=True)
class ResetResult:
    """The jobs that were reset, by id. `ended`: jobs that have ended meanwhile. `failed`: by job id, what could not be
    reset, and why.

    `priorities`: SiteFactors; `requests`: to stop or to save a checkpoint; `shapes`: GPUs, and nodes that a job
    required or excluded; `reservations`: those for jobs that were moved; `holds`: jobs that waited for admission and
    were released.
    """

    priorities: Collection[int]
    requests: Collection[int]
    shapes: Collection[int]
    reservations: Collection[int]
    holds: Collection[int]
    ended: Collection[int]
    failed: Mapping[int, str]

    @property
    def any_reset(self) -> bool:
        """Whether anything was reset."""
        return bool(self.priorities or self.requests or self.shapes or self.reservations or self.holds)


_Kind: TypeAlias = Literal["priorities", "requests", "shapes", "places", "reservations", "holds"]
_DESCRIPTIONS: Mapping[_Kind, str] = {
    "priorities": "its SiteFactor",
    "requests": "the request to it",
    "shapes": "its GPUs or its node lists",
    "places": "its place in the reservation",
    "reservations": "the reservation",
    "holds": "its hold",
}
_POLL_SECONDS = 0.2
_RUNS_WITH_NODES = "its node lists (ExcNodeList, ReqNodeList): Slurm changes them only while the job is pending"


class _Step(NamedTuple):
    """One command, and what it resets."""

    kind: _Kind
    command: Command


@dataclass(frozen=True)
class _Outcomes:
    """The steps that were taken, and the outcomes of their commands by id."""

    steps: Sequence[_Step]
    by_command: Mapping[str, Outcome]

    def done(self) -> list[_Step]:
        """The steps that took effect."""
        return [step for step in self.steps if self._status(step) == "done"]

    def failed(self) -> list[_Step]:
        """The steps that were refused, or whose outcome is not known."""
        return [step for step in self.steps if self._status(step) != "done"]

    def site_factors(self) -> dict[JobKey, float]:
        """The SiteFactor now in place: 0, NaN where it is not known; those that were refused are not named."""
        factors = {"done": 0.0, "unknown": float("nan")}
        return {
            step.command.job: factors[status]
            for step in self.steps
            if step.kind == "priorities" and (status := self._status(step)) in factors
        }

    def result(self, ended: Collection[int] = (), not_tried: Mapping[int, str] | None = None) -> ResetResult:
        """The steps that were done, by kind; and why the others failed, or were not tried."""
        jobs: dict[str, list[int]] = {kind: [] for kind in _DESCRIPTIONS}
        for step in self.done():
            jobs[step.kind].append(step.command.job.job_id)
        del jobs["places"]
        failed = {step.command.job.job_id: self._why(step) for step in self.failed()}
        done = {kind: sorted(ids) for kind, ids in jobs.items()}
        return ResetResult(**done, ended=ended, failed={**(not_tried or {}), **failed})

    def _status(self, step: _Step) -> str:
        outcome = self.by_command.get(step.command.id)
        return outcome.status if outcome else "unknown"

    def _why(self, step: _Step) -> str:
        outcome = self.by_command.get(step.command.id)
        message = f": {outcome.message}" if outcome and outcome.message else ""
        return f"{_DESCRIPTIONS[step.kind]}: {self._status(step)}{message}"


def reset_recorded(ledger: Ledger, port: ClusterPort, only: int | None = None) -> ResetResult:
    """Resets all that the ledger has on record.

    Every SiteFactor that is not 0, or not known, is set to 0; the requests, shapes, reservations and node lists of
    open operations are withdrawn; jobs that wait for admission are released. `only`: of this job alone.

    Raises:
        ReadFailed: Slurm could not be read; nothing was reset.
        LedgerError: the ledger may not have recorded what was reset; a second reset does no harm.
    """
    reading = port.read(_AllJobs(), {})
    states = _live_states(reading.jobs, only)
    written = [
        key for key, site_factor in ledger.site_factors().items() if site_factor != 0 and only in (None, key.job_id)
    ]
    opened = [each for each in ledger.open_operations() if only in (None, each.job.job_id)]
    given = _sizes_in_place(ledger, port, states)
    awaiting = [each.key for each in ledger.live_records() if each.awaits and each.key.job_id in states]
    steps = [*_recorded_steps(reading, written, opened, awaiting, states=states, only=only), *_sizes(given, opened)]
    outcomes = _apply(port, steps)
    bound = [each for each in opened if _runs_with_nodes(each, states)]
    unsettled = {step.command.operation for step in outcomes.failed()} | {each.id for each in bound}
    ledger.reset(
        site_factors=outcomes.site_factors(),
        withdrawn=[each.id for each in opened if each.id not in unsettled],
        let_go=[step.command.job for step in outcomes.done() if step.kind == "holds"],
        as_submitted=[step.command.job for step in outcomes.done() if step.kind == "shapes"],
        now=port.now(),
    )
    return outcomes.result(
        ended=sorted(key.job_id for key in written if key.job_id not in states),
        not_tried={each.job.job_id: _RUNS_WITH_NODES for each in bound},
    )


def job_number(ledger: Ledger, job: JobId) -> int:
    """The number (%A of squeue) of a job; an element of an array has a number of its own.

    Raises:
        UsageError: no live job of the ledger is this element.
    """
    if job.task is None:
        return job.number
    number = queries.live_job(ledger, *job)
    if number is None:
        raise UsageError(
            f"slurmplug knows no job {job.number}_{job.task} that has not ended; "
            f"pending elements of an array are one job, {job.number}"
        )
    return number


def wait_for_cycle(ledger: Ledger, since: float, limit: float) -> bool:
    """Wait for the daemon to begin a cycle after `since`, in seconds since the epoch; False after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not (began := queries.began_cycle_since(ledger, since)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return began


def _live_states(jobs: JobRows, only: int | None) -> dict[int, str]:
    """The states of the jobs that have not ended, by job id."""
    return {
        job_id: state
        for job_id, state in zip(jobs.job_id.tolist(), jobs.state.tolist(), strict=True)
        if state in LIVE_STATES and only in (None, job_id)
    }


def _recorded_steps(
    reading: Reading,
    written: Iterable[JobKey],
    opened: Sequence[Operation],
    awaiting: Iterable[JobKey],
    *,
    states: Mapping[int, str],
    only: int | None,
) -> Iterator[_Step]:
    """In the order in which the commands are issued: a job leaves its reservation before that is deleted."""
    yield from (_clear_site_factor(key) for key in written if key.job_id in states)
    yield from _withdrawals(opened)
    yield from _shapes(opened, states)
    yield from _places(reading, only)
    yield from (_release(key) for key in awaiting)


def _apply(port: ClusterPort, steps: Iterable[_Step]) -> _Outcomes:
    taken = list(steps)
    outcomes = port.apply([step.command for step in taken]) if taken else ()
    return _Outcomes(taken, {outcome.command: outcome for outcome in outcomes})


class TraceableCluster(ClusterPort, Protocol):
    """A cluster that reports what slurmplug may have left, for a reset without a ledger."""

    def traces(self) -> Traces:
        """What slurmplug may have set in Slurm and in the spool."""
        ...


class Doubts(NamedTuple):
    """What a reset without a ledger may have missed. `unread`: what could not be read, and why."""

    unread: Sequence[str]
    held: Sequence[int]
    """ids of jobs that are held, either by an operator or by slurmplug"""


def reset_unrecorded(port: TraceableCluster, only: int | None = None) -> tuple[ResetResult, Doubts]:
    """Resets, without a ledger, what Slurm and the spool show; returns also what they leave in doubt.

    Every SiteFactor of a pending job is set to 0, whoever set it, even if Slurm does not report it. The jobs that
    waited for admission when the daemon was last alive, and are held by an operator, are released.

    Raises:
        ReadFailed: Slurm could not be read; nothing was reset.
    """
    reading = port.read(_AllJobs(), {})
    traces = port.traces()
    jobs = reading.jobs
    rows = {job_id: row for row, job_id in enumerate(jobs.job_id.tolist()) if only in (None, job_id)}
    pending = {job_id for job_id, row in rows.items() if jobs.state[row] == "PENDING"}
    held = {job_id for job_id in pending if jobs.reason[rows[job_id]] == "JobHeldAdmin"}
    outcomes = _apply(port, _traced_steps(reading, traces, pending, held, only=only))
    return outcomes.result(), Doubts(traces.faults, sorted(held - traces.waiting))


def _traced_steps(
    reading: Reading, traces: Traces, pending: set[int], held: set[int], *, only: int | None
) -> Iterator[_Step]:
    cluster = reading.site.cluster
    yield from (_clear_site_factor(JobKey(cluster, job_id, 0)) for job_id in sorted(_with_site_factor(pending, traces)))
    for job_id, restart, what in traces.requests:
        if only in (None, job_id):
            fields = {"what": what, "restart": str(restart)}
            name = f"reset-{job_id}-{restart}-{what}"
            yield _Step("requests", Command(name, "withdraw", JobKey(cluster, job_id, 0), fields))
    yield from _places(reading, only)
    yield from (_release(JobKey(cluster, job_id, 0)) for job_id in sorted(held & traces.waiting))


def _with_site_factor(pending: set[int], traces: Traces) -> set[int]:
    """The pending jobs with a SiteFactor, or with one that Slurm does not report, as of jobs that may not start yet."""
    if traces.site_factors is None:
        return set()
    return {job_id for job_id in pending if traces.site_factors.get(job_id) != 0}


def _clear_site_factor(key: JobKey) -> _Step:
    return _Step("priorities", Command(f"reset-{key.job_id}", "update", key, {"SiteFactor": "0"}))


def _release(key: JobKey) -> _Step:
    return _Step("holds", Command(f"reset-hold-{key.job_id}", "release", key))


def _withdrawals(opened: Sequence[Operation]) -> Iterator[_Step]:
    for each in opened:
        if each.kind in MOVES | {"stop"}:
            yield _Step("requests", Command(f"reset-{each.id}", "withdraw", each.job, request_fields(each), each.id))


_UNCONFIRMED = frozenset({"rewrite", "unreserve", "confirm", "undo"})
"""The steps at which a job may have a new shape that is not confirmed."""
_WITH_NODES = frozenset({"watch", "bound", "lift"})
"""The steps at which a job may still require or exclude nodes."""


def _shapes(opened: Sequence[Operation], states: Mapping[int, str]) -> Iterator[_Step]:
    """Pending jobs whose new shape is not confirmed get back the one that they asked for, and those whose node lists or
    nice value were changed get these back."""
    for each in opened:
        pending = states.get(each.job.job_id) == "PENDING"
        names, undo = {"Nice"} if goes_first(each) else set(), dict(each.undo)
        if pending and each.step in _WITH_NODES:
            names |= NODE_LIST_FIELDS
        if pending and each.step in _UNCONFIRMED and not (each.step == "unreserve" and each.outcome):
            undo |= each.facts.size.asked_fields if each.facts is not None and each.facts.size is not None else {}
            names |= undo.keys() - PRIORITY_FIELDS
        fields = {name: value for name, value in undo.items() if name in names}
        if fields and each.job.job_id in states:
            yield _Step("shapes", Command(f"reset-shape-{each.id}", "update", each.job, fields, each.id))


def _sizes_in_place(ledger: Ledger, port: ClusterPort, states: Mapping[int, str]) -> dict[JobKey, GivenSize]:
    """The sizes that pending jobs were given in place of their own, without what others have changed since."""
    given = {
        key: size for key, size in ledger.past(port.now(), 0.0, ()).sizes.items() if states.get(key.job_id) == "PENDING"
    }
    requests = port.resource_requests([key.job_id for key in given]) if given else {}
    found = {key: sizes.in_place(size, requests[key.job_id]) for key, size in given.items() if key.job_id in requests}
    return {key: size for key, size in found.items() if size is not None}


def _sizes(given: Mapping[JobKey, GivenSize], opened: Sequence[Operation]) -> Iterator[_Step]:
    """Pending jobs get back what they asked for; those of open operations do so by `_shapes`."""
    busy = {each.job for each in opened if each.step in _UNCONFIRMED}
    for key, size in given.items():
        if key not in busy:
            yield _Step("shapes", Command(f"reset-size-{key.job_id}", "update", key, size.asked_fields))


def _runs_with_nodes(operation: Operation, states: Mapping[int, str]) -> bool:
    """Whether the operation's job runs with nodes excluded or required."""
    running = states.get(operation.job.job_id, "PENDING") != "PENDING"
    return running and operation.limits_nodes and bool(operation.requeued)


def _places(reading: Reading, only: int | None) -> Iterator[_Step]:
    """Reservations by slurmplug's names, whoever made them, and the jobs in them."""
    cluster, jobs = reading.site.cluster, reading.jobs
    keys = {
        each.name: JobKey(cluster, int(number), 0)
        for each in reading.reservations
        if (number := each.name.removeprefix(RESERVATION_PREFIX)) != each.name and number.isdecimal()
    }
    keys = {name: key for name, key in keys.items() if only in (None, key.job_id)}
    states = zip(jobs.job_id.tolist(), jobs.reservation.tolist(), jobs.state.tolist(), strict=True)
    for job_id, name, state in states:
        if name in keys and state in LIVE_STATES:
            key = JobKey(cluster, job_id, 0)
            yield _Step("places", Command(f"reset-place-{job_id}", "update", key, {"ReservationName": ""}))
    for name, key in sorted(keys.items()):
        yield _Step("reservations", Command(f"reset-{name}", "unreserve", key, {"name": name}))


class _AllJobs:
    def __contains__(self, _: object) -> bool:
        return True
