"""A cluster in memory behind the port: jobs that a test starts, ends and lets report, and commands taken at their word.

It does at once what it is told, refuses what it does not know, and notes everything with its time.
"""

import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_type_hints

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import (
    Command,
    Ending,
    JobRows,
    NodeRows,
    Outcome,
    Reading,
    Reservation,
    ResourceRequest,
    Site,
    Strings,
    Submission,
    Traces,
)
from slurmplug.cluster.states import LIVE_STATES
from slurmplug.errors import ReadFailed
from slurmplug.spool.values import SpoolFault
from tests.builders import CLUSTER, NOW

SITE = Site(CLUSTER, "22.05.8")
NAN = float("nan")
SCRIPT = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=90\ntrain\n"

_JOB: dict[str, Any] = {
    "array_id": 0, "array_task": -1, "elements": 1, "het_id": 0, "uid": 1001, "user": "ada", "account": "lab",
    "qos": "normal", "partition": "gpu", "state": "PENDING", "reason": "Priority", "name": "train", "comment": "",
    "dependency": "", "features": "", "reservation": "", "node_list": "", "batch": True, "restarts": 0, "submit": NOW,
    "eligible": NOW, "start": NAN, "end": NAN, "expected": NAN, "time_limit": 3600.0, "priority": 1000.0, "nice": 0,
    "nodes": 1, "cpus": 2, "memory": 1024.0, "gpus": 1, "gpu_type": "", "gpu_type_held": "", "shards": 0,
    "array_tasks": "", "suspended": 0.0, "exit_code": 0,
}  # fmt: skip


def job_row(job_id: int, **given: Any) -> dict[str, Any]:
    """A pending batch job of one GPU, as a row of `JobRows`, unless said otherwise."""
    unknown = given.keys() - _JOB.keys()
    if unknown:
        raise TypeError(f"no such columns of JobRows: {', '.join(sorted(unknown))}")
    return {"job_id": job_id, **_JOB, **given}


def job_rows(rows: Iterable[Mapping[str, Any]]) -> JobRows:
    """The columns of these rows."""
    kinds: dict[Any, Any] = {Ints: np.int64, Floats: np.float64, Bools: np.bool_, Strings: np.object_}
    hints, listed = get_type_hints(JobRows), list(rows)
    return JobRows(
        **{
            column.name: np.array([row[column.name] for row in listed], dtype=kinds.get(hints[column.name], np.str_))
            for column in fields(JobRows)
        }
    )


def node_rows(n: int = 2, **given: Any) -> NodeRows:
    """n idle nodes of four GPUs in the partition gpu; a column is given as one value for all or as a list."""
    columns: dict[str, Any] = {
        "state": frozenset({"idle"}), "partitions": frozenset({"gpu"}), "features": frozenset(), "gpus": {"": 4},
        "gpus_used": {"": 0}, "cpus": 32, "cpus_used": 0, "cpu_load": 0.0, "memory": 131_072.0, "memory_used": 0.0,
        "memory_free": 131_072.0,
    }  # fmt: skip
    listed = {name: value if isinstance(value, list) else [value] * n for name, value in (columns | given).items()}
    names = tuple(listed.pop("name", [f"n{i + 1}" for i in range(n)]))
    own = {"state", "partitions", "features", "gpus", "gpus_used"}
    arrays: dict[str, Any] = {
        name: tuple(values) if name in own else np.array(values) for name, values in listed.items()
    }
    return NodeRows(name=names, **arrays)


def reading(
    *rows: Mapping[str, Any],
    now: float = NOW,
    nodes: NodeRows | None = None,
    reservations: Sequence[Reservation] = (),
    endings: Sequence[Ending] = (),
    scripts: Mapping[int, bytes] | None = None,
    reports: Mapping[int, bytes] | None = None,
    faults: Sequence[SpoolFault] = (),
    site: Site = SITE,
    site_factors: Mapping[int, int] | None = None,
) -> Reading:
    """What a look at a cluster of these jobs brings."""
    return Reading(
        now=now,
        site=site,
        jobs=job_rows(rows),
        nodes=node_rows() if nodes is None else nodes,
        reservations=tuple(reservations),
        endings=tuple(endings),
        scripts=scripts or {},
        reports=reports or {},
        faults=tuple(faults),
        site_factors=site_factors,
    )


def report(**values: Any) -> bytes:
    """One line of a report file."""
    return json.dumps(values).encode() + b"\n"


def _priority(job: Mapping[str, Any]) -> float:
    """What Slurm shows: with the SiteFactor, except where the job is held or its priority pinned."""
    plain = not job["priority"] or "pinned" in job
    return float(job["priority"] if plain else max(job["priority"] + job.get("label", 0), 1.0))


