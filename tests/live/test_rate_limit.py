"""A slurmctld that limits how often a user asks it (rl_enable, since 23.02; before it is ignored): nothing is lost."""

from collections.abc import Callable

from slurmplug.sandbox import Sandbox
from slurmplug.sandbox.spec import ClusterSpec, Node
from tests.live.daemon_process import daemon_beside, site_factors

LIMITED = {"SlurmctldParameters": "rl_enable,rl_bucket_size=10,rl_refill_rate=2"}
WAITS = "#!/bin/sh\n#SBATCH --gres=gpu:4 --output=/dev/null\n#PLUG --urgency={}\nsleep 600\n"
JOBS = 20


def test_priorities_are_written_slowly_and_all_of_them(special_cluster: Callable[[ClusterSpec], Sandbox]) -> None:
    cluster = special_cluster(ClusterSpec(nodes=(Node(),), settings=LIMITED))
    user = cluster.researchers[0]
    cluster.wait_job(cluster.sbatch(user, WAITS.format(5)), "RUNNING")
    # The limit is each user's own, so root submits for them.
    waiting = [
        int(
            cluster.run(
                "root", ["sbatch", "--parsable", f"--uid={user}", "--chdir=/tmp"], input=WAITS.format(n % 11)
            ).stdout
        )
        for n in range(JOBS)
    ]
    with daemon_beside(cluster) as daemon:
        daemon.start()

        def ranked() -> bool:
            [last] = daemon.query("SELECT max(id) AS id FROM cycles WHERE finished IS NOT NULL")
            return daemon.query("SELECT 1 FROM commands WHERE cycle > ?", last["id"] - 3) == []

        cluster.wait(
            lambda: len(daemon.query("SELECT DISTINCT job FROM commands WHERE status = 'done'")) > JOBS / 2, 240
        )
        cluster.wait(ranked, 240, "cycles with nothing left to write")
        written = {
            row["job_id"]: row["label"]
            for row in daemon.query("SELECT job_id, label FROM jobs WHERE state = 'PENDING'")
        }
        assert set(written) == set(waiting)
        assert {job: factor for job, factor in site_factors(cluster).items() if job in written} == written
        assert {row["status"] for row in daemon.query("SELECT DISTINCT status FROM commands")} == {"done"}
        assert daemon.query("SELECT id FROM cycles WHERE frozen != '' OR error != ''") == []
        doctor = daemon.command("doctor").stdout
    assert "rl_enable" in doctor
    assert "priorities are written slowly" in doctor
