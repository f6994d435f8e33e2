"""Run times of the jobs in a snapshot: from the runs before them, and from their own pace once they report it."""

from collections.abc import Callable, Hashable, Sequence, Set
from typing import NamedTuple, Protocol

import numpy as np

from policies.believed import believed
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import LEVELS, Forecast, Need
from predictors.runtime import Job, RuntimePredictor
from predictors.speed import SpeedPredictor
from slurmplug.forecasting.curve_fans import LARGEST_BELIEVABLE
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.stated_iterations import by_iterations

OUTLIVED = 0.95
"""A job that runs for longer than this quantile of its forecast has outlived it."""
PACE_SPREAD = 0.10
"""Standard deviation of the logarithm of the remaining time, of a job whose pace is known."""
FIRST_PACES_SPREAD = 0.5
"""What a first pair of reports adds to it, shrinking with the square root of their number."""


class RunTimes(Protocol):
    """Where forecasts of run times come from."""

    @property
    def version(self) -> str:
        """What made the forecasts, for the record."""
        ...

    def forecast(self, snapshot: Snapshot, needs: Set[Need], paces: KindPaces) -> "RunTimeForecasts":
        """The run times of each job; what is not in `needs` may be unknown. paces: of this cycle."""
        ...


class RunTimeForecasts(NamedTuple):
    """Seconds of each job, (n,) each: in all and still to come, as it is now; and in all on what its user asked for, by
    earlier runs alone."""

    total: Forecast
    remaining: Forecast
    as_requested: Forecast


class HistoryRunTimes:
    """Run times by the pace of a job that reports its iterations; of other jobs by the runs before it, and by the
    iterations that they state.

    Reports are claims, so a pace shortens what was forecast at submission only as far as the GPU time attained bears it
    out (`shortest_believed`). What a run reported holds for a next one on other GPUs by how the job and its kind scale.
    """

    def __init__(self, predictor: RuntimePredictor) -> None:
        self._predictor = predictor
        self._submitted = _LatestForecasts()
        self._paces = _Paces()

    @property
    def version(self) -> str:
        """The run-time predictor's."""
        return self._predictor.version

    def forecast(self, snapshot: Snapshot, needs: Set[Need], paces: KindPaces) -> RunTimeForecasts:  # noqa: ARG002 one needs the other
        """All of them, whatever is needed."""
        jobs = snapshot.jobs
        elapsed = snapshot.elapsed
        by_runs, as_requested, shortest = self._by_earlier_runs(jobs)
        submitted = by_iterations(snapshot, by_runs, shortest, paces)
        pace = self._paces.of(snapshot, paces)
        left = (jobs.max_iterations - jobs.iteration) * pace.seconds
        believable = (left > 0) & (left < LARGEST_BELIEVABLE)
        believable &= jobs.trials == ""  # of several trials, how many are to come is not known
        paced = np.flatnonzero((jobs.iteration > 0) & (pace.seconds > 0) & believable)
        spread = PACE_SPREAD + FIRST_PACES_SPREAD / np.sqrt(np.maximum(jobs.iteration[paced], 1.0))
        every = np.arange(len(jobs)), submitted
        ran = np.where(pace.gpus > 0, jobs.attained / np.maximum(pace.gpus, 1), elapsed)
        rows, rest = self._outlived(jobs, submitted, ran, elapsed)
        expected = Forecast.assemble(len(jobs), [every, (rows, _later(rest, ran[rows]))])
        stated = Forecast.lognormal(left[paced], spread, "progress")
        least = shortest_believed(jobs, expected, pace)[paced]
        by_pace = Forecast(np.fmax(stated.table, least.table), stated.source)
        begun = np.flatnonzero(submitted.known & (elapsed > 0))
        running = begun, submitted[begun].beyond(elapsed[begun])
        remaining = Forecast.assemble(len(jobs), [every, running, (rows, rest), (paced, by_pace)])
        longer = rows, _later(rest, elapsed[rows])
        total = Forecast.assemble(len(jobs), [every, longer, (paced, _later(by_pace, elapsed[paced]))])
        return RunTimeForecasts(total, remaining, as_requested)

    def _by_earlier_runs(self, jobs: Jobs) -> tuple[Forecast, Forecast, Floats]:
        """The run times of jobs by the runs before them, on the GPUs that they have and on those they asked for; and
        (n,) the seconds that they are taken to run at least."""
        gpus, asked = jobs.gpus.tolist(), jobs.requested[:, 0].tolist()
        others = [row for row, both in enumerate(zip(gpus, asked, strict=True)) if both[0] != both[1]]
        limits = (np.nan_to_num(column, nan=-1.0) for column in (jobs.time_limit, jobs.max_iterations))
        known = list(zip(jobs.keys, *(each.tolist() for each in (jobs.kind, jobs.gpu_type, *limits)), strict=True))
        each = [*enumerate(gpus), *((row, int(asked[row])) for row in others)]
        forecast, least = self._submitted.of(
            [(known[row], count) for row, count in each],
            lambda new: with_evidence(self._predictor, [as_submitted(jobs, *each[at]) for at in new.tolist()]),
        )
        at = np.arange(len(gpus))
        at[others] = len(gpus) + np.arange(len(others))
        return forecast[np.arange(len(gpus))], forecast[at], least[: len(gpus)]

    @staticmethod
    def _outlived(jobs: Jobs, submitted: Forecast, ran: Floats, elapsed: Floats) -> tuple[Ints, Forecast]:
        """The rows of jobs that have run for longer than their forecast by earlier runs allowed, and what remains of
        them: those runs were not like them. ran, elapsed (n,): seconds in all runs, and in this one.

        Evenly up to the time limit, or without one up to as long again as they have run.
        """
        by_runs = submitted.known & (submitted.source != "time limit")
        rows = np.flatnonzero(by_runs & (ran > submitted.quantile(OUTLIVED)))
        left = jobs.time_limit[rows] - elapsed[rows]
        most = np.where(np.isnan(left), ran[rows], np.maximum(left, 0.0))
        return rows, Forecast(most[:, None] * LEVELS, np.full(len(rows), "outlived"))


