"""What may go wrong around an operation on a real Slurm: a slurmctld, a node or a client that is away, at each step."""

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest

from slurmplug.operations import restart
from slurmplug.operations.values import GOES_FIRST
from slurmplug.sandbox import Sandbox
from tests.live import chosen
from tests.live.live_site import LiveSite, fresh_site, script, start_again
from tests.live.operated import operated

RESULTS_WHERE_IT_FELL = {
    **dict.fromkeys(("save", "reserve"), ("requeued meanwhile", "done", "gave up: it started again")),
    **dict.fromkeys(
        ("requeue", "settle"), ("gave up: it started again", "done", "gave up: its reserved nodes went down")
    ),
    **dict.fromkeys(("rewrite", "confirm"), ("done", "gave up: its reserved nodes went down")),
}
"""Slurm requeues who runs on a node that falls. Before our requeue that ends the operation; right after it, it may let
the job start elsewhere at once, without the two minutes; later, the job starts elsewhere, or its place is given up."""
STEPS = ("save", "reserve", "requeue", "settle", "rewrite", "confirm", "free", "unreserve", "watch", "ended")
PATIENCE = 120.0
HANGS = """#!/bin/sh
as="setpriv --reuid={user} --regid={user} --clear-groups {program}"
[ $# -gt 0 ] && exec $as "$@"
said=$(cat)
[ -e {folder}/hangs ] && read -r when verb <{folder}/hangs && case "$said" in *"$verb"*)
    rm {folder}/hangs
    [ "$when" = after ] && echo "$said" | $as >/dev/null 2>&1
    exec sleep 600 ;;
esac
echo "$said" | exec $as
"""
"""A scontrol that, told by a file, hangs once: before it does what it was told, or after."""


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[LiveSite]:
    with fresh_site(cluster, tmp_path) as one:
        yield one


@pytest.fixture
def falling(site: LiveSite) -> Iterator[LiveSite]:
    """Nodes that are set DOWN stay so until they are resumed.

    With the sandbox's ReturnToService=2 an answer that a slurmd gave before it was killed, and that slurmctld looks at
    later, as under load, returns its node to service: Slurm launches jobs on a dead node, and each costs a requeue.
    """
    path = site.cluster.layout.slurm_conf
    conf = path.read_text()
    assert "ReturnToService=2\n" in conf
    path.write_text(conf.replace("ReturnToService=2\n", "ReturnToService=0\n"))
    site.cluster.restart("slurmctld")
    yield site
    path.write_text(conf)
    site.cluster.clear()
    # Slurm 22.05 does not free the GPUs of a job whose earlier step outlived its node; one that starts counts anew.
    site.cluster.restart("slurmctld")


def begin(site: LiveSite, *jobs: int, gpus: int) -> None:
    """An operation of each job that makes it hold so many GPUs."""
    site.policy.wanted = {job: {"kind": "resize", "gpus": gpus} for job in jobs}
    site.until(lambda: all(site.operations(job) for job in jobs), PATIENCE)
    site.policy.wanted = {}


def step(site: LiveSite, job: int) -> str:
    return str(site.operations(job)[-1]["step"])


def until_ended(site: LiveSite, *jobs: int, each_cycle: Callable[[], None] = lambda: None) -> None:
    """Cycles until no operation of these jobs is under way."""

    def ended() -> bool:
        each_cycle()
        return all(step(site, job) == "ended" for job in jobs)

    site.until(ended, PATIENCE, what=f"the end of {[site.operations(job) for job in jobs]}")


def gpus_of(site: LiveSite, job: int) -> int:
    """That it holds or asks for."""
    values = dict(item.split("=") for item in site.cluster.job(job)["TRES"].split(","))
    return int(values["gres/gpu"])


def nothing_is_left(site: LiveSite, *jobs: int) -> bool:
    shown = [site.cluster.job(job) for job in jobs]
    return not site.leftovers() and all(
        (each["ExcNodeList"], each["ReqNodeList"]) == ("(null)", "(null)") and not each.get("Reservation")
        for each in shown
    )


def until_it_runs(site: LiveSite, job: int) -> None:
    """Also where Slurm lets a job wait for two minutes after a requeue, as it does without slurmplug."""
    if site.cluster.wait_job(job, ("PENDING", "RUNNING"), PATIENCE)["JobState"] == "PENDING":
        start_again(site.cluster, job, check=False)
    site.cluster.wait_job(job, "RUNNING", PATIENCE)


