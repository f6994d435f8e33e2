"""Policies that size jobs, on a real Slurm: elastic jobs with checkpoints start on what is free, grow and shrink."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from policies.baselines.fair import Fair, FairSettings
from policies.baselines.optimus import Optimus
from policies.baselines.slurm import Slurm as Alone
from policies.dl2 import DL2, DL2Settings
from policies.mlfs.mlfs import MLFS, MLFSSettings
from policies.policy import Policy
from policies.slaq.slaq import SLAQ
from slurmplug.config import model_files
from slurmplug.daemon.reset import reset_recorded
from slurmplug.operations.request_update import update_fields
from slurmplug.operations.shape import Shape
from slurmplug.sandbox import ClusterSpec, Sandbox
from tests.live.live_site import LiveSite, fresh_site, script
from tests.live.operated import command, look

HOLDS = "#!/bin/sh\n#SBATCH --gres=gpu:{gpus} --nodelist={node}\nsleep 900\n"
PATIENCE = 180.0
RANGE = "--gpus=1..4 --max-iterations={} --type=net"
PACE = '0.26 / len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) ** 0.7'
"""seconds of an iteration, by the GPUs"""
RESTART = 2.0
"""what a restart of these jobs costs, as told to the policies"""


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[LiveSite]:
    with fresh_site(cluster, tmp_path, guardrails={"size_interval": 5.0}) as one:
        yield one


def under(site: LiveSite, policy: Policy) -> None:
    site.scheduler.use(site.scheduler.config, policy, site.scheduler.fallback)


def fill(site: LiveSite, node: str, gpus: int) -> int:
    job = site.cluster.sbatch(site.cluster.researchers[2], HOLDS.format(gpus=gpus, node=node))
    site.cluster.wait_job(job, "RUNNING", PATIENCE)
    return job


def elastic(site: LiveSite, name: str, user: int, iterations: int = 2000) -> int:
    """Two hundred seconds of training on the four GPUs that it requests, of which it can train on any."""
    text = script(name, gpus=4, lines="#SBATCH --time=60").replace("--gpus=1..8", RANGE.format(iterations))
    return site.cluster.sbatch(site.cluster.researchers[user], text.replace("time.sleep(0.1)", f"time.sleep({PACE})"))


def gpus(site: LiveSite, job: int) -> int:
    """Of a job that runs; 0 for one that does not."""
    shown = site.cluster.job(job)
    tres = dict(item.split("=") for item in shown["TRES"].split(",") if "=" in item)
    return int(tres.get("gres/gpu", 0)) if shown["JobState"] == "RUNNING" else 0


def until(site: LiveSite, true: Callable[[], object]) -> None:
    """Cycles until it holds and no operation is open: whoever was restarted has reported."""
    opened = "SELECT 1 FROM operations WHERE step NOT IN ('ended', 'bound')"
    site.until(lambda: true() and not site.query(opened), PATIENCE)


def goes_on(site: LiveSite, name: str, user: int) -> list[int]:
    """The number of GPUs of each run; every run but the first began at its checkpoint, further than the one before."""
    runs = site.runs(name, user)
    began = [int(words[3]) for words in runs]
    assert began[0] == 0
    assert all(later > earlier for earlier, later in pairwise(began)), runs
    return [len(words[7].split(",")) for words in runs]


@pytest.mark.parametrize(
    ("policy", "user"),
    [
        (Fair(FairSettings(quantum=0.0)), 1),
        (SLAQ(), 1),
        (Optimus(), 1),
        (MLFS(MLFSSettings(restart=RESTART)), 0),
    ],
    ids=["fair", "slaq", "optimus", "mlfs"],
)
def test_a_job_starts_on_what_is_free_grows_gives_way_and_grows_back(site: LiveSite, policy: Policy, user: int) -> None:
    """The second job needs a tenth of the time, so that every policy gives it GPUs of the first one's: under mlfs by
    the iterations that it states and the pace of its user's first one; what one other user's job shows says nothing."""
    for node in ("n2", "n3", "n4"):
        fill(site, node, 4)
    beside = fill(site, "n1", 2)
    under(site, policy)

    first = elastic(site, "first", 0)
    until(site, lambda: gpus(site, first) == 2)
    assert [row["kind"] for row in site.operations(first)] == ["resize"]
    assert site.cluster.job(first)["Restarts"] == "0"

    site.cluster.run("root", ["scancel", str(beside)])
    until(site, lambda: gpus(site, first) == 4)

    second = elastic(site, "second", user, iterations=200)
    until(site, lambda: 0 < gpus(site, first) < 4 and gpus(site, second))
    if policy.name == "fair":
        assert (gpus(site, first), gpus(site, second)) == (2, 2)
        assert site.cluster.job(second)["Restarts"] == "0"

    site.cluster.run("root", ["scancel", str(second)])
    until(site, lambda: gpus(site, first) == 4)
    sizes = goes_on(site, "first", 0)
    goes_on(site, "second", user)
    assert sizes[:2] == [2, 4]
    assert sizes[-1] == 4
    assert min(sizes[2:]) < 4
    if policy.name == "fair":
        assert sizes == [2, 4, 2, 4]
    assert site.leftovers() == []


def test_a_job_without_a_checkpoint_is_sized_at_its_start_and_then_left_alone(site: LiveSite) -> None:
    for node in ("n2", "n3", "n4"):
        fill(site, node, 4)
    beside = fill(site, "n1", 2)
    under(site, Fair(FairSettings(quantum=0.0)))
    text = "#!/bin/sh\n#SBATCH --gres=gpu:4 --time=60\n#PLUG --gpus=1..4 --max-iterations=2000\nsleep 600\n"
    job = site.cluster.sbatch(site.cluster.researchers[0], text)
    until(site, lambda: gpus(site, job) == 2)

    site.cluster.run("root", ["scancel", str(beside)])
    another = elastic(site, "another", 1)
    until(site, lambda: gpus(site, another) == 2)
    for _ in range(5):
        site.scheduler.run()
    assert [(row["kind"], row["result"]) for row in site.operations(job)] == [("resize", "done")]
    assert (gpus(site, job), site.cluster.job(job)["Restarts"]) == (2, "0")


def test_the_model_of_dl2_sizes_a_job_at_its_start_and_resizes_it_in_a_later_slot(site: LiveSite) -> None:
    for node in ("n2", "n3", "n4"):
        fill(site, node, 4)
    beside = fill(site, "n1", 2)
    under(site, DL2(DL2Settings(slot=20.0), model_files.shipped("dl2")))

    first = elastic(site, "first", 0)
    until(site, lambda: gpus(site, first) == 2)
    assert site.cluster.job(first)["Restarts"] == "0"

    site.cluster.run("root", ["scancel", str(beside)])
    until(site, lambda: gpus(site, first) == 4)
    assert {row["kind"] for row in site.operations(first)} == {"resize"}
    assert goes_on(site, "first", 0) == [2, 4]


def test_a_job_that_waits_for_slurm_starts_larger_or_gets_back_what_it_asked_for(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path
) -> None:
    """This Slurm schedules only when it is told to: meanwhile jobs wait for which there is room."""
    cluster = special_cluster(ClusterSpec(scheduler=("defer", "sched_interval=-1", "bf_interval=900")))
    site = LiveSite(cluster, tmp_path, guardrails={"size_interval": 5.0})
    policy = Fair(FairSettings(quantum=0.0))
    lines = "#SBATCH -c 2 --mem=300"
    text = script("larger", gpus=1, lines=lines).replace("--gpus=1..8", RANGE.format(2000))
    job = cluster.sbatch(cluster.researchers[0], text)
    asked = shape(site, job)

    under(site, policy)
    site.until(lambda: (operations := site.operations(job)) and operations[-1]["outcome"] == "done")
    larger = shape(site, job)
    assert (larger["TresPerNode"][-1], larger["NumCPUs"], larger["MinMemoryNode"]) == ("4", "8", "1200M")
    under(site, Alone())
    site.until(lambda: [each["outcome"] for each in site.operations(job)] == ["done", "done"])
    assert shape(site, job) == asked

    under(site, policy)
    site.until(lambda: [each["outcome"] for each in site.operations(job)] == ["done"] * 3)
    assert shape(site, job) == larger
    assert list(reset_recorded(site.ledger, site.port).shapes) == [job]
    assert shape(site, job) == asked
    assert list(reset_recorded(site.ledger, site.port).shapes) == []

    site.until(lambda: [each["outcome"] for each in site.operations(job)] == ["done"] * 4)
    conf = Path(cluster.env("root")["SLURM_CONF"])
    conf.write_text(conf.read_text().replace("sched_interval=-1", "sched_interval=2"))
    cluster.run("root", ["scontrol", "reconfigure"])
    cluster.wait_job(job, "RUNNING", PATIENCE)
    site.until(lambda: site.runs("larger"))
    assert goes_on(site, "larger", 0) == [4]
    assert site.leftovers() == []
    site.ledger.close()


def shape(site: LiveSite, job: int) -> dict[str, str]:
    """What the pending job requests."""
    shown = site.cluster.job(job)
    assert shown["JobState"] == "PENDING", shown
    names = ("TresPerNode", "NumNodes", "NumTasks", "CPUs/Task", "NumCPUs", "MinCPUsNode", "MinMemoryNode", "TimeLimit")
    return {name: shown[name] for name in names}


def test_a_site_that_allows_it_gives_a_job_on_fewer_gpus_the_time_that_it_needs(
    cluster: Sandbox, tmp_path: Path
) -> None:
    """Some 200 s of training are left on four GPUs, and on one by its forecast more than the five minutes."""
    site = LiveSite(cluster, tmp_path, guardrails={"raise_time_limit": 100.0})
    text = script("slower", gpus=4, lines="#SBATCH --time=5").replace("--gpus=1..8", RANGE.format(2000))
    job = site.trains(text)
    site.until(lambda: site.query("SELECT 1 FROM progress WHERE iteration > 20"))
    site.wants(job, kind="resize", gpus=1)
    assert (site.vetoes(job), site.until_over(job)) == ([], "done")
    hours, minutes, _ = site.cluster.job(job)["TimeLimit"].rpartition("-")[2].split(":")
    assert 60 * int(hours) + int(minutes) > 5
    assert gpus(site, job) == 1
    assert site.leftovers() == []
    site.ledger.close()


def test_an_update_of_nodes_that_meets_a_job_that_has_just_started_changes_nothing(site: LiveSite) -> None:
    """The job starts between the reading and the write; without GPUs beside it, NumNodes would have shrunk it."""
    job = site.cluster.sbatch(
        site.cluster.researchers[0], "#!/bin/sh\n#SBATCH --gres=gpu:4 --nodes=2 --hold\n#PLUG --gpus=1..8\nsleep 600\n"
    )
    request = site.port.resource_requests([job])[job]
    goal, undo = update_fields(request, Shape(1, 4))
    assert "NumNodes" in goal
    assert "NumNodes" in undo
    site.cluster.run("root", ["scontrol", "release", str(job)])
    site.cluster.wait_job(job, "RUNNING", PATIENCE)
    look(site.port)
    for name, fields in (("goal", goal), ("undo", {**undo, "NumNodes": "1-1"})):
        [outcome] = site.port.apply([command(name, "update", job, **fields)])
        assert outcome.status == "refused", outcome
    shown = site.cluster.job(job)
    assert (shown["NumNodes"], "gres/gpu=8" in shown["TRES"]) == ("2", True)
    site.cluster.run("root", ["scontrol", "update", f"JobId={job}", "NumNodes=1"])
    assert site.cluster.job(job)["NumNodes"] == "1"
