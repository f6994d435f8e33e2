"""How jobs request GPUs on a real Slurm: each form is changed while the job is pending, starts so, and is restored."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmplug.cluster.port import ResourceRequest
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.operations.request_update import update_fields
from slurmplug.operations.shape import ActionImpossible, Shape
from slurmplug.sandbox import ClusterSpec, Node, Sandbox
from tests.live.live_site import LiveSite, fresh_site, script
from tests.live.operated import command, look, operated

SLEEP = "#!/bin/sh\nsleep 600\n"
TYPED = ClusterSpec(nodes=(Node(gpu_type="a100"), Node(gpu_type="a100"), Node(gpu_type="v100")))
SHAPE = re.compile(
    r"(NumNodes|NumCPUs|NumTasks|CPUs/Task|MinCPUsNode|MinMemory(?:CPU|Node)|Tres\w+|\w+PerTres|NtasksPerTRES)[=:](\S+)"
)
FORMS = [
    ("--gres=gpu:2", Shape(1, 4), {"gres/gpu": "4", "node": "1"}),
    ("--gres=gpu:2 -N1", Shape(2, 2), {"gres/gpu": "4", "node": "2"}),
    ("--gres=gpu:2 -N1-2", Shape(1, 4), {"gres/gpu": "4", "node": "1"}),
    ("--gpus-per-node=4 -n4 -N1", Shape(2, 4), {"gres/gpu": "8", "node": "2", "cpu": "8"}),
    ("--gpus-per-node=2 -N2 -c2 --mem=400", Shape(1, 2), {"gres/gpu": "2", "node": "1", "cpu": "2", "mem": "400M"}),
    ("--gres=gpu:4 --exclusive -N1", Shape(2, 4), {"gres/gpu": "8", "node": "2"}),
    ("--gpus-per-node=2 -N1 -n2 -c4 --mem=800", Shape(2, 1), {"gres/gpu": "2", "node": "2", "cpu": "8"}),
    ("--gpus=2", Shape(1, 4), {"gres/gpu": "4", "node": "1"}),
    ("--gpus=4", Shape(1, 1), {"gres/gpu": "1", "node": "1"}),
    ("--gpus=2 -N1-4 -c2", Shape(2, 4), {"gres/gpu": "8", "node": "2", "cpu": "8"}),
    ("--gpus=4 -N2", Shape(2, 4), {"gres/gpu": "8", "node": "2"}),
    ("--gpus=4 -N2", Shape(1, 1), {"gres/gpu": "1", "node": "1"}),
    ("--gpus=2 -n2 -c2", Shape(2, 4), {"gres/gpu": "8", "node": "2", "cpu": "16"}),
    ("--gpus=4 -N2 --ntasks-per-node=1", Shape(1, 2), {"gres/gpu": "2", "node": "1", "cpu": "1"}),
    ("--gpus=2 --cpus-per-gpu=2", Shape(1, 4), {"gres/gpu": "4", "cpu": "8"}),
    ("--gpus=4 --cpus-per-gpu=2", Shape(1, 1), {"gres/gpu": "1", "cpu": "2"}),
    ("--gpus=4 -N2 --cpus-per-gpu=2", Shape(2, 4), {"gres/gpu": "8", "node": "2", "cpu": "16"}),
    ("--gpus=4 -N2 --cpus-per-gpu=2", Shape(1, 1), {"gres/gpu": "1", "node": "1", "cpu": "2"}),
    ("--gpus=2 --mem-per-gpu=300", Shape(1, 4), {"gres/gpu": "4", "mem": "1200M"}),
    ("--gpus=2 --mem=600", Shape(1, 4), {"gres/gpu": "4", "mem": "1200M"}),
    ("--gpus=2 -c2 --mem-per-cpu=200", Shape(1, 4), {"gres/gpu": "4", "cpu": "4", "mem": "800M"}),
    ("--gpus-per-task=1 -n2", Shape(1, 4), {"gres/gpu": "4", "cpu": "4"}),
    ("--gpus-per-task=1 -n2", Shape(1, 1), {"gres/gpu": "1"}),
    ("--gpus-per-task=1 -n4 -c2", Shape(2, 4), {"gres/gpu": "8", "node": "2", "cpu": "16"}),
    ("--gpus-per-task=2 -n1 -c2", Shape(1, 4), {"gres/gpu": "4", "cpu": "4"}),
    ("--gpus-per-task=2 -N2 --ntasks-per-node=1", Shape(2, 4), {"gres/gpu": "8", "node": "2"}),
    ("--gpus-per-task=2 -N2 --ntasks-per-node=1", Shape(1, 2), {"gres/gpu": "2", "node": "1"}),
    ("--gpus-per-task=1 -n2 --mem-per-gpu=300", Shape(1, 4), {"gres/gpu": "4", "mem": "1200M"}),
]
"""sbatch's options, the shape that the job gets, and what it is allocated when it starts."""
TYPED_FORMS = [
    ("--gres=gpu:a100:2", Shape(2, 4), 8),
    ("--gpus=a100:2", Shape(1, 4), 4),
    ("--gpus=v100:4", Shape(1, 2), 2),
    ("--gpus-per-task=a100:1 -n2 -c2", Shape(1, 4), 4),
]


