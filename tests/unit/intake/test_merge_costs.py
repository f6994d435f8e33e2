"""What it costs to take in another line of a run, by which its user is charged in the spool."""

import pytest

from slurmplug.intake.intake import Intake
from slurmplug.spool.report_files import MERGE_COST
from slurmplug.spool.values import RunId
from tests.fake_cluster import FakeCluster


class Reporting:
    def __init__(self) -> None:
        self.cluster, self.intake = FakeCluster(), Intake()
        self.job = self.cluster.submit()
        self.cluster.start(self.job)
        self.cycle()

    def cycle(self) -> None:
        self.intake.absorb(self.cluster.read(self.intake.known, self.intake.alive), 1)

    def reports(self, lines: int, **values: object) -> dict[RunId, float]:
        for number in range(lines):
            self.cluster.say(self.job, iteration=number, **values)
        self.cycle()
        return dict(self.intake.merge_costs.by_run())


@pytest.fixture
def reporting() -> Reporting:
    return Reporting()


def test_a_run_with_few_points_costs_what_is_usual(reporting: Reporting) -> None:
    assert reporting.reports(3, loss=0.5) == {}


def test_many_trials_and_quantities_cost_more(reporting: Reporting) -> None:
    for trial in range(300):
        reporting.cluster.say(reporting.job, iteration=1, trial=trial, loss=0.5)
    reporting.cycle()
    [(run, trials)] = reporting.intake.merge_costs.by_run().items()
    assert run == RunId(reporting.job, 0)
    assert trials > MERGE_COST + 300
    assert reporting.reports(1, **{f"q{number}": 0.5 for number in range(30)})[run] > trials + 200


def test_after_a_restart_they_are_known_and_of_a_job_that_is_gone_no_more(reporting: Reporting) -> None:
    costs = reporting.reports(1, **{f"q{number}": 0.5 for number in range(30)})
    assert costs
    assert Intake(reporting.intake._records.values()).merge_costs.by_run() == costs
    reporting.cluster.end(reporting.job)
    reporting.cluster.purge(reporting.job)
    reporting.cycle()
    reporting.cycle()
    assert reporting.intake.merge_costs.by_run() == {}
