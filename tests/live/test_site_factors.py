"""Slurm's SiteFactors and the ledger's agree, or it is said why: after a kill of slurmctld, an admin's own scontrol."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from policies.plan import Plan
from policies.snapshot import JobKey
from slurmplug.config.schema import Config
from slurmplug.errors import ReadFailed
from slurmplug.ledger.ledger import Ledger
from slurmplug.sandbox import ClusterSpec, Partition, Sandbox
from tests.ledgers import Planned, run
from tests.live.daemon_process import site_factors
from tests.live.operated import calls, command, look, operated
from tests.schedulers import begun

FILL = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n"
WAITING = "#!/bin/sh\n#SBATCH --gres=gpu:4\n#PLUG --urgency=5\nsleep 600\n"
TWO = ClusterSpec(partitions=(Partition("gpu"), Partition("also")))


class Ranking:
    """A scheduler that ranks by job id and compares in every cycle, beside a cluster whose GPUs are all taken."""

    def __init__(self, cluster: Sandbox, folder: Path) -> None:
        self.cluster, self.folder, self.ledger = cluster, folder, Ledger(folder / "ledger.db")
        self.port = operated(cluster, folder)
        config = Config.from_table({"mode": {"default": "act"}, "priority": {"compare": 0.001}})
        self.scheduler = begun(self.port, Planned(self._plan), self.ledger, config)
        self.filler = cluster.sbatch(cluster.researchers[2], FILL, "-p", "gpu")
        cluster.wait_job(self.filler, "RUNNING")

    @staticmethod
    def _plan(snapshot: object) -> Plan:
        keys: tuple[JobKey, ...] = snapshot.jobs.keys  # type: ignore[attr-defined]
        return Plan(np.array([key.job_id for key in keys], dtype=float))

    def submit(self, *options: str) -> int:
        return self.cluster.sbatch(self.cluster.researchers[0], WAITING, *options)

    def cycle(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.scheduler.run() is not None

    def update(self, job: int, field: str) -> None:
        self.cluster.run(self.cluster.operator, ["scontrol", "update", f"JobId={job}", field])

    def until_sprio_lists(self, *jobs: int) -> None:
        self.cluster.wait(lambda: set(jobs) <= site_factors(self.cluster).keys(), what=f"{jobs} in sprio")

    def priority(self, job: int) -> int:
        return int(self.cluster.run("root", ["squeue", "-h", "-j", str(job), "-o", "%Q"]).stdout)

    def in_ledger(self) -> dict[int, float]:
        rows = self.ledger.query("SELECT job_id, label FROM jobs WHERE state = 'PENDING'")
        return {row["job_id"]: row["label"] for row in rows}

    def ask(self, name: str, *arguments: str) -> str:
        return run(name, "--ledger", str(self.folder / "ledger.db"), *arguments).output


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[Ranking]:
    one = Ranking(cluster, tmp_path)
    with closing(one.ledger):
        yield one


def test_a_slurmctld_that_was_killed_before_it_saved_them_gets_them_again(site: Ranking) -> None:
    jobs = [site.submit() for _ in range(4)]
    site.until_sprio_lists(*jobs)
    state, saved = site.cluster.folder / "state", site.folder / "state"
    site.cluster.restart("slurmctld")  # which saves the jobs
    shutil.copytree(state, saved)
    site.cycle(2)
    written = site_factors(site.cluster)
    assert len({written[job] for job in jobs}) == 4
    site.cluster.kill("slurmctld")
    for path in saved.glob("job_state*"):  # as if it had had no time to save them
        shutil.copyfile(path, state / path.name)
    time.sleep(1.0)  # Slurm tells when it was started in whole seconds
    site.cluster.start("slurmctld")
    site.until_sprio_lists(*jobs)
    assert {site_factors(site.cluster)[job] for job in jobs} == {0}
    site.cycle()
    assert site_factors(site.cluster) == site.in_ledger() == written
    assert "set by others" not in site.ask("queue")


def test_what_an_operator_sets_is_left_alone_and_said_until_it_is_0_again(site: Ranking) -> None:
    first, second, third = (site.submit() for _ in range(3))
    site.until_sprio_lists(first, second, third)
    site.cycle(2)
    ours = site_factors(site.cluster)
    site.update(second, "SiteFactor=123456")
    site.submit()
    site.cycle(2)
    without = site_factors(site.cluster)
    assert without[second] == site.in_ledger()[second] == 123_456
    assert without[first] == ours[first]
    assert "Somebody else set its SiteFactor to 123456; slurmplug ranks it again once" in site.ask("why", str(second))
    assert "Slurm's (set by others)" in site.ask("queue")
    site.update(second, "SiteFactor=0")
    site.cycle()
    now = site_factors(site.cluster)
    assert now[first] < now[second] < now[third]
    site.update(third, "SiteFactor=0")
    site.cycle(2)
    assert site_factors(site.cluster)[third] == 0
    assert "is ranked again" in site.ask("resume", "--job", str(third))
    site.cycle()
    after = site_factors(site.cluster)
    assert after[third] > now[second]
    assert (after[first], after[second]) == (now[first], now[second])


def test_of_what_sprio_does_not_show_nothing_is_concluded(site: Ranking) -> None:
    plain, held, later, depends, pinned = (
        site.submit(),
        site.submit(),
        site.submit("--begin=now+1hour"),
        site.submit(f"--dependency=afterok:{site.filler}"),
        site.submit(),
    )
    array = site.submit("--array=0-3")
    site.until_sprio_lists(plain, held, pinned, array)
    site.cycle(2)
    known = site.in_ledger()
    site.cluster.run(site.cluster.operator, ["scontrol", "hold", str(held)])
    site.update(pinned, "Priority=5000")
    shown = look(site.port)
    assert set(site.port.site_factors_in_slurm(shown.site.booted)) == {plain, array}
    site.cycle(2)
    assert {job: site.in_ledger()[job] for job in (held, later, depends)} == {
        job: known[job] for job in (held, later, depends)
    }
    assert site.in_ledger()[pinned] is None
    assert site.priority(pinned) == 5000
    site.cluster.run(site.cluster.operator, ["scontrol", "release", str(pinned)])
    site.until_sprio_lists(pinned)
    site.cycle(2)
    assert site_factors(site.cluster)[pinned] == site.in_ledger()[pinned] == known[pinned]
    assert "set by others" not in site.ask("queue")


def test_a_job_in_two_partitions_is_compared_once(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path
) -> None:
    one = Ranking(special_cluster(TWO), tmp_path)
    with closing(one.ledger):
        both, single = one.submit("-p", "gpu,also"), one.submit("-p", "gpu")
        one.until_sprio_lists(both, single)
        rows = one.cluster.run("root", ["sprio", "-h", "-o", "%i"]).stdout.split()
        assert rows.count(str(both)) == 2
        one.cycle(2)
        assert site_factors(one.cluster) == one.in_ledger()
        one.update(both, "SiteFactor=123456")
        one.cycle(2)
        assert site_factors(one.cluster) == one.in_ledger()
        assert one.in_ledger()[both] == 123_456


def test_a_component_of_a_heterogeneous_job_has_a_site_factor_of_its_own(site: Ranking) -> None:
    owner = site.cluster.researchers[0]
    wrap = ["--gres=gpu:4", "--comment=plug: urgency=5"]
    answer = site.cluster.run(owner, ["sbatch", "--parsable", *wrap, ":", *wrap, "--wrap", "sleep 600"])
    leader = int(answer.stdout)
    site.until_sprio_lists(leader, leader + 1)
    site.port.read((), {})
    for job, value in ((leader + 1, 70), (leader, 30)):
        [outcome] = site.port.apply([command(f"c{job}", "update", job, SiteFactor=str(value))])
        assert outcome.status == "done"
    assert site_factors(site.cluster) == {leader: 30, leader + 1: 70}


def test_an_element_that_leaves_its_array_takes_its_site_factor_along(site: Ranking) -> None:
    array = site.submit("--array=0-3")
    site.until_sprio_lists(array)
    site.cycle(2)
    site.cluster.run(site.cluster.operator, ["scontrol", "update", f"JobId={array}_2", "SiteFactor=77"])
    site.cycle(2)
    left = site_factors(site.cluster)
    assert sorted(left) == sorted(site.in_ledger())
    assert 77 in left.values()
    assert left == site.in_ledger()


def test_a_slurmctld_that_started_again_meanwhile_is_not_compared_with_what_the_one_before_had(site: Ranking) -> None:
    booted = look(site.port).site.booted
    assert site.port.site_factors_in_slurm(booted) is not None
    with pytest.raises(ReadFailed, match="started again"):
        site.port.site_factors_in_slurm(booted - 1.0)
    assert len(calls(site.folder, "sprio")) == 2