@pytest.fixture
def typed(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    return special_cluster(TYPED)


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[LiveSite]:
    with fresh_site(cluster, tmp_path, guardrails={"size_interval": 0.0}) as one:
        yield one


def held(cluster: Sandbox, options: str) -> int:
    return cluster.sbatch(cluster.researchers[0], SLEEP, "--hold", *options.split())


def request(port: SlurmCluster, job: int) -> ResourceRequest:
    return port.resource_requests([job])[job]


def update(port: SlurmCluster, job: int, fields: dict[str, str]) -> tuple[str, str]:
    look(port)
    [outcome] = port.apply([command("c", "update", job, **fields)])
    return outcome.status, outcome.message


def asks(cluster: Sandbox, job: int | str) -> dict[str, str]:
    """What Slurm shows of the request, with an option that was cleared like one that never was set.

    Of the nodes only the most: the fewest are an estimate in 22.05, and those of the TRES are what is requested. 25.11
    shows a job of one node as 1 or as 1-1, whatever it requested.
    """
    text = cluster.run("root", ["scontrol", "--oneliner", "show", "job", str(job)]).stdout
    found = {name: value for name, value in SHAPE.findall(text) if value}
    return {**found, "NumNodes": found["NumNodes"].partition("-")[2].replace("1", "")}


def allocated(cluster: Sandbox, job: int) -> dict[str, str]:
    cluster.run("root", ["scontrol", "release", str(job)])
    shown = cluster.wait_job(job, "RUNNING", 60)
    return dict(item.split("=") for item in shown["TRES"].split(","))


@pytest.mark.parametrize(("options", "shape", "expected"), FORMS)
def test_each_form_is_changed_restored_and_starts_with_what_it_was_changed_to(
    cluster: Sandbox, port: SlurmCluster, options: str, shape: Shape, expected: dict[str, str]
) -> None:
    job = held(cluster, options)
    before, asked = asks(cluster, job), request(port, job)
    goal, undo = update_fields(asked, shape)
    assert update(port, job, goal) == ("done", "")
    changed = request(port, job)
    assert changed.gpus == shape.nodes * shape.gpus_per_node
    assert update(port, job, undo) == ("done", "")
    assert (asks(cluster, job), request(port, job)) == (before, asked)
    assert update(port, job, goal) == ("done", "")
    assert allocated(cluster, job).items() >= expected.items()


@pytest.mark.parametrize(("options", "shape", "gpus"), TYPED_FORMS)
def test_the_type_of_the_gpus_is_kept(typed: Sandbox, tmp_path: Path, options: str, shape: Shape, gpus: int) -> None:
    port, job = operated(typed, tmp_path), held(typed, options)
    before = asks(typed, job)
    goal, undo = update_fields(request(port, job), shape)
    assert update(port, job, goal) == ("done", "")
    assert update(port, job, undo) == ("done", "")
    assert asks(typed, job) == before
    assert update(port, job, goal) == ("done", "")
    assert allocated(typed, job)["gres/gpu"] == str(gpus)
    kind = "a100" if "a100" in options else "v100"
    nodes = typed.job(job)["NodeList"]
    assert nodes in ({"n1", "n2", "n[1-2]"} if kind == "a100" else {"n3"})


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("--gpus-per-socket=2 --sockets-per-node=1", "GPUs per socket (--gpus-per-socket)"),
        ("--gpus=2 --ntasks-per-gpu=2", "tasks per GPU (--ntasks-per-gpu)"),
        ("-n4 --ntasks-per-gpu=2", "tasks per GPU (--ntasks-per-gpu)"),
        ("--gpus=4 --gpus-per-node=2", "GPUs by several options"),
        ("--gpus=2 --gpus-per-task=1", "GPUs by several options"),
        ("--gpus=2 -N1", "GPUs in all (--gpus) on one node"),
        ("--gres=gpu:2 --exclusive", "whole nodes (--exclusive), which have as many GPUs as they have"),
        ("--gpus=2 --exclusive", "whole nodes (--exclusive), which have as many GPUs as they have"),
        ("--gres=gpu:2 -n8 --overcommit", "fewer CPUs than tasks (--overcommit)"),
    ],
)
def test_what_cannot_be_changed_is_refused_by_its_form(
    cluster: Sandbox, port: SlurmCluster, options: str, asked: str
) -> None:
    job = held(cluster, options)
    with pytest.raises(ActionImpossible) as refused:
        update_fields(request(port, job), Shape(2, 4))
    assert refused.value.reason.facts["asked"] == asked


