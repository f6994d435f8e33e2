"""PriorityType is changed while the daemon runs: the site is examined again after each start and reconfiguration."""

import json
from collections.abc import Iterator

import pytest

from slurmplug.config.schema import Modes
from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside, site_factors

SLEEP = "#!/bin/sh\n#SBATCH --gres=gpu:4\n#PLUG --urgency={}\nsleep 600\n"


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


@pytest.mark.parametrize("told", ["reconfigured", "started again"])
def test_another_priority_plugin_is_noticed_and_labels_are_only_observed_until_it_is_back(
    cluster: Sandbox, daemon: DaemonProcess, told: str
) -> None:
    """SiteFactors mean nothing to priority/basic."""
    user, conf = cluster.researchers[0], cluster.layout.slurm_conf
    cluster.wait_job(cluster.sbatch(user, SLEEP.format(1), "--nodes=4"), "RUNNING")
    daemon.start()

    def submit() -> list[int]:
        return [cluster.sbatch(user, SLEEP.format(urgency), "--nodes=4") for urgency in (1, 9)]

    def ordered(behind: int, ahead: int) -> bool:
        return site_factors(cluster)[behind] < site_factors(cluster)[ahead]

    def use(text: str) -> None:
        conf.write_text(text)
        if told == "reconfigured":
            cluster.run("root", ["scontrol", "reconfigure"])
        else:
            cluster.restart("slurmctld")
            states = ["sinfo", "-h", "-o", "%T"]
            cluster.wait(lambda: set(cluster.run("root", states).stdout.split()) == {"mixed"}, what="the nodes")

    pair = submit()
    cluster.wait(lambda: ordered(*pair), what="the order")
    before = conf.read_text()
    try:
        use(before.replace("priority/multifactor", "priority/basic"))
        cluster.wait(lambda: "does not use the SiteFactor" in daemon.command("status").stdout, 60, "the examination")
        assert in_force(daemon) == "observe"
        written = labels(daemon)
        submit()
        daemon.pass_cycles(4)
        assert labels(daemon) == written
        use(before)
        cluster.wait(lambda: in_force(daemon) == "act", 60, "labels to be written again")
        later = submit()
        cluster.wait(lambda: ordered(*later), what="the order")
        assert not daemon.query("SELECT error FROM cycles WHERE error != ''")
    finally:
        use(before)


def labels(daemon: DaemonProcess) -> int:
    """How many SiteFactors were written so far."""
    return int(daemon.query("SELECT count(*) AS n FROM commands WHERE verb = 'update'")[0]["n"])


def in_force(daemon: DaemonProcess) -> str:
    """The mode in which the last cycle ranked."""
    modes = daemon.query("SELECT modes FROM cycles WHERE error = '' ORDER BY id DESC LIMIT 1")[0]["modes"]
    return Modes.from_table(json.loads(modes)).of("rank")