def with_evidence(predictor: RuntimePredictor, jobs: Sequence[Job]) -> tuple[Forecast, Floats]:
    """The run times of n jobs by the runs before them, which nobody ranks by before these are evidence enough; and the
    least seconds (n,) that this is.

    The median, and what lies above it, are at least `RuntimePredictor.least`. The quantiles below are as predicted:
    most jobs of which little is known are short, and the interval has to say so.
    """
    forecast = predictor.predict_many(jobs)
    least = predictor.least(jobs)
    by_runs = np.where(forecast.source == "time limit", np.nan, least)
    raised = np.where(LEVELS >= 0.5, np.fmax(forecast.table, by_runs[:, None]), forecast.table)
    return Forecast(np.where(forecast.known[:, None], raised, np.nan), forecast.source), least


def shortest_believed(jobs: Jobs, expected: Forecast, pace: "ObservedPaces") -> Forecast:
    """The least remaining seconds of each job (n,) that its reports can make believed; unknown where nothing else is
    forecast.

    What is forecast of its run time (n,) without them leaves after the GPU time attained, less the share of it that is
    believed.
    """
    ran = jobs.attained / np.maximum(pace.gpus, 1)
    known = np.flatnonzero(expected.known)
    share = (1.0 - believed(ran, expected.median, pace.of_this_run)) * pace.slower
    return Forecast.assemble(len(jobs), [(known, expected[known].beyond(ran[known]).times(share[known]))])


class ObservedPaces(NamedTuple):
    """How fast each job trains by its own reports, columns (n,).

    seconds: of an iteration on the GPUs that it has or requests, NaN where unknown. gpus: the number on which it was
    seen last. slower: the factor by which an iteration of any job takes longer on its GPUs than on those, whatever it
    and its kind reported. of_this_run: whether its present run has reported it.
    """

    seconds: Floats
    gpus: Ints
    slower: Floats
    of_this_run: Bools