@pytest.mark.parametrize("options", ["--gres=gpu:2 -N2", "--gpus=4 -N2", "--gpus-per-task=1 -n4 -N2"])
def test_an_update_that_comes_when_the_job_has_just_started_is_refused_as_a_whole(
    cluster: Sandbox, port: SlurmCluster, options: str
) -> None:
    """Its NumNodes alone would shrink the running job."""
    job = held(cluster, options)
    goal, _ = update_fields(request(port, job), Shape(1, 2))
    assert goal["NumNodes"] == "1-1"
    before = allocated(cluster, job)
    status, message = update(port, job, goal)
    assert (status, "no longer pending" in message) == ("refused", True)
    assert dict(item.split("=") for item in cluster.job(job)["TRES"].split(",")) == before
    cluster.run("root", ["scontrol", "update", f"JobId={job}", f"NumNodes={goal['NumNodes'].partition('-')[0]}"])
    assert dict(item.split("=") for item in cluster.job(job)["TRES"].split(","))["node"] == "1"


def test_a_job_by_gpus_in_all_is_resized_where_it_is_pending_and_gives_back_what_it_asked_for(site: LiveSite) -> None:
    """No node is free, so that it stays pending."""
    fills = [site.cluster.sbatch(site.cluster.researchers[2], SLEEP, "--gres=gpu:4") for _ in range(4)]
    for each in fills:
        site.cluster.wait_job(each, "RUNNING", 60)
    text = "#!/bin/sh\n#SBATCH --gpus=2 --time=60\n#PLUG --gpus=1..16\nsleep 600\n"
    job = site.cluster.sbatch(site.cluster.researchers[0], text)
    before = asks(site.cluster, job)
    site.wants(job, kind="resize", gpus=4)
    assert (site.vetoes(job), site.until_over(job)) == ([], "done")
    assert asks(site.cluster, job)["TresPerJob"][-5:] == "gpu:4"
    site.wants(job, kind="resize", gpus=2)
    assert site.until_over(job) == "done"
    assert asks(site.cluster, job) == before