def _shaped(job: Mapping[str, Any], *, nodes: int | None = None, each: int | None = None) -> dict[str, Any]:
    each = job["gpus"] // job["nodes"] if each is None else each
    nodes = job["nodes"] if nodes is None else nodes
    return {"nodes": nodes, "gpus": nodes * each}


_UPDATES: Mapping[str, Callable[[Mapping[str, Any], str, float], dict[str, Any]]] = {
    "SiteFactor": lambda job, value, now: {"label": int(value)},
    "Gres": lambda job, value, now: _shaped(job, each=int(value.rpartition(":")[2])),
    "TresPerJob": lambda job, value, now: {"gpus": int(value.rpartition(":")[2])},
    "NumNodes": lambda job, value, now: _shaped(job, nodes=int(value.partition("-")[0])),
    "NumTasks": lambda job, value, now: {"tasks": int(value)},
    "CPUsPerTask": lambda job, value, now: {"cpus_per_task": int(value)},
    "MinCPUsNode": lambda job, value, now: {"min_cpus": int(value)},
    "NumCPUs": lambda job, value, now: {"cpus": int(value)},
    "MinMemoryNode": lambda job, value, now: {"memory": float(value) * job["nodes"], "min_memory": float(value)},
    "Nice": lambda job, value, now: {"nice": int(value)},
    "ReservationName": lambda job, value, now: {"reservation": value},
    "ExcNodeList": lambda job, value, now: {"excluded": value},
    "ReqNodeList": lambda job, value, now: {"required": value},
    "StartTime": lambda job, value, now: {"eligible": now if value == "now" else float(value.removeprefix("uts"))},
}
"""What an update of a field changes in a job."""


class Crash(BaseException):
    """The daemon's process ends here."""


@dataclass(frozen=True)
class Done:
    """A command that took effect."""

    at: float
    verb: str
    job_id: int
    restarts: int
    fields: Mapping[str, str]