class _Paces:
    """The pace of each job, and the GPUs on which it was seen, for its next run on others.

    To another type of GPU none is taken over: the run time is then forecast by earlier runs on that type.
    """

    def __init__(self) -> None:
        self._seen: dict[JobKey, tuple[int, float, str]] = {}
        self._relative: dict[tuple[int, int], float] = {}

    def of(self, snapshot: Snapshot, paces: KindPaces) -> ObservedPaces:
        """The jobs' own paces while they run; before they report, that of the run before, scaled to their GPUs."""
        jobs = snapshot.jobs
        own = jobs.running & (jobs.iteration_time > 0)
        seconds, gpus, slower = np.where(own, jobs.iteration_time, np.nan), jobs.gpus.copy(), np.ones(len(jobs))
        seen = {
            jobs.keys[row]: (int(gpus[row]), float(seconds[row]), str(jobs.gpu_type[row]))
            for row in np.flatnonzero(own).tolist()
        }
        a_node = max(int(snapshot.nodes.capacity[:, 0].max(initial=0.0)), 1)
        for row in np.flatnonzero(~own & (jobs.iteration > 0)).tolist():
            before = self._seen.get(jobs.keys[row])
            if before is not None:
                seen[jobs.keys[row]] = before
                if before[2] and jobs.gpu_type[row] and before[2] != jobs.gpu_type[row]:
                    continue
                slower[row] = self._slower(before[0], int(gpus[row]), a_node)
                step = paces.step_of_job(jobs, row, int(gpus[row])) if gpus[row] != before[0] else before[1]
                gpus[row], seconds[row] = before[0], before[1] * slower[row] if step is None else step
        self._seen = seen
        return ObservedPaces(seconds, gpus, slower, own)

    def _slower(self, gpus: int, now: int, a_node: int) -> float:
        """By what factor an iteration takes longer on so many GPUs than on those before."""
        if gpus == now or min(gpus, now) < 1:
            return 1.0
        if (gpus, now) not in self._relative:
            counts, nodes = np.array([gpus, now]), np.array([-(-count // a_node) for count in (gpus, now)])
            scaling = SpeedPredictor().fit(counts[:1], nodes[:1], counts[:1])
            before, after = counts * scaling.predict(counts, nodes).median
            self._relative[gpus, now] = float(before / after)
        return self._relative[gpus, now]


class _LatestForecasts:
    """The forecasts of the cycle before, so that each is made once; and the least that each job is taken to run."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self._forecasts, self._least = Forecast.unknown(0), np.zeros(0)

    def of(self, keys: Sequence[Hashable], make: Callable[[Ints], tuple[Forecast, Floats]]) -> tuple[Forecast, Floats]:
        """The forecasts of these keys (n,); `make` is given the positions of the new ones, if there are any."""
        at = np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)
        old, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        forecasts, least = self._forecasts[at[old]], self._least[at[old]]
        if len(new):
            made, made_least = make(new)
            forecasts = Forecast.assemble(len(keys), [(old, forecasts), (new, made)])
            least = np.concatenate([least, made_least])[np.argsort(np.concatenate([old, new]))]
        self._rows = {key: row for row, key in enumerate(keys)}
        self._forecasts, self._least = forecasts, least
        return forecasts, least


def _later(forecast: Forecast, seconds: Floats) -> Forecast:
    return Forecast(forecast.table + seconds[:, None], forecast.source)


def known_at_submit(
    *, user: str, account: str, partition: str, qos: str, kind: str, name: str, gpus: float, gpu_type: str, cpus: float,
    memory: float, time_limit: float | None, submit: float, work: str,
) -> Job:  # fmt: skip
    """The inputs of a run time forecast, in training as in use; a type of GPU that is not requested is known once the
    job runs."""
    return {
        "user": user, "account": account, "partition": partition, "qos": qos, "type": kind, "exe": name, "name": name,
        "gpus": gpus, "gpu_type": gpu_type, "cpus": cpus, "mem": memory, "time_limit": time_limit, "submit": submit,
        "work": work,
    }  # fmt: skip


def as_submitted(jobs: Jobs, row: int, gpus: int) -> Job:
    """The job as if it had asked for so many GPUs, with CPUs and memory in proportion."""
    limit, (asked, *others) = float(jobs.time_limit[row]), jobs.requested[row].tolist()
    cpus, memory = (amount * gpus / asked if asked else amount for amount in others)
    return known_at_submit(
        user=str(jobs.user[row]),
        account=str(jobs.account[row]),
        partition=str(jobs.partition[row]),
        qos=str(jobs.qos[row]),
        kind=str(jobs.kind[row]),
        name=str(jobs.name[row]),
        gpus=gpus,
        gpu_type=str(jobs.gpu_type[row]),
        cpus=cpus,
        memory=memory,
        time_limit=None if np.isnan(limit) else limit,
        submit=float(jobs.submitted[row]),
        work=str(jobs.work[row]),
    )