@pytest.mark.parametrize(
    "options",
    [
        "--gpus=2",
        "--gpus=2 --mem-per-gpu=300 --cpus-per-gpu=1",
        "--gres=gpu:2 --cpus-per-gpu=1",
        "--gpus-per-task=2 -n1 -c2",
    ],
)
def test_a_running_job_is_resized_in_its_form(site: LiveSite, options: str) -> None:
    name = "form" + str(len(options))
    job = site.trains(script(name).replace("--gres=gpu:2", options))
    site.wants(job, kind="resize", gpus=4)
    assert (site.vetoes(job), site.until_over(job)) == ([], "done")
    shown = site.cluster.job(job)
    assert ("gres/gpu=4" in shown["TRES"], "per-gpu" not in options or shown["NumCPUs"] == "4") == (True, True)
    assert [run[7] for run in site.runs(name)] == ["0,1", "0,1,2,3"]
    assert int(site.runs(name)[1][3]) > 0
    assert site.leftovers() == []


def test_a_job_that_slurm_spread_over_nodes_is_resized_there_and_onto_one(site: LiveSite) -> None:
    """It has two nodes while it runs, and when it is pending again one or any number."""
    job = site.trains(script("spread", gpus=8).replace("--gres=gpu:8", "--gpus=6").replace("1..8", "1..16"))
    assert site.cluster.job(job)["NumNodes"] == "2"
    for gpus, nodes in ((8, "2"), (4, "1")):
        site.wants(job, kind="resize", gpus=gpus)
        assert (site.vetoes(job), site.until_over(job)) == ([], "done")
        shown = site.cluster.job(job)
        assert (f"gres/gpu={gpus}" in shown["TRES"], shown["NumNodes"]) == (True, nodes)
    assert site.leftovers() == []


def test_arrays_and_heterogeneous_jobs_are_left_alone(site: LiveSite) -> None:
    text = "#!/bin/sh\n#PLUG --gpus=1..16\nsleep 600\n"
    researcher = site.cluster.researchers[0]
    array = site.cluster.sbatch(researcher, text, "--begin=now+1hour", "--gpus=2", "--array=0-2")
    het = site.cluster.sbatch(researcher, text, "--begin=now+1hour", "--gpus=1", ":", "--begin=now+1hour", "--gpus=2")
    before = asks(site.cluster, array), asks(site.cluster, het)
    for job in (array, het):
        site.wants(job, kind="resize", gpus=4)
    assert (site.vetoes(array), site.vetoes(het)) == (["array"], ["heterogeneous"])
    assert (asks(site.cluster, array), asks(site.cluster, het)) == before


def test_an_update_of_all_pending_elements_of_an_array_does_not_split_it(cluster: Sandbox, port: SlurmCluster) -> None:
    """Also where one has started since the queue was read; but it changes all of them."""
    job = held(cluster, "--gpus=2 --array=0-3")
    look(port)
    cluster.run("root", ["scontrol", "release", f"{job}_1"])

    def rows() -> list[list[str]]:
        listed = cluster.run("root", ["squeue", "-h", "-o", "%i %t"]).stdout
        return sorted(line.split() for line in listed.splitlines())

    cluster.wait(lambda: [f"{job}_1", "R"] in rows(), 60)
    [outcome] = port.apply([command("c", "update", job, TresPerJob=_form_of(cluster, job))])
    assert outcome.status == "done"
    assert rows() == sorted([[f"{job}_1", "R"], [f"{job}_[0,2-3]", "PD"]])
    assert asks(cluster, f"{job}_3")["TresPerJob"][-5:] == "gpu:4"


def _form_of(cluster: Sandbox, job: int) -> str:
    """Four GPUs, as this release writes them."""
    return asks(cluster, f"{job}_0")["TresPerJob"].replace("gpu:2", "gpu:4")