class FakeCluster:
    """`done` tells what took effect; `lose`, `refuse` and `crash_after` decide what becomes of the next commands.

    `refuse`: the verbs that are refused. `lose`: whether outcomes get lost although the command took effect.
    `put_off`: whether updates are, as slurmdbd has recorded no job.
    `crash_after`: after how many commands the daemon's process ends; None: never.
    """

    def __init__(self, nodes: NodeRows | None = None) -> None:
        self.time = NOW
        self.nodes = node_rows() if nodes is None else nodes
        self.jobs: dict[int, dict[str, Any]] = {}
        self.scripts: dict[int, bytes] = {}
        self.reports: dict[int, bytes] = {}
        self.faults: list[SpoolFault] = []
        self.accounting: dict[int, Ending] = {}
        self.reservations: list[Reservation] = []
        self.requests: set[tuple[int, int, str]] = set()
        self.done: list[Done] = []
        self.refuse: frozenset[str] = frozenset()
        self.lose = False
        self.put_off = False
        self.waiting: frozenset[int] = frozenset()
        self.untold: tuple[str, ...] = ()
        self.crash_after: int | None = None
        self.reachable = True
        self.limited = Limits()
        self.booted = NOW - 3600.0
        self.compared = 0
        self._next = 1
        self._verbs: dict[str, Callable[[Command], str]] = {
            "update": self._update,
            "signal": self._signal,
            "cancel": self._cancel,
            "ask": self._ask,
            "withdraw": self._withdraw,
            "requeue": self._requeue,
            "hold": self._hold,
            "release": self._release,
            "reserve": self._reserve,
            "unreserve": self._unreserve,
        }

    # --- what a test does -------------------------------------------------------------------------------------------

    def submit(self, script: bytes = SCRIPT, **given: Any) -> int:
        """A new job; its id."""
        job_id, self._next = self._next, self._next + 1
        aged = {"priority": 1_000_000.0 - 1_000.0 * job_id}
        self.jobs[job_id] = job_row(job_id, **{"submit": self.time, "eligible": self.time, **aged, **given})
        self.scripts[job_id] = script
        return job_id

    def start(self, job_id: int, node: str = "n1") -> None:
        self.jobs[job_id] |= {"state": "RUNNING", "reason": "None", "start": self.time, "node_list": node}

    def end(self, job_id: int, state: str = "COMPLETED", exit_code: int = 0) -> None:
        """It ended; the controller still lists it."""
        self.jobs[job_id] |= {"state": state, "end": self.time, "exit_code": exit_code}

    def purge(self, job_id: int) -> None:
        """The controller forgets it; the accounting knows how it ended."""
        job = self.jobs.pop(job_id)
        self.accounting[job_id] = Ending(
            job_id, job["state"], job["start"], job["end"], job["exit_code"], job["suspended"]
        )

    def requeue(self, job_id: int) -> None:
        job = self.jobs[job_id]
        job |= {"state": "PENDING", "restarts": job["restarts"] + 1, "submit": self.time, "eligible": self.time + 120.0}
        job |= {"start": NAN, "end": NAN, "node_list": "", "reason": "BeginTime"}  # until Slurm's 120 s are over

    def schedule(self) -> None:
        """Start what waits and is eligible: in its reservation where it has one, else where it has to be, or on n1.

        Not on nodes of a reservation that it is not in.
        """
        taken = {node for each in self.reservations for node in each.nodes}
        for job_id, job in self.jobs.items():
            if job["state"] != "PENDING" or job["priority"] == 0 or job["eligible"] > self.time:
                continue
            held = next((each for each in self.reservations if each.name == job["reservation"]), None)
            names = (
                sorted(held.nodes) if held else [*filter(None, job.get("required", "").split(",")), *self.nodes.name]
            )
            excluded = {*job.get("excluded", "").split(","), *(set() if held else taken)}
            allowed = [name for name in names if name not in excluded]
            if len(allowed) >= job["nodes"]:
                self.start(job_id, ",".join(allowed[: job["nodes"]]))

    def say(self, job_id: int, **values: Any) -> None:
        """The job reports."""
        self.reports[job_id] = self.reports.get(job_id, b"") + report(time=self.time, **values)

    def asked(self, job_id: int, what: str = "stop") -> bool:
        """Whether the job's run is asked."""
        return (job_id, self.jobs[job_id]["restarts"], what) in self.requests

    def verbs(self, job_id: int | None = None) -> list[str]:
        """The verbs that took effect, in order."""
        return [done.verb for done in self.done if job_id in (None, done.job_id)]

    # --- the port ---------------------------------------------------------------------------------------------------

    def read(self, known: Container[Submission], alive: Mapping[int, int]) -> Reading:
        if not self.reachable:
            raise ReadFailed("squeue did not answer")
        reports, self.reports = self.reports, {}
        faults, self.faults = self.faults, []
        return reading(
            *(
                {**{name: job.get(name, usual) for name, usual in job_row(0).items()}, "priority": _priority(job)}
                for job in self.jobs.values()
            ),
            now=self.time,
            nodes=self.nodes,
            reservations=self.reservations,
            endings=[self.accounting[i] for i in sorted(alive) if i not in self.jobs and i in self.accounting],
            scripts={
                i: self.scripts[i]
                for i, job in self.jobs.items()
                if job["batch"] and (i, int(job["submit"])) not in known
            },
            reports=reports,
            faults=faults,
            site=replace(SITE, booted=self.booted),
        )

    def site_factors_in_slurm(self, booted: float) -> dict[int, int]:
        """As sprio tells SiteFactors: of jobs that wait, may start and have no pinned priority."""
        self.compared += 1
        if not self.reachable or booted != self.booted:
            raise ReadFailed("sprio did not answer")
        return {
            job_id: int(job.get("label", 0))
            for job_id, job in self.jobs.items()
            if job["state"] == "PENDING" and job["priority"] and job["eligible"] <= self.time and "pinned" not in job
        }

    def resource_requests(self, job_ids: Collection[int]) -> dict[int, ResourceRequest]:
        if not self.reachable:
            raise ReadFailed("squeue did not answer")
        return {job_id: self._resource_request(self.jobs[job_id]) for job_id in job_ids if job_id in self.jobs}

    def limits(self) -> Limits:
        return self.limited

    @staticmethod
    def _resource_request(job: Mapping[str, Any]) -> ResourceRequest:
        values: dict[str, Any] = {
            "nodes": job["nodes"], "gpus": job["gpus"], "cpus": job["cpus"], "memory": job["memory"],
            "het_id": job["het_id"], "reservation": job["reservation"], "gres_per_job": "",
            "max_nodes": job["nodes"], "gres": f"gres:gpu:{job['gpus'] // job['nodes']}",
            "tasks": job.get("tasks", job["nodes"]), "tasks_per_node": 0,
            "cpus_per_task": job.get("cpus_per_task", job["cpus"] // job["nodes"]),
            "min_cpus_per_node": job.get("min_cpus", 1), "memory_requested": True,
            "min_memory": job.get("min_memory", job["memory"] / job["nodes"]), "cpus_follow_gpus": False,
            "requeue": True, "excluded_nodes": job.get("excluded", ""), "required_nodes": job.get("required", ""),
            "time_limit": job["time_limit"], "nice": job.get("nice", 0), "pending": job["state"] == "PENDING",
        }  # fmt: skip
        return ResourceRequest(**{**values, **job.get("request", {})})

    def traces(self) -> Traces:
        """As sprio tells SiteFactors: of jobs that wait and may start."""
        waits = [job_id for job_id, job in self.jobs.items() if job["state"] == "PENDING"]
        factors = {job_id: int(self.jobs[job_id].get("label", 0)) for job_id in waits}
        return Traces(factors, tuple(sorted(self.requests)), self.waiting, self.untold)

    def apply(self, commands: Sequence[Command]) -> list[Outcome]:
        outcomes = []
        for number, command in enumerate(commands):
            if number == self.crash_after:
                self.crash_after = None
                raise Crash
            outcomes.append(self._outcome(command))
        return outcomes

    def now(self) -> float:
        return self.time

    def wait(self, until: float) -> bool:
        self.time = max(self.time, until)
        return True

    # --- within -----------------------------------------------------------------------------------------------------

    def _outcome(self, command: Command) -> Outcome:
        if command.verb not in self._verbs:
            raise NotImplementedError(f"a command that this cluster does not know: {command}")
        status: Literal["done", "refused", "unknown"]
        if command.verb == "update" and self.put_off:
            return Outcome(command.id, "put off", "the DB index is being set")
        if command.verb in self.refuse:
            return Outcome(command.id, "refused", "Access/permission denied")
        message = self._verbs[command.verb](command)
        if message:
            return Outcome(command.id, "refused", message)
        job = self.jobs.get(command.job.job_id)
        restarts = job["restarts"] if job else -1
        self.done.append(Done(self.time, command.verb, command.job.job_id, restarts, command.fields))
        status = "unknown" if self.lose else "done"
        return Outcome(command.id, status)

    def _live(self, command: Command) -> dict[str, Any] | None:
        job = self.jobs.get(command.job.job_id)
        return job if job and job["state"] in LIVE_STATES else None

    def _update(self, command: Command) -> str:
        if not command.fields or set(command.fields) - set(_UPDATES):
            raise NotImplementedError(f"an update that this cluster does not know: {command.fields}")
        job = self._live(command)
        anytime = {"ReservationName", "SiteFactor", "Nice"}
        if job is None or (job["state"] != "PENDING" and set(command.fields) - anytime):
            return "Job is no longer pending execution"
        for name, value in command.fields.items():
            job |= _UPDATES[name](job, value, self.time)
        return ""

    def _requeue(self, command: Command) -> str:
        job = self._live(command)
        if job is None or job["state"] == "PENDING":
            return "Job/step already completing or completed"
        if not job.get("request", {}).get("requeue", True):
            return "Requested operation is presently disabled"
        self.requeue(command.job.job_id)
        return ""

    def _hold(self, command: Command) -> str:
        return self._waiting(command, {"priority": 0.0, "reason": "JobHeldAdmin"})

    def _release(self, command: Command) -> str:
        return self._waiting(command, {"priority": 1000.0, "reason": "Priority"})

    def _waiting(self, command: Command, change: Mapping[str, Any]) -> str:
        job = self._live(command)
        if job is None or job["state"] != "PENDING":
            return "Job is no longer pending execution"
        job |= change
        return ""

    def _reserve(self, command: Command) -> str:
        wanted = command.fields
        nodes = frozenset(wanted["nodes"].split(","))
        if any(each.name == wanted["name"] or each.nodes & nodes for each in self.reservations):
            return "Requested reservation overlaps with another reservation"
        until = self.time + float(wanted["seconds"])
        made = Reservation(wanted["name"], nodes, frozenset({wanted["user"]}), frozenset(), self.time, until)
        self.reservations.append(made)
        return ""

    def _unreserve(self, command: Command) -> str:
        name = command.fields["name"]
        if any(job["reservation"] == name and job["state"] in LIVE_STATES for job in self.jobs.values()):
            return "Requested reservation is in use"
        self.reservations = [each for each in self.reservations if each.name != name]
        return ""

    def _signal(self, command: Command) -> str:
        if set(command.fields) != {"signal", "to"} or command.fields["to"] not in {"batch", "steps", "full"}:
            raise NotImplementedError(f"a signal that this cluster does not know: {command.fields}")
        job = self._live(command)
        return "" if job and job["state"] in {"RUNNING", "SUSPENDED"} else "Invalid job id specified"

    def _cancel(self, command: Command) -> str:
        if command.fields:
            raise NotImplementedError(f"a cancellation that this cluster does not know: {command.fields}")
        if self._live(command) is None:
            return "Invalid job id specified"
        self.end(command.job.job_id, "CANCELLED")
        return ""

    def _ask(self, command: Command) -> str:
        self.requests.add(self._request(command))
        return ""

    def _withdraw(self, command: Command) -> str:
        self.requests.discard(self._request(command))
        return ""

    @staticmethod
    def _request(command: Command) -> tuple[int, int, str]:
        known = command.fields.keys() - {"content"} == {"what", "restart"}
        if not known or command.fields["what"] not in {"stop", "checkpoint"}:
            raise NotImplementedError(f"a request that this cluster does not know: {command.fields}")
        return command.job.job_id, int(command.fields["restart"]), command.fields["what"]
