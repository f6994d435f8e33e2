"""The Slurm that is made up for benchmarks answers what was written to it, as Slurm does."""

import numpy as np

from policies.snapshot import JobKey
from slurmplug.cluster.port import Command
from tests.bench.made_up_slurm import MadeUpClient


def test_a_site_factor_that_was_written_is_in_the_priority_and_in_what_sprio_shows() -> None:
    client = MadeUpClient(50)
    before = client.queue().rows
    pending = before.job_id[before.state == "PENDING"].tolist()
    assert client.site_factors() == dict.fromkeys(pending, 0)
    job = pending[3]
    update = Command("1", "update", JobKey("made-up", job, 0), {"SiteFactor": "17"})
    assert [outcome.status for outcome in client.write([update], [str(job)])] == ["done"]
    assert client.site_factors() == dict.fromkeys(pending, 0) | {job: 17}
    after = client.queue().rows
    assert np.array_equal(after.priority - before.priority, np.where(after.job_id == job, 17.0, 0.0))


def test_what_runs_has_not_been_suspended() -> None:
    client = MadeUpClient(50)
    rows = client.queue().rows
    running = rows.state == "RUNNING"
    assert running.any()
    assert (rows.suspended[running] < 2.0).all()