def test_a_slurmctld_that_restarts_at_every_step_of_an_operation_delays_it_only(site: LiveSite) -> None:
    job = site.trains(script("patient"))
    begin(site, job, gpus=4)
    restarted: list[str] = []

    def restart_once_a_step() -> None:
        at = step(site, job)
        if at in STEPS[:6] and at not in restarted:
            restarted.append(at)
            site.cluster.restart("slurmctld")

    until_ended(site, job, each_cycle=restart_once_a_step)
    assert {"save", "reserve", "requeue", "settle", "rewrite"} <= set(restarted)
    assert site.operations(job)[-1]["result"] == "done"
    assert (gpus_of(site, job), site.cluster.job(job)["Restarts"]) == (4, "1")
    assert int(site.runs("patient")[-1][3]) > 0
    assert nothing_is_left(site, job)


@pytest.mark.parametrize("steps", [("save", "reserve", "requeue"), ("settle", "rewrite", "confirm")], ids="-".join)
def test_a_node_that_goes_down_at_a_step_costs_the_run_there_at_most(
    falling: LiveSite, steps: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three jobs, of each of which the place goes down at another step, or the first one after it that is seen."""
    site = falling
    monkeypatch.setattr(restart, "NODE_DOWN_SECONDS", 3.0)
    jobs = {site.trains(script(f"falls_at_{at}", gpus=3), user=user): at for user, at in enumerate(steps)}
    begin(site, *jobs, gpus=2)
    down: dict[int, str] = {}

    def nodes_fall() -> None:
        for job, at in jobs.items():
            if job not in down and STEPS.index(step(site, job)) >= STEPS.index(at):
                down[job] = place(site, job)
                goes_down(site, down[job])

    try:
        until_ended(site, *jobs, each_cycle=nodes_fall)
    finally:
        come_back(site, set(down.values()))
    for job, at in jobs.items():
        result, done = str(site.operations(job)[-1]["result"]), said(site, job)
        assert result.startswith(RESULTS_WHERE_IT_FELL[at]), (at, result)
        # an undo that came when it had started elsewhere is not said, or refused
        assert gpus_of(site, job) == (2 if "rewrite" in done and "undo" not in done else 3), (at, result, done)
        until_it_runs(site, job)
        assert int(site.cluster.job(job)["Restarts"]) in (1, 2), (at, result)
    assert nothing_is_left(site, *jobs)


def said(site: LiveSite, job: int) -> set[str]:
    """The steps of its last operation whose command Slurm did."""
    name = site.operations(job)[-1]["id"]
    rows = site.query("SELECT id FROM commands WHERE operation = ? AND status = 'done'", name)
    return {str(row["id"]).removeprefix(f"{name}-").split("-")[0] for row in rows}


def place(site: LiveSite, job: int) -> str:
    """The node that was chosen for the job, or else the one where it runs."""
    chosen = json.loads(site.operations(job)[-1]["noted"])["nodes"]
    return ",".join(chosen) or site.cluster.job(job)["NodeList"]


def goes_down(site: LiveSite, name: str) -> None:
    """Without its slurmd, so that what it runs is lost."""
    if site.cluster.daemons.alive(name):
        site.cluster.kill(name)
        site.cluster.run("root", ["scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=test"])


def come_back(site: LiveSite, names: Collection[str]) -> None:
    """Nodes serve again, once no slurmstepd of a lost run is left there: beside one a launch fails."""
    sockets = [(site.cluster.folder / "nodes" / name, f"{name}_*.*") for name in names]
    for name in names:
        site.cluster.start(name)
    site.cluster.wait(
        lambda: not any(list(folder.glob(steps)) for folder, steps in sockets), PATIENCE, "the lost runs to end"
    )
    if names:
        site.cluster.run("root", ["scontrol", "update", f"NodeName={','.join(names)}", "State=RESUME"])


def seconds(shown: Mapping[str, str], field: str) -> float:
    """A time of slurmctld, in whole seconds."""
    return datetime.fromisoformat(shown[field]).timestamp()


def test_a_run_that_begins_in_the_second_of_its_requeue_fails_before_25_11_and_no_operation_begins_one_so_soon(
    site: LiveSite,
) -> None:
    """Slurm's own two minutes keep jobs from it; an operation does not wait for so long, but for two seconds. From
    25.11 on slurmd tells the runs of a job apart by their SLUID."""
    again: dict[str, str] = {}

    def began_so_soon() -> bool:
        job = site.cluster.sbatch(
            site.cluster.researchers[0], "#!/bin/sh\n#SBATCH --gres=gpu:4 --requeue\nexec sleep 600"
        )
        site.cluster.wait_job(job, "RUNNING", PATIENCE)
        time.sleep(2 - time.time() % 1)  # the second begins
        site.cluster.run("root", ["scontrol", "requeue", str(job)])
        site.cluster.wait_job(job, "PENDING", PATIENCE)
        site.cluster.run("root", ["scontrol", "update", f"JobId={job}", "StartTime=now"])
        again.update(site.cluster.wait_job(job, ("FAILED", "RUNNING"), PATIENCE))
        if seconds(again, "StartTime") == seconds(again, "SubmitTime"):
            return True
        site.cluster.run("root", ["scancel", str(job)])
        return False

    site.cluster.wait(began_so_soon, PATIENCE, "a start in the second of a requeue")
    if chosen.release() < (25, 11):
        site.cluster.wait(lambda: site.cluster.job(again["JobId"])["JobState"] == "FAILED", PATIENCE)
    else:
        site.cluster.wait(lambda: site.cluster.job(again["JobId"])["RunTime"] > "00:00:05", PATIENCE, "it to run on")
        site.cluster.run("root", ["scancel", again["JobId"]])
    job = site.trains(script("later"))
    begin(site, job, gpus=4)
    until_ended(site, job)
    shown = site.cluster.job(job)
    assert site.operations(job)[-1]["result"] == "done"
    assert seconds(shown, "StartTime") - seconds(shown, "SubmitTime") >= restart.SETTLE_SECONDS


def test_a_scontrol_that_hangs_leaves_it_open_and_nothing_is_done_twice(site: LiveSite) -> None:
    """The requeue was done and the answer got lost; the reservation and the update were never said."""
    folder, user = site.folder, site.cluster.operator
    site.port = operated(site.cluster, folder, timeout=6.0)
    hangs = HANGS.format(user=user, folder=folder, program=shutil.which("scontrol"))
    (folder / "scontrol").write_text(hangs)
    site.restart()
    job = site.trains(script("waits_for_us"))
    begin(site, job, gpus=4)
    for place in ("before create reservation", "after requeue", "before Gres="):
        (folder / "hangs").write_text(f"{place}\n")
        site.until(lambda: not (folder / "hangs").exists(), PATIENCE, what=f"scontrol to hang {place}")
    until_ended(site, job)
    said = site.query("SELECT verb, status FROM commands WHERE operation IS NOT NULL ORDER BY cycle, id")
    assert {"reserve", "requeue", "update"} <= {row["verb"] for row in said if row["status"] == "unknown"}
    assert [row["verb"] for row in said].count("requeue") == 1
    assert site.operations(job)[-1]["result"] == "done"
    assert (gpus_of(site, job), site.cluster.job(job)["Restarts"]) == (4, "1")
    assert len(site.runs("waits_for_us")) == 2
    assert nothing_is_left(site, job)


def test_a_job_is_pinned_to_the_nodes_that_the_policy_chose_until_it_waits_again(
    cluster: Sandbox, tmp_path: Path
) -> None:
    site = LiveSite(cluster, tmp_path, operations={"placement": "pin"})
    job = site.trains(script("pinned"))
    chosen = next(f"n{at}" for at in (4, 3) if f"n{at}" != site.cluster.job(job)["NodeList"])
    site.wants(job, kind="migrate", nodes=(chosen,))
    assert site.vetoes(job) == []
    assert site.until_over(job) == "done"
    shown = site.cluster.job(job)
    assert (shown["NodeList"], shown["ReqNodeList"], shown["Restarts"]) == (chosen, chosen, "1")
    assert int(site.runs("pinned")[-1][3]) > 0
    site.cluster.run("root", ["scontrol", "requeue", str(job)])
    site.until_step(job, "ended")
    assert nothing_is_left(site, job)
    site.ledger.close()


def test_a_run_that_ended_first_in_the_queue_is_not_first_when_its_user_requeues_it(site: LiveSite) -> None:
    user, nice = site.cluster.researchers[0], GOES_FIRST["Nice"]
    job = site.cluster.sbatch(user, "#!/bin/sh\n#SBATCH --gres=gpu:1 --requeue\ntrue\n", "--hold")
    site.cluster.run("root", ["scontrol", "update", f"JobId={job}", f"Nice={nice}"])
    site.cluster.run("root", ["scontrol", "release", str(job)])
    site.cluster.wait_job(job, "COMPLETED")
    refused = site.cluster.run("root", ["scontrol", "update", f"JobId={job}", "Nice=0"], check=False)
    assert "already finished" in refused.stderr
    site.cluster.run(user, ["scontrol", "requeuehold", str(job)])
    site.cluster.wait_job(job, "PENDING")
    assert site.cluster.job(job)["Nice"] == nice
    site.until(lambda: site.cluster.job(job).get("Nice", "0") == "0")
