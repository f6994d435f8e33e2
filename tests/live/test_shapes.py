"""What users and operators do on a real Slurm while a job is resized or moved: changes, maintenance, time limits."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurmplug.sandbox import CommandFailed, Sandbox
from tests.live.live_site import LiveSite, fresh_site, script, start_again

HOLDS = "#!/bin/sh\n#SBATCH --gres=gpu:{gpus} --nodelist={node}\nsleep 600\n"
ONE_GPU = "#!/bin/sh\n#SBATCH --gres=gpu:1\nsleep 600\n"
PATIENCE = 120.0


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[LiveSite]:
    with fresh_site(cluster, tmp_path) as one:
        yield one


@pytest.fixture
def maintenance(cluster: Sandbox) -> Iterator[list[str]]:
    """The names of reservations to delete."""
    names: list[str] = []
    yield names
    for name in names:
        cluster.run("root", ["scontrol", "delete", f"ReservationName={name}"])


def tres(site: LiveSite, job: int) -> dict[str, str]:
    return dict(item.split("=") for item in site.cluster.job(job)["TRES"].split(","))


def update(site: LiveSite, user: int, job: int, *fields: str) -> None:
    site.cluster.run(site.cluster.researchers[user], ["scontrol", "update", f"JobId={job}", *fields])


def reserve(site: LiveSite, name: str, nodes: str, begins: timedelta) -> None:
    start = (datetime.now(UTC) + begins).strftime("%Y-%m-%dT%H:%M:%S")
    words = [f"ReservationName={name}", f"Nodes={nodes}", f"StartTime={start}", "Duration=60", "Users=root"]
    site.cluster.run(
        "root", ["scontrol", "create", "reservation", *words, "Flags=MAINT,IGNORE_JOBS"], env={"TZ": "UTC"}
    )


def fill(site: LiveSite, *nodes: str, gpus: int = 4, user: int = 2) -> None:
    jobs = [site.cluster.sbatch(site.cluster.researchers[user], HOLDS.format(gpus=gpus, node=node)) for node in nodes]
    for job in jobs:
        site.cluster.wait_job(job, "RUNNING", PATIENCE)


def test_a_number_of_nodes_that_a_user_sets_before_the_job_is_rewritten_is_left(site: LiveSite) -> None:
    """Two nodes of two GPUs, as its user wants; the resize would have made two of four."""
    job = site.trains(script("widens", gpus=2))
    site.wants(job, kind="resize", gpus=4)
    site.until_step(job, "settle")
    update(site, 0, job, "NumNodes=2")
    assert site.until_over(job).startswith("gave up: its user or an operator changed it meanwhile (NumNodes")
    shown = site.cluster.job(job)
    assert (tres(site, job)["node"], shown["TresPerNode"][-5:]) == ("2", "gpu:2")
    start_again(site.cluster, job, site.cluster.researchers[0])
    site.cluster.wait_job(job, "RUNNING", PATIENCE)
    assert tres(site, job)["gres/gpu"] == "4"
    assert site.leftovers() == []


def test_of_a_job_that_its_user_changes_after_it_was_rewritten_only_slurmplugs_own_is_taken_back(
    site: LiveSite,
) -> None:
    """No node has four GPUs left, so the rewritten job is pending for as long as its place is."""
    job = site.trains(script("changes", gpus=2))
    node = site.cluster.job(job)["NodeList"]
    fill(site, *{"n1", "n2", "n3", "n4"} - {node})
    site.wants(job, kind="resize", gpus=4)
    site.until_step(job, "rewrite")
    update(site, 0, job, "NumNodes=2", "TimeLimit=60")
    result = site.until_over(job)
    assert result.startswith("gave up: its user or an operator changed it meanwhile")
    assert ("NumNodes" in result, "TimeLimit" in result) == (True, True)
    shown = site.cluster.job(job)
    assert (tres(site, job)["node"], shown["TimeLimit"], shown["TresPerNode"][-5:]) == ("2", "01:00:00", "gpu:2")
    assert (shown["Nice"], shown["JobState"]) == ("0", "PENDING")
    assert site.leftovers() == []


def test_a_time_limit_that_an_operator_shortens_before_the_requeue_ends_the_resize(site: LiveSite) -> None:
    job = site.trains(script("shortened", gpus=2, how="USR1:batch", grace=60), "--time=120")
    site.wants(job, kind="resize", gpus=4)
    update(site, 0, job, "TimeLimit=100")
    result = site.until_over(job)
    assert result == "gave up: its user or an operator changed it meanwhile (TimeLimit)"
    assert site.cluster.job(job)["TimeLimit"] == "01:40:00"
    assert site.leftovers() == []


def test_no_job_is_moved_to_where_maintenance_begins_before_its_time_limit_ends(
    site: LiveSite, maintenance: list[str]
) -> None:
    job = site.trains(script("stays", gpus=2), "--time=60")
    node = site.cluster.job(job)["NodeList"]
    others = ",".join(sorted({"n1", "n2", "n3", "n4"} - {node}))
    reserve(site, "maint", others, timedelta(minutes=30))
    maintenance.append("maint")
    site.wants(job, kind="migrate")
    assert (site.vetoes(job), site.operations(job)) == (["maintenance"], [])


def test_maintenance_of_next_week_keeps_no_job_of_an_hour_from_moving(site: LiveSite, maintenance: list[str]) -> None:
    job = site.trains(script("goes", gpus=2), "--time=60")
    reserve(site, "nextweek", "n[1-4]", timedelta(days=7))
    maintenance.append("nextweek")
    site.wants(job, kind="migrate")
    assert (site.vetoes(job), site.until_over(job)) == ([], "done")


def test_no_pending_job_is_resized_so_that_only_nodes_in_maintenance_or_drained_could_serve_it(
    site: LiveSite, maintenance: list[str]
) -> None:
    fill(site, "n1")
    job = site.cluster.sbatch(
        site.cluster.researchers[0],
        "#!/bin/sh\n#SBATCH --gres=gpu:4 --nodelist=n1 --time=60\n#PLUG --gpus=1..16\nsleep 600\n",
    )
    reserve(site, "maint", "n[2-3]", timedelta(minutes=30))
    maintenance.append("maint")
    site.cluster.run("root", ["scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=test"])
    try:
        update(site, 0, job, "ReqNodeList=")  # no sooner: it would start on one of the others
        site.wants(job, kind="resize", gpus=8)
        assert (site.vetoes(job), site.operations(job)) == (["maintenance"], [])
    finally:
        site.cluster.run("root", ["scontrol", "update", "NodeName=n4", "State=RESUME"])


def test_no_job_gets_a_size_at_which_it_would_not_end_within_its_time_limit(site: LiveSite) -> None:
    """Some 200 s of training are left on four GPUs."""
    lines = "#SBATCH --time={}"
    text = script("slow", gpus=4).replace("#PLUG --gpus", "#PLUG --max-iterations=2000 --gpus")
    short = site.trains(text.replace("#PLUG", lines.format("00:05:00") + "\n#PLUG", 1))
    site.wants(short, kind="resize", gpus=1)
    assert (site.vetoes(short), site.operations(short)) == (["time limit"], [])
    enough = site.trains(text.replace("#PLUG", lines.format("7-00:00:00") + "\n#PLUG", 1), user=1)
    site.wants(enough, kind="resize", gpus=1)
    assert site.vetoes(enough) == []
    assert site.until_over(enough) == "done"


def test_a_user_gains_no_place_by_the_reservation_of_a_job_that_is_moved(site: LiveSite) -> None:
    """He submits into it in every cycle; one GPU gets free, and it is his twin's, who was first."""
    hostile, honest = site.cluster.researchers[:2]
    job = site.trains(script("moved", gpus=2))
    node = site.cluster.job(job)["NodeList"]
    fill(site, *{"n1", "n2", "n3", "n4"} - {node})
    fill(site, node, gpus=2)
    twin = site.cluster.sbatch(honest, ONE_GPU)
    later = site.cluster.sbatch(hostile, ONE_GPU)
    update(site, 0, later, "Nice=1")
    entered: list[int] = []
    refusals: set[str] = set()

    def intrude() -> None:
        try:
            entered.append(site.cluster.sbatch(hostile, ONE_GPU, f"--reservation=slurmplug-{job}"))
        except CommandFailed as refused:
            refusals.add(str(refused).strip().splitlines()[-1])
        site.cluster.run(
            hostile, ["scontrol", "update", f"JobId={later}", f"ReservationName=slurmplug-{job}"], check=False
        )

    site.wants(job, kind="resize", gpus=1)

    def over() -> bool:
        intrude()
        return str(site.operations(job)[-1]["step"]) == "ended"

    site.until(over, PATIENCE)
    assert site.operations(job)[-1]["result"] == "done"
    assert tres(site, job)["gres/gpu"] == "1"
    assert entered == []
    assert any("Access denied" in each for each in refusals), refusals
    site.cluster.wait_job(twin, "RUNNING", PATIENCE)
    assert (site.cluster.job(later)["JobState"], site.cluster.job(later).get("Reservation")) == ("PENDING", None)
    assert site.leftovers() == []
