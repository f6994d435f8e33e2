"""Resizing, moving and preempting on a real Slurm, of jobs that really save and go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.operations.restart import PROGRESS_LOST
from slurmplug.sandbox import Sandbox
from tests.live.live_site import LiveSite, fresh_site, script, start_again

WAITS = "#!/bin/sh\n#SBATCH --gres=gpu:4\n{}\nsleep 600\n"


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[LiveSite]:
    with fresh_site(cluster, tmp_path, guardrails={"size_interval": 0.0}) as one:
        yield one


def tres(site: LiveSite, job: int) -> str:
    return site.cluster.job(job)["TRES"]


def test_a_job_is_resized_goes_on_from_its_checkpoint_and_its_dependent_still_waits(site: LiveSite) -> None:
    job = site.trains(script("grows", gpus=2, lines="#SBATCH -c 2 --mem=200"))
    dependent = site.cluster.sbatch(site.cluster.researchers[0], "#!/bin/sh\ntrue\n", f"--dependency=afterok:{job}")
    site.wants(job, kind="resize", gpus=4)
    assert site.until_over(job) == "done"
    first, second = site.runs("grows")
    assert int(second[3]) > 0
    assert (first[7], second[7]) == ("0,1", "0,1,2,3")
    shown = site.cluster.job(job)
    assert (shown["NumCPUs"], shown["Restarts"]) == ("4", "1")
    assert "mem=400M" in shown["TRES"]
    assert site.leftovers() == []
    assert site.cluster.job(dependent)["Reason"] == "Dependency"


def test_a_job_of_one_node_grows_over_two_and_an_element_of_an_array_shrinks_alone(site: LiveSite) -> None:
    wide = site.trains(script("wide", gpus=4))
    site.cluster.sbatch(site.cluster.researchers[1], script("each", gpus=2), "--array=0-1")
    element = site.until_running("_1", user=1)
    site.policy.wanted = {wide: {"kind": "resize", "gpus": 8}, element: {"kind": "resize", "gpus": 1}}
    site.until(lambda: site.operations(wide) and site.operations(element))
    site.policy.wanted = {}
    assert [site.until_over(wide), site.until_over(element)] == ["done", "done"]
    assert (site.cluster.job(wide)["NumNodes"], site.cluster.job(wide)["Restarts"]) == ("2", "1")
    assert "gres/gpu=8" in tres(site, wide)
    assert "gres/gpu=1" in tres(site, element)
    other = site.cluster.job(f"{site.cluster.job(element)['ArrayJobId']}_0")
    assert ("gres/gpu=2" in other["TRES"], other["Restarts"]) == (True, "0")


def test_a_signalled_job_moves_off_its_node_and_is_let_go_when_it_is_requeued(site: LiveSite) -> None:
    job = site.trains(script("moves", how="USR1:batch"))
    site.wants(job, kind="migrate")
    assert site.until_over(job) == "done"
    first, second = site.runs("moves")
    assert first[5] != second[5]
    assert int(second[3]) > 0
    assert site.cluster.job(job)["ExcNodeList"] == first[5]
    site.cluster.run("root", ["scontrol", "requeue", str(job)])
    site.until_step(job, "ended")
    assert site.cluster.job(job)["ExcNodeList"] == "(null)"
    assert site.leftovers() == []


def test_a_preempted_job_waits_in_the_queue_and_goes_on_later(site: LiveSite) -> None:
    job = site.trains(script("waits"))
    site.wants(job, kind="preempt")
    assert site.until_over(job) == "done"
    assert site.cluster.job(job)["JobState"] == "PENDING"
    start_again(site.cluster, job, site.cluster.operator)
    site.cluster.wait(lambda: len(site.runs("waits")) == 2, 60, "its second run")
    assert int(site.runs("waits")[1][3]) > 0


def test_a_place_that_was_secured_is_not_taken_by_others(site: LiveSite) -> None:
    user = site.cluster.researchers[0]
    fills = [site.cluster.sbatch(site.cluster.researchers[2], WAITS.format("")) for _ in range(3)]
    for each in fills:
        site.cluster.wait_job(each, "RUNNING", 60)
    job = site.trains(script("stays", gpus=2))
    site.wants(job, kind="resize", gpus=4)
    site.until_step(job, "requeue", "settle")
    thieves = [site.cluster.sbatch(site.cluster.researchers[1], WAITS.format("")) for _ in range(3)]
    for each in thieves:
        site.cluster.run("root", ["scontrol", "update", f"JobId={each}", "Priority=4000000000"])
    assert site.until_over(job) == "done"
    assert "gres/gpu=4" in tres(site, job)
    assert {site.cluster.job(each)["JobState"] for each in thieves} == {"PENDING"}
    assert user == site.cluster.job(job)["UserId"].partition("(")[0]


def test_claims_that_are_wrong_and_jobs_that_begin_again_are_found_out(site: LiveSite) -> None:
    liar = site.trains(script("liar", grace=3, claims=10_000))
    fresh = site.trains(script("fresh", resumes=False), user=1)
    site.policy.wanted = {job: {"kind": "resize", "gpus": 4} for job in (liar, fresh)}
    site.until(lambda: site.operations(liar) and site.operations(fresh))
    site.policy.wanted = {}
    assert site.until_over(fresh) == PROGRESS_LOST
    assert site.until_over(liar) == "gave up: it reported no checkpoint within its grace period"
    assert site.cluster.job(liar)["Restarts"] == "0"
    site.wants(fresh, kind="resize", gpus=1)
    assert site.vetoes(fresh) == ["checkpoint not kept"]
    assert site.leftovers() == []


def test_what_slurm_would_refuse_or_hold_is_found_before(site: LiveSite) -> None:
    user, root = site.cluster.researchers[0], "root"
    limited = site.trains(script("limited"))
    fixed = site.trains(script("fixed"), "--no-requeue")
    by_gpu = site.trains(script("bygpu").replace("--gres=gpu:2", "--gpus=2 --ntasks-per-gpu=1"), user=1)
    het = site.cluster.sbatch(
        site.cluster.researchers[2], script("het").replace("#PLUG", "#SBATCH hetjob\n#SBATCH --gres=gpu:1\n#PLUG", 1)
    )
    site.until(lambda: site.cluster.job(het)["JobState"] == "RUNNING")
    site.cluster.run(root, ["sacctmgr", "-i", "modify", "user", user, "set", "MaxTRES=gres/gpu=3"])
    try:
        site.begin()
        for job, why in ((limited, "limit"), (fixed, "no requeue"), (by_gpu, "shape"), (het, "heterogeneous")):
            site.wants(job, kind="resize", gpus=4)
            assert (job, site.vetoes(job)) == (job, [why])
            assert site.operations(job) == []
    finally:
        site.cluster.run(root, ["sacctmgr", "-i", "modify", "user", user, "set", "MaxTRES=gres/gpu=-1"])


def test_waiting_jobs_are_resized_where_they_stand_but_not_arrays(site: LiveSite) -> None:
    user = site.cluster.researchers[0]
    for _ in range(4):
        site.cluster.wait_job(site.cluster.sbatch(site.cluster.researchers[2], WAITS.format("")), "RUNNING", 60)
    job = site.cluster.sbatch(user, WAITS.format("#SBATCH --mem=400 -c2\n#PLUG --gpus=1..8"))
    array = site.cluster.sbatch(user, WAITS.format("#PLUG --gpus=1..8"), "--array=0-2")
    site.wants(job, kind="resize", gpus=2)
    assert site.until_over(job) == "done"
    assert site.cluster.job(job)["TRES"].startswith("cpu=1,mem=200M,node=1,")
    assert "gres/gpu=2" in tres(site, job)
    site.wants(array, kind="resize", gpus=2)
    assert site.vetoes(array) == ["array"]
    site.wants(job, kind="resize", gpus=8)
    assert site.until_over(job) == "done"
    assert (site.cluster.job(job)["NumNodes"], "gres/gpu=8" in tres(site, job)) == ("2-2", True)


def test_users_may_hold_cancel_and_change_their_jobs_at_any_step(site: LiveSite) -> None:
    users = site.cluster.researchers
    holds, cancels, changes = (site.trains(script(name), user=at) for at, name in enumerate(("a", "b", "c")))
    site.policy.wanted = {job: {"kind": "resize", "gpus": 4} for job in (holds, cancels, changes)}
    site.until(lambda: all(site.operations(job) for job in (holds, cancels, changes)))
    site.policy.wanted = {}
    site.cluster.run(users[1], ["scancel", str(cancels)])
    pending = {holds: False, changes: False}

    def both_wait() -> bool:
        for job, at, update in (
            (holds, 0, ["hold", str(holds)]),
            (changes, 2, ["update", f"JobId={changes}", "Gres=gpu:1"]),
        ):
            if not pending[job] and site.cluster.job(job)["JobState"] == "PENDING":
                site.cluster.run(users[at], ["scontrol", *update])
                pending[job] = True
        return all(pending.values())

    site.until(both_wait)
    assert site.until_over(cancels) == "ended by itself"
    assert site.until_over(holds) == "withdrawn"
    assert site.cluster.job(holds)["Reason"] == "JobHeldUser"
    assert site.until_over(changes) == "gave up: its user or an operator changed it meanwhile (Gres)"
    assert "gres/gpu=1" in tres(site, changes)
    assert site.leftovers() == []


def test_a_requeue_that_slurm_refuses_leaves_the_job_running(site: LiveSite) -> None:
    job = site.trains(script("refuses"))
    site.wants(job, kind="resize", gpus=4)
    site.cluster.run("root", ["scontrol", "update", f"JobId={job}", "Requeue=0"])
    assert site.until_over(job) == "gave up: Slurm refused to requeue it"
    assert (site.cluster.job(job)["JobState"], site.cluster.job(job)["Restarts"]) == ("RUNNING", "0")
    assert site.leftovers() == []


def test_a_node_that_is_drained_and_a_slurmctld_that_restarts_lose_no_job(site: LiveSite) -> None:
    falls, survives = site.trains(script("falls")), site.trains(script("survives"), user=1)
    site.policy.wanted = {job: {"kind": "resize", "gpus": 4} for job in (falls, survives)}
    site.until(lambda: site.operations(falls) and site.operations(survives))
    site.policy.wanted = {}
    site.until_step(survives, "requeue", "settle")
    site.cluster.stop("slurmctld")
    assert site.scheduler.run() is None
    site.restart()
    site.cluster.start("slurmctld")
    assert site.until_over(survives) == "done"
    assert "gres/gpu=4" in tres(site, survives)
    assert site.until_over(falls) == "done"
    last = site.runs("falls")[-1]
    site.wants(falls, kind="resize", gpus=2)
    site.until_step(falls, "settle")
    [place] = [
        word[6:]
        for word in site.cluster.run("root", ["scontrol", "-o", "show", "res"]).stdout.split()
        if word.startswith("Nodes=")
    ]
    # one that is DOWN would be back at its next word (ReturnToService=2), from 24.11 on within a second
    site.cluster.run("root", ["scontrol", "update", f"NodeName={place}", "State=DRAIN", "Reason=test"])
    try:
        assert site.until_over(falls) == "done"  # the reservation is flexible: it starts elsewhere
    finally:
        site.cluster.run("root", ["scontrol", "update", f"NodeName={place}", "State=RESUME"])
    assert site.runs("falls")[-1][7] == "0,1"
    assert site.runs("falls")[-1][5] != place
    assert int(site.runs("falls")[-1][3]) >= int(last[3])
    assert site.leftovers() == []
