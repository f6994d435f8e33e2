"""Giving back to Slurm what slurmplug set, with or without a daemon, with or without a ledger."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from policies.snapshot import JobKey
from slurmplug.cluster.port import ClusterPort, Command, Outcome, Reading, Traces
from slurmplug.ledger.ledger import Ledger
from slurmplug.operations import BINDING, RESERVATION, Operation
from slurmplug.record import LIVE_STATES


@dataclass(frozen=True)
class Returned:
    """What came of it, by job ids. `gone`: jobs that ended meanwhile. `kept`: what could not be given back, and why.

    `shapes`: GPUs, or nodes that a job was kept to or from; `reservations`: places that were secured; `holds`: jobs
    that waited for admission and were let go.
    """

    priorities: Collection[int]
    requests: Collection[int]
    shapes: Collection[int]
    reservations: Collection[int]
    holds: Collection[int]
    gone: Collection[int]
    kept: Mapping[int, str]

    @property
    def anything(self) -> bool:
        """Whether something was given back."""
        return bool(self.priorities or self.requests or self.shapes or self.reservations or self.holds)


class _Step(NamedTuple):
    """One command, and what it gives back."""

    what: str
    command: Command


_WORDS = {
    "priorities": "its SiteFactor",
    "requests": "the request to it",
    "shapes": "what it asks for",
    "places": "its place in the reservation",
    "reservations": "the reservation",
    "holds": "its hold",
}


def give_back(ledger: Ledger, port: ClusterPort, only: int | None = None) -> Returned:
    """Set every SiteFactor that is not 0, or not known, to 0; take back what open operations asked, wrote, secured and
    constrained; let go who waits for admission.

    `only`: of this job alone.

    Raises:
        ReadFailed: Slurm could not be read; nothing was given back.
        LedgerError: what was given back may not have been noted; giving back again does no harm.
    """
    reading = port.read(_Everything(), ())
    state = {
        job_id: told
        for job_id, told in zip(reading.jobs.job_id.tolist(), reading.jobs.state.tolist(), strict=True)
        if told in LIVE_STATES and only in (None, job_id)
    }
    set_by_us = [key for key, label in ledger.labels().items() if label != 0 and only in (None, key.job_id)]
    opened = [each for each in ledger.open_operations() if only in (None, each.job.job_id)]
    awaiting = [each.key for each in ledger.live_records() if each.awaits and each.key.job_id in state]
    steps = [
        *(_label(key) for key in set_by_us if key.job_id in state),
        *_requests(opened),
        *_shapes(opened, state),
        *_places(reading, only),
        *(_Step("holds", Command(f"reset-hold-{key.job_id}", "release", key)) for key in awaiting),
    ]
    commands = [step.command for step in steps]
    outcomes = {outcome.command: outcome for outcome in (port.apply(commands) if commands else ())}
    done = [step for step in steps if _status(outcomes, step.command) == "done"]
    failed = [step for step in steps if step not in done]
    bound = {
        o.job.job_id: "nodes that it is kept from or to: Slurm lets them go when it waits"
        for o in _bound(opened, state)
    }
    unsettled = {step.command.operation for step in failed} | {o.id for o in _bound(opened, state)}
    doubtful = [step for step in failed if step.what == "priorities" and _status(outcomes, step.command) == "unknown"]
    ledger.reset(
        labels={s.command.job: 0.0 for s in done if s.what == "priorities"}
        | {s.command.job: float("nan") for s in doubtful},
        withdrawn=[each.id for each in opened if each.id not in unsettled],
        let_go=[step.command.job for step in done if step.what == "holds"],
        now=port.now(),
    )
    return Returned(
        **{what: _jobs(done, what) for what in ("priorities", "requests", "shapes", "reservations", "holds")},
        gone=sorted(key.job_id for key in set_by_us if key.job_id not in state),
        kept=bound | {step.command.job.job_id: _why(outcomes, step) for step in failed},
    )


class Traceable(ClusterPort, Protocol):
    """A cluster that tells what slurmplug may have left, for want of a ledger."""

    def traces(self) -> Traces:
        """What it tells."""
        ...


UNREAD = "could not be read"
UNKNOWABLE = (
    "not known without a ledger: SiteFactors of jobs that run, new shapes, nodes that jobs are kept from or to "
    "(`squeue -o '%A %x %n'` lists these)"
)


def give_back_unrecorded(port: Traceable, only: int | None = None) -> tuple[Returned, tuple[str, ...]]:
    """Without a ledger: what Slurm and the spool tell, and what they leave in doubt.

    Every SiteFactor of a job that waits is set to 0, whoever set it, and also where Slurm does not tell it. Let go is
    who waited for admission when the daemon last lived, and is held by an operator.

    Raises:
        ReadFailed: Slurm could not be read; nothing was given back.
    """
    reading = port.read(_Everything(), ())
    traces = port.traces()
    jobs, cluster = reading.jobs, reading.site.cluster
    rows = {job_id: row for row, job_id in enumerate(jobs.job_id.tolist()) if only in (None, job_id)}
    waits = {job_id for job_id, row in rows.items() if jobs.state[row] == "PENDING"}
    held = {job_id for job_id in waits if jobs.reason[rows[job_id]] == "JobHeldAdmin"}
    steps = [
        *(_label(JobKey(cluster, job_id, 0)) for job_id in sorted(_labelled(waits, traces))),
        *(_withdrawal(cluster, request) for request in traces.requests if only in (None, request[0])),
        *_places(reading, only),
        *(
            _Step("holds", Command(f"reset-hold-{job_id}", "release", JobKey(cluster, job_id, 0)))
            for job_id in sorted(held & traces.waiting)
        ),
    ]
    commands = [step.command for step in steps]
    outcomes = {outcome.command: outcome for outcome in (port.apply(commands) if commands else ())}
    done = [step for step in steps if _status(outcomes, step.command) == "done"]
    returned = Returned(
        **{what: _jobs(done, what) for what in ("priorities", "requests", "shapes", "reservations", "holds")},
        gone=(),
        kept={step.command.job.job_id: _why(outcomes, step) for step in steps if step not in done},
    )
    doubts = [f"{UNREAD}: {fault}" for fault in traces.faults]
    if unknown := sorted(held - traces.waiting):
        doubts.append(f"held by an operator, or by slurmplug: {','.join(map(str, unknown))}")
    return returned, (*doubts, UNKNOWABLE)


def _labelled(waits: set[int], traces: Traces) -> set[int]:
    """Those that wait with a SiteFactor, or with one that Slurm does not tell, as of jobs that may not start yet."""
    if traces.site_factors is None:
        return set()
    return {job_id for job_id in waits if traces.site_factors.get(job_id) != 0}


def _withdrawal(cluster: str, request: tuple[int, int, str]) -> _Step:
    job_id, restart, what = request
    fields = {"what": what, "restart": str(restart)}
    key = JobKey(cluster, job_id, 0)
    return _Step("requests", Command(f"reset-{job_id}-{restart}-{what}", "withdraw", key, fields))


def _label(key: JobKey) -> _Step:
    return _Step("priorities", Command(f"reset-{key.job_id}", "update", key, {"SiteFactor": "0"}))


def _requests(opened: Sequence[Operation]) -> Iterator[_Step]:
    for each in opened:
        if each.kind in ("stop", "resize", "migrate", "preempt"):
            what = "stop" if each.kind == "stop" else "checkpoint"
            fields = {"what": what, "restart": str(each.restarts)}
            yield _Step("requests", Command(f"reset-{each.id}", "withdraw", each.job, fields, each.id))


def _shapes(opened: Sequence[Operation], state: Mapping[int, str]) -> Iterator[_Step]:
    """Of those that wait: a new shape that is not confirmed, and nodes that a job is still kept from or to."""
    for each in opened:
        if state.get(each.job.job_id) != "PENDING" or each.step not in (
            "rewrite",
            "confirm",
            "bound",
            "lift",
            "watch",
            "undo",
        ):
            continue
        unsure = each.step in ("rewrite", "confirm", "undo")
        fields = {name: value for name, value in each.undo.items() if unsure or name in BINDING}
        if fields:
            yield _Step("shapes", Command(f"reset-shape-{each.id}", "update", each.job, fields, each.id))


def _bound(opened: Sequence[Operation], state: Mapping[int, str]) -> list[Operation]:
    """Those whose job runs with nodes excluded or required."""
    return [
        o for o in opened if state.get(o.job.job_id, "PENDING") != "PENDING" and BINDING & o.goal.keys() and o.requeued
    ]


def _places(reading: Reading, only: int | None) -> Iterator[_Step]:
    """Reservations by our name, whoever made them, and the jobs in them."""
    names = {each.name for each in reading.reservations if each.name.removeprefix(RESERVATION).isdecimal()}
    ours = {name: int(name.removeprefix(RESERVATION)) for name in names if name.startswith(RESERVATION)}
    jobs = reading.jobs
    keys = {name: JobKey(reading.site.cluster, job_id, 0) for name, job_id in ours.items() if only in (None, job_id)}
    for job_id, name, told in zip(jobs.job_id.tolist(), jobs.reservation.tolist(), jobs.state.tolist(), strict=True):
        if name in keys and told in LIVE_STATES:
            key = JobKey(reading.site.cluster, job_id, 0)
            yield _Step("places", Command(f"reset-place-{job_id}", "update", key, {"ReservationName": ""}))
    for name, key in sorted(keys.items()):
        yield _Step("reservations", Command(f"reset-{name}", "unreserve", key, {"name": name}))


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


def _jobs(done: Sequence[_Step], what: str) -> list[int]:
    return sorted(step.command.job.job_id for step in done if step.what == what)


def _status(outcomes: Mapping[str, Outcome], command: Command) -> str:
    return outcomes[command.id].status if command.id in outcomes else "unknown"


def _why(outcomes: Mapping[str, Outcome], step: _Step) -> str:
    outcome = outcomes.get(step.command.id)
    message = f": {outcome.message}" if outcome and outcome.message else ""
    return f"{_WORDS[step.what]}: {outcome.status if outcome else 'unknown'}{message}"
