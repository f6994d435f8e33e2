"""When a job would start and end that was not submitted yet, and what would change that: values for
`slurmplug estimate`.

Only times of the job itself leave this module, as `sbatch --test-only` shows them: nothing of other users' jobs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecast, Forecasts, Need
from slurmplug.cluster.limits import Limits
from slurmplug.errors import UsageError
from slurmplug.forecasting.starts.live_queue import NO_LIMIT, SAMPLES, LiveQueue, OneMore
from slurmplug.forecasting.starts.node_room import Parts
from slurmplug.forecasting.starts.run_time_samples import samples_of
from slurmplug.forecasting.starts.start_outcomes import ends_of, median_and_interval
from slurmplug.intake.job_record import judged_by
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import Selection
from slurmplug.reports import job_view, kept_queue
from slurmplug.reports.job_request import JobRequest
from slurmplug.reports.waits_by_ledger import NewJob, WaitsByLedger
from slurmplug.rules.time_limits import FROM_THE_LIMIT

LONG_ENOUGH = 0.95
"""The share of the forecast run times that a shorter time limit has to leave."""
MUCH_SHORTER = 0.8
"""A shorter time limit is looked at if it is at most this share of the one requested."""
ROUNDED_TO = 600.0
"""seconds, to which a shorter time limit is rounded up"""
LATEST_RUNS = 20
"""runs of the same user and name, of which it is told how many met the target"""

_NEEDS: frozenset[Need] = frozenset({"total", "remaining", "speed", "rigid speed"})


class Estimate(NamedTuple):
    """A time in seconds since the epoch, or a span in seconds: its median and an 80% interval; None where it is later
    than all that was simulated."""

    median: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, samples: Floats) -> "Estimate":
        """That of samples (n,), some of which may be infinite."""
        return cls(*(None if level == np.inf else level for level in median_and_interval(samples).tolist()))


@dataclass(frozen=True)
class Outlook:
    """What is to be expected of the job as it is, or with a change.

    in_time: the share of the samples in which it ends by its deadline, None without one. change: `time_limit` or
    `gpus`, and to which `value`; empty for none.
    """

    run_time: Estimate
    start: Estimate
    end: Estimate
    in_time: float | None
    change: str = ""
    value: float | None = None


def estimate(ledger: LedgerFile, request: JobRequest, now: float) -> dict[str, Any]:
    """As JSON has it. now: when it would be submitted, in seconds since the epoch.

    Raises:
        LedgerError: the ledger cannot be read
        UsageError: no cycle is kept, its cluster cannot have such a job, or it is not known how long that would run
    """
    snapshot = kept_queue.latest(ledger)
    if snapshot is None:
        raise UsageError("the ledger has the queue of no cycle yet: is the daemon running? See slurmplug status")
    forecaster = kept_queue.forecaster(ledger)
    limits = kept_queue.limits(ledger) or Limits()
    queue = LiveQueue(snapshot, forecaster.forecast(snapshot, _NEEDS - {"speed", "rigid speed"}), limits=limits)
    alone = request.snapshot(snapshot)
    own = forecaster.forecast(_managed(alone), _NEEDS)
    variants = _variants(request, own)
    jobs = [variant.job(request) for variant in variants]
    place = queue.place_of(request.user, request.partition)
    whose = limits.of_new_job(request.user, request.account, request.qos, request.partition)
    waits = queue.starts_of(jobs, place, alone.fits[0], whose=whose, gpu_type=request.gpu_type)
    medians = median_and_interval(waits)[:, 0]
    asked = [variant.asked(job) for variant, job in zip(variants, jobs, strict=True)]
    learnt = _learnt_waits(ledger, snapshot, request, asked, now)
    limit = np.nan if request.time_limit is None else request.time_limit
    method, corrected = kept_queue.outcomes(ledger).corrected(medians, learnt, limit)
    if corrected.size:
        waits = corrected
    starts = np.maximum(snapshot.now + waits, max(now, request.begin or 0.0))
    deadline = request.directives(now).deadline
    outlooks = [
        _outlook(variant, start, job.seconds, deadline)
        for variant, start, job in zip(variants, starts, jobs, strict=True)
    ]
    return {
        "as_of": snapshot.now,
        "outcomes": corrected.shape[1],
        "method": method,
        "source": str(own.total.source[0]),
        **_as_json(outlooks[0]),
        "deadline": deadline,
        "target": _target(ledger, request, now),
        "changes": [_as_json(each) for each in outlooks[1:]],
    }


def _managed(snapshot: Snapshot) -> Snapshot:
    """The snapshot as if its jobs had directives: what other numbers of GPUs would change is asked of any job."""
    jobs = snapshot.jobs
    return replace(snapshot, jobs=replace(jobs, managed=np.ones(len(jobs), dtype=bool)))


def _learnt_waits(
    ledger: LedgerFile, snapshot: Snapshot, request: JobRequest, variants: Sequence[NewJob], now: float
) -> Floats:
    """(variants,) the seconds from the snapshot to their starts by the model of waits; NaN where there is no model."""
    model = kept_queue.wait_model(ledger)
    if model is None:
        return np.full(len(variants), np.nan)
    features = WaitsByLedger(ledger, snapshot).features(request.user, request.partition, variants, now)
    return model.waits(features) + max(now - snapshot.now, 0.0)


@dataclass(frozen=True)
class _Variant:
    """The job with another number of GPUs or time limit."""

    change: str
    value: float | None
    gpus: int
    limit: float | None
    total: Forecast

    def job(self, request: JobRequest) -> OneMore:
        """Its samples are those of every other variant, only longer or shorter."""
        share = self.gpus / request.gpus if request.gpus else 1.0
        limit = NO_LIMIT if self.limit is None else self.limit
        seconds = samples_of(self.total, np.array([limit]), SAMPLES, np.random.default_rng(0))[0]
        demand = np.array([self.gpus, request.cpus * share, request.memory * share])
        return OneMore(demand, limit, np.minimum(seconds, limit), self._parts(request, demand))

    def _parts(self, request: JobRequest, demand: Floats) -> Parts | None:
        """A job whose parts are its GPUs has as many as it has GPUs; another one's are as many as before."""
        if not request.parts:
            return None
        count = self.gpus if 0 < request.gpus == request.parts and not request.apart else request.parts
        needs = demand / count
        needs[0] = np.ceil(needs[0])
        return Parts(count, request.apart, needs)

    def asked(self, job: OneMore) -> NewJob:
        """It for the model of waits, of which `job` is that for the simulation."""
        expected = self.total.median[0] if self.total.known[0] else job.limit / 2
        return NewJob(job.demand, job.limit, float(expected))


