"""One contract for every client of Slurm: the command line, and pyslurm where CLIENT=pyslurm chooses it."""

from collections.abc import Iterator
from functools import partial

import pytest

from policies.snapshot import JobKey
from slurmplug.cluster.api_client import ApiClient, make_client
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Command
from slurmplug.cluster.pyslurm_process import SiteFactorWrite
from slurmplug.config.schema import SlurmSettings
from slurmplug.sandbox import Sandbox
from tests.live.chosen import CLIENT, proven
from tests.live.daemon_process import site_factors


@pytest.fixture(params=sorted({"cli", CLIENT}))
def made(request: pytest.FixtureRequest, cluster: Sandbox) -> Iterator[CliClient]:
    one = make_client(SlurmSettings(conf=cluster.layout.slurm_conf, client=request.param))
    if isinstance(one, ApiClient):
        proven(one)
    yield one
    if isinstance(one, ApiClient):
        one.pyslurm.end()


def has_factor(cluster: Sandbox, job: int, factor: int) -> bool:
    return site_factors(cluster).get(job) == factor


def update(name: str, **fields: str) -> Command:
    return Command(name, "update", JobKey("sandbox", 1, 0), fields)


def test_a_site_factor_is_set_changed_and_taken_back(cluster: Sandbox, made: CliClient) -> None:
    cluster.wait_job(cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nsleep 60\n", "--gres=gpu:4", "-N4"), "RUNNING")
    blocked = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nsleep 60\n", "--gres=gpu:4", "-N4")
    for factor in (70, -5, 0):
        outcomes = made.write([update("a", SiteFactor=str(factor))], [str(blocked)])
        assert [each.status for each in outcomes] == ["done"], outcomes
        cluster.wait(partial(has_factor, cluster, blocked, factor), what=f"{factor}")
    array = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nsleep 60\n", "--gres=gpu:4", "-N4", "--array=0-1")
    outcomes = made.write(
        [update("a", SiteFactor="9"), update("b", SiteFactor="8"), update("c", SiteFactor="7")],
        [str(blocked), "999999", f"{array}_[0-1]"],
    )
    assert [each.status for each in outcomes] == ["done", "refused", "done"], outcomes
    assert outcomes[1].message


def test_reading_tells_the_same_of_a_job(cluster: Sandbox, made: CliClient) -> None:
    job = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nsleep 60\n", "--gres=gpu:2")
    cluster.wait_job(job, "RUNNING")
    rows = made.queue().rows
    at = rows.job_id.tolist().index(job)
    assert (rows.state[at], int(rows.gpus[at])) == ("RUNNING", 2)


def test_what_slurmctld_does_not_answer_is_not_known(cluster: Sandbox, made: CliClient) -> None:
    job = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nsleep 60\n", "--gres=gpu:4", "--hold")
    cluster.stop("slurmctld")
    try:
        outcomes = made.write([update("a", SiteFactor="5"), update("b", SiteFactor="6")], [str(job)] * 2)
    finally:
        cluster.start("slurmctld")
    assert [each.status for each in outcomes] == ["unknown", "unknown"], outcomes


def test_pyslurm_works_again_after_slurmctld_was_started_again(
    cluster: Sandbox, made: CliClient, caplog: pytest.LogCaptureFixture
) -> None:
    if not isinstance(made, ApiClient):
        return
    job = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nsleep 60\n", "--gres=gpu:4", "--hold")
    cluster.restart("slurmctld")
    made.site()
    assert [each.status for each in made.write([update("a", SiteFactor="5")], [str(job)])] == ["done"]
    assert made.ready(60.0)
    assert [each.status for each in made.pyslurm.write([SiteFactorWrite(job, 6)])] == ["done"]
    assert "given up" not in caplog.text
