"""The live cluster: Slurm through a client, and the jobs' reports and request files through the spool."""

import logging
import os
import select
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby, islice

import numpy as np

from slurmplug.cluster import api_client
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import Command, Ending, JobRows, Outcome, Reading, ResourceRequest, Site, Traces
from slurmplug.config.schema import Config
from slurmplug.errors import ReadFailed
from slurmplug.spool.report_files import NewReports, ReportReader
from slurmplug.spool.report_lines import RunId, SpoolFault
from slurmplug.spool.requests import RequestKind, Requests, read_waiting
from slurmplug.spool.run_files import sweep

SITE_AGE = 3_600.0
"""seconds until the site's configuration is read again"""
LIMITS_AGE = 60.0
"""seconds until the limits of QOS and associations are read again"""
SCRIPTS_PER_CYCLE = 500
"""scripts read in one cycle, at about 4 ms each; the others are read in the next"""

_REQUEST_KINDS: Mapping[str, RequestKind] = {"stop": "stop", "checkpoint": "checkpoint"}

log = logging.getLogger(__name__)


class SlurmCluster:
    """The `ClusterPort` of a Slurm, by the client that the configuration names."""

    def __init__(self, config: Config) -> None:
        self._client = api_client.make_client(config.slurm)
        self._name = config.cluster
        self._spool = config.spool.path
        self._reports = ReportReader(self._spool)
        self._requests = Requests(self._spool)
        self._addresses: Mapping[int, str] = {}
        self._site: tuple[float, Site] | None = None
        self._limits: tuple[float, Limits] | None = None
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def read(self, known: Container[int], alive: Collection[int]) -> Reading:
        """As `ClusterPort.read`."""
        now = self.now()
        with ThreadPoolExecutor(
            thread_name_prefix="read"
        ) as pool:  # the clients wait for slurmctld, not for this process
            nodes, reservations = pool.submit(self._client.nodes), pool.submit(self._client.reservations)
            queue = self._client.queue()
        self._addresses = queue.addresses
        jobs = queue.rows
        reading = Reading(
            now=now,
            site=self._current_site(),
            jobs=jobs,
            nodes=nodes.result(),
            reservations=reservations.result(),
            endings=self._endings(set(alive) - set(jobs.job_id.tolist())),
            scripts=self._new_scripts(jobs, known),
        )
        reports = self._new_reports(jobs)  # last: reports are read once, and everything before may fail
        return replace(
            reading, reports={run.job_id: lines for run, lines in reports.lines.items()}, faults=reports.faults
        )

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
            waiting = read_waiting(self._spool)
            requests = tuple(
                (run.job_id, run.restart, kind)
                for kind in _REQUEST_KINDS.values()
                for run in self._requests.open_runs(kind)
            )
        except OSError as error:
            faults.append(f"the spool {self._spool}: {error.strerror}")
        return Traces(factors, requests, waiting, tuple(faults))

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """As `ClusterPort.apply`."""
        outcomes: list[Outcome] = []
        for send, group in groupby(commands, self._channel):
            outcomes += send(list(group))
        return outcomes

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:
        """As `ClusterPort.resource_requests`."""
        return self._client.resource_requests(job_ids)

    def limits(self) -> Limits:
        """As `ClusterPort.limits`; they may be LIMITS_AGE old."""
        clock = time.monotonic()
        if self._limits is None or clock - self._limits[0] > LIMITS_AGE:
            self._limits = clock, self._client.limits()
        return self._limits[1]

    def sweep(self, keep: Container[RunId], before: float) -> tuple[SpoolFault, ...]:
        """Remove from the spool the files of runs not in `keep`; reports only where older than `before`, a time."""
        return sweep(self._spool, keep, before)

    def now(self) -> float:
        """The machine's time, seconds since the epoch."""
        return time.time()

    def wait(self, until: float) -> bool:
        """Sleep until `until`, seconds since the epoch, or until woken; always True."""
        if select.select([self._woken], [], [], max(0.0, until - self.now()))[0]:
            os.eventfd_read(self._woken)
        return True

    def wake(self) -> None:
        """End the current `wait`, or the next one; safe in a signal handler."""
        os.eventfd_write(self._woken, 1)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _current_site(self) -> Site:
        clock = time.monotonic()
        if self._site is None or clock - self._site[0] > SITE_AGE:
            site = self._client.site()
            self._site = clock, replace(site, cluster=self._name) if self._name else site
        return self._site[1]

    def _new_scripts(self, jobs: JobRows, known: Container[int]) -> dict[int, bytes]:
        """The scripts of batch jobs that are not known. An array and a heterogeneous job have one script for all."""
        wholes = np.where(jobs.array_id > 0, jobs.array_id, np.where(jobs.het_id > 0, jobs.het_id, jobs.job_id))
        wanted: dict[int, list[int]] = {}
        for job_id, whole in zip(jobs.job_id[jobs.batch].tolist(), wholes[jobs.batch].tolist(), strict=True):
            if job_id not in known and whole not in known:
                wanted.setdefault(whole, []).append(job_id)
        scripts: dict[int, bytes] = {}
        for whole, members in islice(wanted.items(), SCRIPTS_PER_CYCLE):
            scripts |= dict.fromkeys(members, self._client.script(whole if whole in members else members[0]))
        return scripts

    def _new_reports(self, jobs: JobRows) -> NewReports:
        """Of all jobs that run or ran: the last lines of a job are read when it has ended."""
        rows = np.flatnonzero(~np.isnan(jobs.start))
        columns = (jobs.job_id[rows], jobs.restarts[rows], jobs.uid[rows])
        return self._reports.read(
            {RunId(job_id, restart): uid for job_id, restart, uid in zip(*(c.tolist() for c in columns), strict=True)}
        )

    def _endings(self, vanished: set[int]) -> tuple[Ending, ...]:
        """How jobs ended that squeue no longer lists; none where accounting does not answer, and read again later."""
        if not vanished:
            return ()
        try:
            return self._client.endings(vanished)
        except ReadFailed as error:
            log.warning("how %d jobs ended is not known: %s", len(vanished), error)
            return ()

    # --- writing ---------------------------------------------------------------------------------------------------

    def _channel(self, command: Command) -> Callable[[list[Command]], list[Outcome]]:
        if command.verb in ("ask", "withdraw"):
            return self._write_requests
        return self._signal if command.verb in ("signal", "cancel") else self._write

    def _write(self, commands: list[Command]) -> list[Outcome]:
        return self._client.write(commands, self._addressed(commands))

    def _signal(self, commands: list[Command]) -> list[Outcome]:
        return self._client.signal(commands, self._addressed(commands))

    def _addressed(self, commands: list[Command]) -> list[str]:
        return [self._addresses.get(command.job.job_id, str(int(command.job.job_id))) for command in commands]

    def _write_requests(self, commands: list[Command]) -> list[Outcome]:
        return [self._write_request(command) for command in commands]

    def _write_request(self, command: Command) -> Outcome:
        kind, restart = _REQUEST_KINDS.get(command.fields.get("what", "")), command.fields.get("restart", "")
        if kind is None or not restart.isdecimal():
            return Outcome(command.id, "refused", "not a valid request")
        run = RunId(int(command.job.job_id), int(restart))
        try:
            if command.verb == "ask":
                self._requests.issue(run, kind, command.fields.get("content", ""))
            else:
                self._requests.withdraw(run, kind)
        except OSError as error:
            return Outcome(command.id, "refused", f"the spool's requests folder: {error.strerror}")
        return Outcome(command.id, "done")
