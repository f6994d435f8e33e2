"""A cluster of several machines: who sees what, a node lost, the network cut, slurmctld restarted, and the takeover."""

import json

from tests.docker.conftest import Containers
from tests.docker.site import docker

TRAIN = """#!/bin/bash
#SBATCH --gres=gpu:4 --requeue --open-mode=append
#PLUG --urgency=5 --target=accuracy>=0.99999 --stop=target --max-iterations=100000
exec python3 -c '
import time
from slurmplug import report
for i in range(1, 100001):
    time.sleep(0.5)
    if report(iteration=i, loss=1 / i, accuracy=1 - 1 / (1 + i)):
        break
'
"""


def clear(containers: Containers) -> None:
    containers.run("login", "for user in ada bob cleo; do scancel --user=$user; done", check=False)
    containers.wait(lambda: not containers.run("login", "squeue -h").strip(), "an empty queue")


def test_a_training_job_reports_over_the_shared_volume_and_stops_at_its_target(containers: Containers) -> None:
    job = containers.submit("ada", TRAIN.replace("0.99999", "0.9"))
    containers.wait_state(job, "COMPLETED")

    def stopped() -> bool:
        report = json.loads(containers.run("login", f"slurmplug acct -j {job} --json", user="ada"))["jobs"]
        return bool(report) and report[0]["stop"] == "target"

    containers.wait(stopped, "the stop to be reported")


def test_a_mistake_is_refused_at_submission(containers: Containers) -> None:
    result = containers.run(
        "login", "cd && printf '#!/bin/sh\\n#PLUG --urgnecy=5\\n' | sbatch", user="ada", check=False
    )
    assert "urgnecy" in result


def test_on_the_login_node_users_see_their_own_jobs(containers: Containers) -> None:
    hers = containers.submit("ada", "#!/bin/sh\nsleep 600", "--gres=gpu:1")
    his = containers.submit("bob", "#!/bin/sh\nsleep 600", "--gres=gpu:1", "--job-name=secret")

    def seen(user: str) -> set[int]:
        report = json.loads(containers.run("login", "slurmplug queue --json", user=user))
        return {job["jobidraw"] for job in report["jobs"]}

    containers.wait(lambda: seen("root") >= {hers, his}, "both jobs to be seen")
    assert (seen("ada"), seen("bob"), seen("cleo")) == ({hers}, {his}, set())
    clear(containers)


def test_the_template_runs(containers: Containers) -> None:
    template = containers.run("login", "cat /usr/share/doc/slurmplug/sbatch_templates/unchanged.sbatch")
    assert "#PLUG" in template
    containers.run(
        "login", "cp /usr/share/doc/slurmplug/sbatch_templates/unchanged.* ~ada/ && chown ada: ~ada/unchanged.*"
    )
    job = int(
        containers.run("login", "cd ~ada && sbatch --parsable --export=ALL --gres=gpu:1 unchanged.sbatch", user="ada")
    )
    containers.wait_state(job, "COMPLETED", "RUNNING")
    clear(containers)


def test_a_node_that_is_lost_costs_its_job_a_requeue_and_the_daemon_nothing(containers: Containers) -> None:
    job = containers.submit("ada", TRAIN)
    node = containers.wait_state(job, "RUNNING")["NodeList"]
    docker("kill", node)
    containers.wait(lambda: int(containers.job(job)["Restarts"]) == 1, "the job to be requeued")
    again = containers.wait_state(job, "RUNNING")
    assert again["NodeList"] != node
    assert containers.goes_on()
    clear(containers)
    docker("start", node)
    containers.wait(lambda: containers.run("login", "sinfo -h -N -t idle").count("\n") == 3, "three idle nodes")


def test_a_node_cut_off_from_the_network_comes_back(containers: Containers) -> None:
    node = containers.ids("compute")[0][:12]
    network = "slurmplug-test_default"
    docker("network", "disconnect", network, node)
    containers.wait(
        lambda: "down" in containers.run("login", f"sinfo -h -n {node} -o %T").lower(), "the node to be down"
    )
    assert containers.goes_on()
    docker("network", "connect", "--alias", node, network, node)
    docker("restart", node)
    containers.wait(lambda: containers.run("login", "sinfo -h -N -t idle").count("\n") == 3, "three idle nodes")


def saved_since_start(containers: Containers, job: int) -> bool:
    """A killed slurmctld knows what it had saved, as it does every five seconds; other jobs it starts again."""
    started = containers.run("controller", f"date -d {containers.job(job)['StartTime']} +%s")
    saved = containers.run("controller", "stat -c %Y /var/spool/slurmctld/job_state")
    return int(saved) > int(started)


def test_a_backup_controller_takes_over_with_its_daemon_and_gives_way_again(containers: Containers) -> None:
    job = containers.submit("bob", TRAIN)
    containers.wait_state(job, "RUNNING")
    containers.wait(lambda: saved_since_start(containers, job), "slurmctld to save that the job runs")
    before = containers.cycles()
    containers.wait(lambda: not containers.status("backup")["alive"], "the backup to stand by")
    primary = containers.ids("controller")[0]
    docker("kill", primary)
    containers.wait(lambda: containers.status("backup")["alive"], "the backup's daemon to act")
    assert containers.cycles("backup") >= max(before - 5, 1)  # it goes on from a copy of at most 10 s before
    assert containers.job(job)["JobState"] == "RUNNING"
    docker("start", primary)
    containers.wait(lambda: containers.status("controller")["alive"], "the primary's daemon to act")
    containers.wait(lambda: not containers.status("backup")["alive"], "the backup to stand by again")
    assert containers.job(job)["JobState"] == "RUNNING"
    clear(containers)


def test_slurmctld_and_the_daemon_restart_and_jobs_go_on(containers: Containers) -> None:
    job = containers.submit("cleo", TRAIN)
    containers.wait_state(job, "RUNNING")
    docker("restart", containers.ids("controller")[0])
    containers.wait(lambda: containers.status()["alive"], "the daemon to act")
    assert containers.job(job)["JobState"] == "RUNNING"
    assert containers.goes_on()
    clear(containers)


def test_the_demo_shows_its_reports(containers: Containers) -> None:
    result = containers.compose("run", "--rm", "-e", "DEMO_ITERATION=0.5", "demo", timeout=1200)
    assert "$ slurmplug acct --allusers" in result
    assert result.count("target") > 5
    assert "daemon      alive" in result