def _variants(request: JobRequest, own: Forecasts) -> list[_Variant]:
    """The job as it is, and with each change of which it is told what it would bring. own: the job's forecasts.

    Raises:
        UsageError: it is not known how long it would run
    """
    if request.time_limit is None and not own.total.known[0]:
        raise UsageError(
            "how long this job would run is not known: nothing like it has ended here, and it has no time limit; "
            "give it one with --time"
        )
    return [
        _Variant("", None, request.gpus, request.time_limit, own.total),
        *_shorter(request, own.total),
        *_other_sizes(request, own.total, lambda gpus: float(own.speed.at([0], [gpus]).median[0])),
    ]


def _shorter(request: JobRequest, total: Forecast) -> Iterator[_Variant]:
    """The job with the time limit that its forecast run time needs, where that is much shorter."""
    if request.time_limit is None or not total.known[0] or total.source[0] == FROM_THE_LIMIT:
        return
    needed = float(np.ceil(total.quantile(LONG_ENOUGH)[0] / ROUNDED_TO) * ROUNDED_TO)
    if needed <= MUCH_SHORTER * request.time_limit:
        yield _Variant("time_limit", needed, request.gpus, needed, total)


def _other_sizes(request: JobRequest, total: Forecast, speed: Any) -> Iterator[_Variant]:
    """The job with one GPU less and one more, where it is known how fast it would be."""
    present = speed(request.gpus) if request.gpus else np.nan
    for gpus in (request.gpus - 1, request.gpus + 1):
        then = speed(gpus) if gpus > 0 and request.gpus else np.nan
        if present > 0 and then > 0 and total.known[0] and total.source[0] != FROM_THE_LIMIT:
            yield _Variant("gpus", float(gpus), gpus, request.time_limit, total.times(present / then))


def _outlook(variant: _Variant, start: Floats, seconds: Floats, deadline: float | None) -> Outlook:
    end = ends_of(start, seconds)
    in_time = None if deadline is None else float((end <= deadline).mean())
    run_time, begins, ends = (Estimate.of(each) for each in (seconds, start, end))
    return Outlook(run_time, begins, ends, in_time, variant.change, variant.value)


def _as_json(outlook: Outlook) -> dict[str, Any]:
    found = {name: getattr(outlook, name)._asdict() for name in ("run_time", "start", "end")}
    found["in_time"] = outlook.in_time
    return {"change": outlook.change, "value": outlook.value, **found} if outlook.change else found


def _target(ledger: LedgerFile, request: JobRequest, now: float) -> Mapping[str, Any] | None:
    """How many of the user's latest runs of that name met the target that the job states; None where it states none."""
    directives = request.directives(now)
    target = directives.target
    if target is None:
        return None
    which = Selection(users=(request.user,), names=(request.name,), states=("COMPLETED",))
    values = [job.quantities.get(target.quantity) for job in job_view.jobs(ledger, which) if not job.live]
    known = [value for value in values if value is not None][-LATEST_RUNS:]
    return {
        "quantity": judged_by(directives, ()).quantity,
        "relation": target.relation,
        "value": target.value,
        "runs": len(known),
        "met": sum(map(target.reached, known)),
    }
