"""Two clusters of a federation that run each other's jobs, with a daemon beside each of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from slurmplug.sandbox import ClusterSpec, Node, Sandbox
from tests.live import chosen
from tests.live.daemon_process import DaemonProcess, daemon_beside, training

SPEC = ClusterSpec(nodes=(Node(),), slurm=chosen.SLURM)
SHARED = ("AuthInfo", "AccountingStoragePort", "AccountingStoragePass")
SHORT = "#!/bin/sh\n#SBATCH --cpus-per-task=2\n#PLUG --urgency=3\nsleep 2\n"
ENDED = {"COMPLETED", "CANCELLED", "REVOKED"}


@pytest.fixture
def members() -> Iterator[tuple[Sandbox, Sandbox]]:
    """Both, with one slurmdbd, that of the first."""
    with ExitStack() as stack:
        first = stack.enter_context(Sandbox(SPEC))
        conf = dict(line.partition("=")[::2] for line in first.layout.slurm_conf.read_text().splitlines())
        second = stack.enter_context(Sandbox(replace(SPEC, settings={name: conf[name] for name in SHARED})))
        first.run("root", ["sacctmgr", "-i", "add", "federation", "fed", f"clusters={first.name},{second.name}"])
        first.wait(lambda: connected(first) and connected(second), 60, "the federation")
        yield first, second


def connected(cluster: Sandbox) -> bool:
    return "PersistConnSend/Recv:Yes/Yes" in cluster.run("root", ["scontrol", "show", "federation"]).stdout


def states(daemon: DaemonProcess, jobs: list[int]) -> list[str]:
    """By its ledger, as far as it knows the jobs."""
    rows = daemon.query("SELECT job_id, state FROM jobs ORDER BY job_id")
    return [row["state"] for row in rows if row["job_id"] in jobs]


def test_each_member_stops_what_it_runs_knows_what_another_took_and_changes_nothing_that_waits(
    members: tuple[Sandbox, Sandbox],
) -> None:
    """A change of a job that waits is one in every member, where another daemon would take it for somebody else's."""
    first, second = members
    user = first.researchers[0]
    with daemon_beside(first) as one, daemon_beside(second) as two:
        for daemon in (one, two):
            daemon.start()
        spools = "".join(
            f'[ "$SLURM_CLUSTER_NAME" != {each.name} ] || SLURMPLUG_SPOOL={each.spool}\n' for each in members
        )
        script = training(f"#PLUG --target=accuracy>=0.96 --stop=target\n{spools}export SLURMPLUG_SPOOL")
        trains = [first.sbatch(user, script) for _ in range(3)]
        many = [first.sbatch(user, SHORT) for _ in range(24)]

        def are_known() -> bool:
            """Each ran on one member; the other knows that it did not get it, if it had known the job."""
            known = [*states(one, many + trains), *states(two, many + trains)]
            return set(known) <= ENDED and known.count("COMPLETED") == len(many + trains)

        first.wait(are_known, 180, "every job to end")
        stopped = [daemon.operation(job).get("result") for job in trains for daemon in (one, two)]
        assert stopped.count("stopped") == len(trains)
        assert "REVOKED" in states(one, many + trains)
        for daemon in (one, two):
            assert not daemon.query("SELECT error FROM cycles WHERE error != ''")
            assert not daemon.query("SELECT 1 FROM commands WHERE verb = 'update'")
            assert "federation: jobs of a federation wait in" in daemon.command("status").stdout
