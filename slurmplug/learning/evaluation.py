"""Evaluates the predictors on files of data whose outcome is known, for `slurmplug evaluate`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from predictors.scoring import Clock, ScoreRow
from predictors.trials import curves, gpu_types, loss, optstop, runtime, speed
from slurmplug.errors import DataError, UsageError
from slurmplug.learning import dataset_files, stop_trials, wait_trial
from slurmplug.learning.dataset_files import JobLog

ScoreTables: TypeAlias = Mapping[str, Sequence[ScoreRow]]
"""Rows of scores, by the title of their table."""


class _Evaluation(Protocol):
    def __call__(
        self, files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock
    ) -> ScoreTables: ...


def evaluate_files(
    kind: str,
    files: Sequence[Path],
    histories: Sequence[Path],
    observe: float,
    clock: Clock,
    *,
    read: Callable[[str], JobLog | None] = lambda name: None,  # noqa: ARG005
) -> ScoreTables:
    """Evaluate the predictors of a kind: curves, loss, optstop, runtime, speed, gpu-types, stops or wait.

    `histories`: files to learn from, rather than from other parts of the data. `observe`: the share of a learning
    curve that is observed. `clock`: times the predictions, in seconds. `read`: the job log of a name that it knows.

    Raises:
        UsageError: this kind takes no history, or not several.
        DataError: a file cannot be read, or holds too little data.
    """
    if histories and kind not in _WITH_HISTORY:
        raise UsageError(f"--history is for {', '.join(sorted(_WITH_HISTORY))} only")
    try:
        if kind == "runtime":
            return _runtime(files, histories, clock, read)
        return _EVALUATIONS[kind](files, histories, observe, clock)
    except ValueError as error:  # a trial has too little data
        raise DataError(f"{', '.join(map(str, files))}: {error}") from error


def _curves(files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock) -> ScoreTables:
    history = dataset_files.read_accuracy_curves(histories) if histories else None
    runs = dataset_files.read_accuracy_curves(files)
    return {f"last value, from {observe:.0%} of the curve": curves.trial(runs, observe, clock, history)}


def _optstop(files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock) -> ScoreTables:  # noqa: ARG001
    runs = dataset_files.read_accuracy_curves(files)
    history = dataset_files.read_accuracy_curves(histories) if histories else None
    return {
        f"{name or 'runs'} in {optstop.ORDERS} orders": optstop.trial(tested, past, clock)
        for name, tested, past in optstop.searches(runs, history)
    }


def _loss(files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock) -> ScoreTables:  # noqa: ARG001
    curves = dataset_files.read_loss_curves(files)
    return {
        f"loss, {ahead} iteration{'s' * (ahead > 1)} ahead": loss.trial(curves, clock, ahead) for ahead in loss.AHEAD
    }


def _stops(files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock) -> ScoreTables:  # noqa: ARG001
    runs, losses = dataset_files.read_accuracy_curves(files), dataset_files.read_loss_curves(files)
    return {
        "stops of runs, as no better value is likely or the target is out of reach": stop_trials.accuracy_trial(runs),
        "stops of runs whose loss lies beyond its past": stop_trials.loss_trial(losses),
    }


def _runtime(
    files: Sequence[Path], histories: Sequence[Path], clock: Clock, read: Callable[[str], JobLog | None]
) -> ScoreTables:
    if len(histories) > 1:
        raise UsageError("evaluate runtime takes one job log as --history: name one")
    earlier = [_log(path, read) for path in histories]
    tables = {}
    for path in files:
        logs = [*earlier, _log(path, read)]
        jobs = [job for log in logs for job in log.jobs]
        runtimes = np.concatenate([log.runtimes for log in logs])
        known = len(jobs) - len(logs[-1].jobs)
        if known and float(jobs[known]["submit"]) < float(jobs[known - 1]["submit"]):
            raise DataError(f"{path}: its first job was submitted before the last one of the history")
        tables[f"run time, {path.name}"] = runtime.trial(jobs, runtimes, clock, earlier=known)
    return tables


def _wait(files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock) -> ScoreTables:  # noqa: ARG001
    if len(files) > 1:
        raise UsageError("evaluate wait takes one job log: name one FILE")
    return {f"waiting time, {files[0].name}": wait_trial.trial(dataset_files.read_job_log(files[0]), clock)}


def _log(path: Path, read: Callable[[str], JobLog | None]) -> JobLog:
    return read(str(path)) or dataset_files.read_job_log(path)


def _speed(files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock) -> ScoreTables:  # noqa: ARG001
    return {"step time at other counts of GPUs": speed.trial(dataset_files.read_step_times(files), clock)}


def _gpu_types(files: Sequence[Path], histories: Sequence[Path], observe: float, clock: Clock) -> ScoreTables:  # noqa: ARG001
    return {"step time on another type of GPU": gpu_types.trial(dataset_files.read_speeds_by_type(files))}


_EVALUATIONS: Mapping[str, _Evaluation] = {
    "curves": _curves, "loss": _loss, "optstop": _optstop, "speed": _speed, "gpu-types": _gpu_types,
    "stops": _stops, "wait": _wait,
}  # fmt: skip
_WITH_HISTORY = frozenset({"curves", "optstop", "runtime"})
