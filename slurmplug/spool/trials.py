"""Which of a job's trainings a report belongs to, where a job trains several models: folds, or a sweep. Pure.

A job may name them, `report(trial=...)`. Where it does not, its count of iterations shows them: when it goes back to
the first one, another training begins; when it goes back to a later one, the same training resumes from a checkpoint.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

MAX_TRIALS = 1_000
"""of a job; the reports of others are dropped"""
MAX_NAME_LENGTH = 64
UNNAMED = ""


class Trial(NamedTuple):
    """One of a job's trainings. `began`: the time of its first report in the run that reported it last, in seconds
    since the epoch."""

    name: str
    began: float


class Reported(NamedTuple):
    """What of a report shows its trial. `timed`: whether it has a time of its own; else it is that of the reading."""

    name: str | None
    iteration: float
    time: float
    timed: bool
    quantities: Mapping[str, float]


class Span(NamedTuple):
    """The highest iteration of a trial in this run, and the time of its latest report."""

    highest: float
    latest: float


KnownQuantities: TypeAlias = Callable[[int, float], Mapping[str, float] | None]
"""The quantities of a trial's iteration, by the number of the trial; None where this run has not reported it."""


class TrialFinder:
    """Finds the trial of each report of a run, in the order in which they were written.

    Attributes:
        trials: those of the job, in the order in which they began.
        present: the one that the latest report belongs to.
        first: the lowest iteration that the job ever reported, NaN before the first report.
    """

    def __init__(self, trials: Sequence[Trial], present: int, first: float, spans: Mapping[int, Span]) -> None:
        """`spans`: by trial, of those that this run has reported."""
        self.trials = list(trials)
        self.present = present
        self.first = first
        self._spans = dict(spans)
        self._latest = max((span.latest for span in spans.values()), default=-math.inf)
        self._begun = sorted((self.trials[number].began, number) for number in spans)
        """the trials of this run in order of time, as a hostile file may name very many"""
        self._named = {trial.name: number for number, trial in enumerate(trials) if trial.name != UNNAMED}

    def find(self, report: Reported, known: KnownQuantities) -> int | None:
        """The number of the report's trial, from 0, one more than the last for another; None if it is one too many."""
        if report.name is not None:
            found = self._named.get(report.name, len(self.trials))
        elif not self._spans:
            found = self._at_the_start_of_a_run(report)
        elif report.timed and report.time < self.trials[self.present].began:
            found = self._at_that_time(report.time)
        else:
            found = self._next() if self._goes_back(report, known(self.present, report.iteration)) else self.present
        return found if found < MAX_TRIALS else None

    def add(self, number: int, report: Reported) -> None:
        """Note that the report belongs to the trial of that number, which `find` returned."""
        name = report.name or UNNAMED
        if number == len(self.trials):
            self.trials.append(Trial(name, report.time))
            self._named |= {name: number} if name != UNNAMED else {}
        elif number not in self._spans:
            self.trials[number] = self.trials[number]._replace(began=report.time)
        if number not in self._spans:
            insort(self._begun, (report.time, number))
        if report.time >= self._latest:
            self.present, self._latest = number, report.time
        highest, latest = self._spans.get(number, (-math.inf, -math.inf))
        self._spans[number] = Span(max(highest, report.iteration), max(latest, report.time))
        self.first = report.iteration if math.isnan(self.first) else min(self.first, report.iteration)

    def highest(self, number: int) -> float:
        """The highest iteration that this run reported of a trial, minus infinity for none."""
        return self._spans[number].highest if number in self._spans else -math.inf

    def is_present(self, time: float) -> bool:
        """Whether something that was reported at this time is of the present trial, and not read again."""
        return len(self.trials) < 2 or time >= self._latest

    def _at_the_start_of_a_run(self, report: Reported) -> int:
        """The trial in which the run before ended; the first one where a job that names none starts from scratch."""
        if not self.trials:
            return 0
        from_scratch = report.iteration <= self.first and not self._named
        return 0 if from_scratch else self.present

    def _at_that_time(self, time: float) -> int:
        """The trial of a report that is read again: the last one that had begun then."""
        place = bisect_right(self._begun, (time, math.inf)) - 1
        return self._begun[max(place, 0)][1]

    def _goes_back(self, report: Reported, known: Mapping[str, float] | None) -> bool:
        """Whether the count is at its first iteration again, and this is neither a late quantity of that iteration nor
        the same report read again."""
        if not report.iteration <= self.first < self._spans[self.present].highest:
            return False
        if report.timed and not report.time > self._spans[self.present].latest:
            return False
        if known is None:
            return True
        shared = [name for name in report.quantities if name in known]
        if report.timed:
            return bool(shared) or not report.quantities
        return any(known[name] != report.quantities[name] for name in shared)

    def _next(self) -> int:
        """The number of the training after the present one: in a run from scratch, of one that an earlier run had."""
        number = self.present + 1
        repeated = number < len(self.trials) and not self._named and number not in self._spans
        return number if repeated else len(self.trials)
