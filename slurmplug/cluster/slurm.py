"""The live cluster: Slurm through a client, and the jobs' reports and request files through the spool."""

import logging
import os
import select
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from slurmplug.cluster import api_client, parse
from slurmplug.cluster.accounting import Accounting
from slurmplug.cluster.held_types import with_held_types
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.parse import Separators
from slurmplug.cluster.port import (
    Command,
    JobRows,
    Outcome,
    Reading,
    ResourceRequest,
    RunIdentity,
    Site,
    Submission,
    Traces,
)
from slurmplug.cluster.put_off import PutOffUpdates
from slurmplug.cluster.scripts import ScriptReader
from slurmplug.config.schema import Config
from slurmplug.errors import ReadFailed
from slurmplug.processes.threads import ThreadPool
from slurmplug.spool.folder import Spool, SpoolFolder
from slurmplug.spool.report_files import NewReports
from slurmplug.spool.requests import Request, RequestKind
from slurmplug.spool.values import RunId

_REQUEST_KINDS: Mapping[str, RequestKind] = {"stop": "stop", "checkpoint": "checkpoint"}

_CHANGING_VERBS = frozenset({"requeue", "signal", "cancel", "ask", "hold", "release"})

log = logging.getLogger(__name__)


class SlurmCluster:
    """The `ClusterPort` of a Slurm, by the client that the configuration names."""

    def __init__(self, config: Config, spool: Spool | None = None) -> None:
        """`spool`: None for one that this process reads and writes itself."""
        self._client = api_client.make_client(config.slurm)
        self._name = config.cluster
        self._spool = spool or SpoolFolder(config.spool.path)
        self._scripts = ScriptReader(self._client, self.now())
        self._queue = parse.queue("", Separators("f", "r"), 0.0)
        self._het_leaders: frozenset[int] = frozenset()
        self._accounting = Accounting(self._client)
        self._put_off = PutOffUpdates()
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def read(self, known: Container[Submission], alive: Mapping[int, int]) -> Reading:
        """As `ClusterPort.read`."""
        with ThreadPool(thread_name_prefix="read") as pool:  # the clients wait for slurmctld, not for this process
            nodes, reservations = pool.submit(self._client.nodes), pool.submit(self._client.reservations)
            site = pool.submit(self._client.site)
            queue = self._client.queue()
            now = self.now()  # after what the queue shows, however long it took: since then at least this time passed
        self._queue, jobs = queue, queue.rows
        self._put_off.keep_only(jobs.job_id.tolist())
        scripts = self._scripts.read(jobs, known, now)
        self._het_leaders = frozenset(jobs.job_id[jobs.het_id == jobs.job_id].tolist())
        reading = Reading(
            now=now,
            site=self._named(site.result()),
            jobs=with_held_types(jobs, nodes.result()),
            nodes=nodes.result(),
            reservations=reservations.result(),
            endings=self._accounting.endings(_without(alive, jobs.job_id.tolist())),
            scripts=scripts.scripts,
            faults=scripts.faults,
        )
        self._client.prepare()
        reports = self._new_reports(jobs)  # last: reports are read once, and everything before may fail
        return replace(
            reading,
            reports={run.job_id: lines for run, lines in reports.lines.items()},
            faults=reading.faults + reports.faults,
        )

    def site_factors_in_slurm(self, booted: float) -> Mapping[int, int]:
        """As `ClusterPort.site_factors_in_slurm`."""
        found = self._client.site_factors()
        if self._client.site().booted != booted:
            raise ReadFailed("slurmctld was started again while the SiteFactors were read")
        return found

    def traces(self) -> Traces:
        """What a daemon may have left in Slurm and in the spool; what cannot be read is in `faults`."""
        faults: list[str] = []
        factors: Mapping[int, int] | None = None
        requests: tuple[tuple[int, int, str], ...] = ()
        waiting: frozenset[int] = frozenset()
        try:
            factors = self._client.site_factors()
        except ReadFailed as error:
            faults.append(f"SiteFactors: {error}")
        try:
            waiting = self._spool.read_waiting()
            requests = tuple(
                (run.job_id, run.restart, kind)
                for kind in _REQUEST_KINDS.values()
                for run in self._spool.open_runs(kind)
            )
        except OSError as error:
            faults.append(f"the spool: {error.strerror}")
        return Traces(factors, requests, waiting, tuple(faults))

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """As `ClusterPort.apply`."""
        outcomes = {outcome.command: outcome for outcome in self._not_sent(commands)}
        sent = [command for command in commands if command.id not in outcomes]
        for send, group in groupby(sent, self._channel):
            outcomes |= {outcome.command: outcome for outcome in send(list(group))}
        return [outcomes[command.id] for command in commands]

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:
        """As `ClusterPort.resource_requests`."""
        return self._client.resource_requests(job_ids)

    def limits(self) -> Limits:
        """As `ClusterPort.limits`; they may be some time old."""
        return self._accounting.limits()

    def now(self) -> float:
        """The machine's time, seconds since the epoch."""
        return time.time()

    def wait(self, until: float) -> bool:
        """Sleep until `until`, seconds since the epoch, or until woken; always True."""
        if select.select([self._woken], [], [], max(0.0, until - self.now()))[0]:
            os.eventfd_read(self._woken)
        return True

    def finish_within(self, seconds: float) -> None:
        """Wait for Slurm no longer than so many seconds from now; safe in a signal handler."""
        self._client.finish_within(seconds)

    def wake(self) -> None:
        """End the current `wait`, or the next one; safe in a signal handler."""
        os.eventfd_write(self._woken, 1)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _named(self, site: Site) -> Site:
        return replace(site, cluster=self._name) if self._name else site

    def _new_reports(self, jobs: JobRows) -> NewReports:
        """Of all jobs that run or ran: the last lines of a job are read when it has ended."""
        rows = np.flatnonzero(~np.isnan(jobs.start))
        ids = zip(jobs.job_id[rows].tolist(), jobs.restarts[rows].tolist(), strict=True)
        runs = [RunId(job_id, restart) for job_id, restart in ids]
        uids, starts = jobs.uid[rows].tolist(), jobs.start[rows].tolist()
        return self._spool.read(dict(zip(runs, uids, strict=True)), dict(zip(runs, starts, strict=True)))

    # --- writing ---------------------------------------------------------------------------------------------------

    def _not_sent(self, commands: Sequence[Command]) -> Iterator[Outcome]:
        """The outcomes of commands to jobs that are not, or not for certain, those of the last reading.

        Slurm is asked once more, right before the commands are sent: what was decided of a job is never done to another
        one that has its id, nor to the same one after a requeue.
        """
        checked = [command for command in commands if _changes_job(command)]
        if not checked:
            return
        jobs = self._queue.rows
        columns = (jobs.job_id, jobs.uid, jobs.submit.astype(np.int64), jobs.restarts)
        read = {job_id: RunIdentity(*rest) for job_id, *rest in zip(*(each.tolist() for each in columns), strict=True)}
        try:
            present = self._client.run_identities({command.job.job_id for command in checked})
        except ReadFailed as error:
            for command in checked:
                yield Outcome(command.id, "unknown", f"not sent, as Slurm could not be asked which job it is: {error}")
            return
        for command in checked:
            job_id = command.job.job_id
            if job_id not in read or job_id not in present:
                yield Outcome(command.id, "refused", "not sent: Slurm does not list the job")
            elif present[job_id] != read[job_id]:
                yield Outcome(command.id, "refused", "not sent: it is another job now, or was requeued meanwhile")

    def _channel(self, command: Command) -> Callable[[list[Command]], list[Outcome]]:
        if command.verb in ("ask", "withdraw"):
            return self._write_requests
        return self._signal if command.verb in ("signal", "cancel") else self._write

    def _write(self, commands: list[Command]) -> list[Outcome]:
        return self._put_off.write(commands, lambda sent: self._client.write(sent, self._addressed(sent)))

    def _signal(self, commands: list[Command]) -> list[Outcome]:
        return self._client.signal(commands, self._addressed(commands))

    def _addressed(self, commands: Sequence[Command]) -> list[str]:
        return [self._address(command) for command in commands]

    def _address(self, command: Command) -> str:
        """What the command is sent to: of a heterogeneous job, a SiteFactor is one component's, all else the whole's.

        `JobId=` with the leader's id sets all components, and with `ID+0` the leader alone.
        """
        job_id = int(command.job.job_id)
        if command.fields.keys() == {"SiteFactor"} and job_id in self._het_leaders:
            return f"{job_id}+0"
        return self._queue.addresses.get(job_id, str(job_id))

    def _write_requests(self, commands: list[Command]) -> list[Outcome]:
        requests = {command.id: request for command in commands if (request := _request_of(command))}
        outcomes = {command.id: Outcome(command.id, "refused", "not a valid request") for command in commands}
        try:
            errors = self._spool.write_requests(list(requests.values()))
        except TimeoutError:
            unknown = {each: Outcome(each, "unknown", "the spool does not answer") for each in requests}
            return list((outcomes | unknown).values())
        for each, error in zip(requests, errors, strict=True):
            message = f"the spool's requests folder: {error}" if error else ""
            outcomes[each] = Outcome(each, "refused" if error else "done", message)
        return list(outcomes.values())


def _without(alive: Mapping[int, int], listed: Iterable[int]) -> dict[int, int]:
    """The jobs of `alive` whose ids are not listed."""
    vanished = dict(alive)
    for job_id in listed:
        vanished.pop(job_id, None)
    return vanished


def _request_of(command: Command) -> Request | None:
    """What is written into the spool; None for a command that is not valid."""
    kind, restart = _REQUEST_KINDS.get(command.fields.get("what", "")), command.fields.get("restart", "")
    if kind is None or not restart.isdecimal():
        return None
    content = command.fields.get("content", "") if command.verb == "ask" else None
    return Request(RunId(int(command.job.job_id), int(restart)), kind, content)


def _changes_job(command: Command) -> bool:
    """Whether it changes what a job does, and not only its place in the queue."""
    return command.verb in _CHANGING_VERBS or (command.verb == "update" and set(command.fields) != {"SiteFactor"})
