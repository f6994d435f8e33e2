"""`slurmplug acct` beside sacct: the same jobs by their states, inside the same window."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmplug.console import times
from slurmplug.sandbox import Sandbox
from tests.ledgers import run
from tests.live.live_site import LiveSite

SLEEPS = "#!/bin/sh\n#SBATCH --gres=gpu:1 --requeue --output=/dev/null\nsleep 600\n"
WHOLE = "#!/bin/sh\n#SBATCH --gres=gpu:4 -N4 -n4 --output=/dev/null\nsleep 600\n"
STATES = ("PD", "R", "CD", "F", "CA", "RQ", "PD,CA", "R,CD")


@pytest.fixture
def site(cluster: Sandbox, folder: Path) -> Iterator[LiveSite]:
    (folder / "ledger.db").unlink(missing_ok=True)
    one = LiveSite(cluster, folder)
    with closing(one.ledger):
        yield one


def test_by_states_it_shows_the_jobs_that_sacct_shows(cluster: Sandbox, folder: Path, site: LiveSite) -> None:
    user = cluster.researchers[0]
    begun = time.time()

    def submitted(script: str, *options: str) -> int:
        return cluster.sbatch(user, script, *options)

    completed, failed = (submitted(f"#!/bin/sh\n#SBATCH -o /dev/null\nsleep 2; exit {status}\n") for status in (0, 3))
    running, requeued, stopped = (submitted(SLEEPS) for _ in range(3))
    cluster.wait_job(stopped, "RUNNING")
    held, waiting, cancelled = submitted(SLEEPS, "--hold"), submitted(WHOLE), submitted(WHOLE)
    dependent, later = submitted(SLEEPS, f"--dependency=afterok:{running}"), submitted(SLEEPS, "--begin=now+1hour")
    site.scheduler.run()
    unstarted = ",".join(map(str, (held, cancelled, dependent, later)))

    def known() -> bool:  # of jobs that end before slurmdbd knows them it is told that they started as they ended
        return cluster.run("root", ["sacct", "-Xnj", unstarted, "-o", "state"]).stdout.split() == ["PENDING"] * 4

    cluster.wait(known, what="slurmdbd to know who waits")
    time.sleep(2)
    cluster.run("root", ["scancel", *unstarted.split(","), str(stopped)])
    cluster.run("root", ["scontrol", "requeue", str(requeued)])
    cluster.wait_job(completed, "COMPLETED")
    cluster.wait_job(failed, "FAILED")
    cluster.wait_job(stopped, "CANCELLED")
    cluster.wait_job(requeued, "PENDING")
    site.scheduler.run()
    window = [
        "-a",
        "-X",
        "-n",
        "-P",
        "-o",
        "jobid",
        "-S",
        times.format_time(begun - 1),
        "-E",
        times.format_time(time.time() + 1),
    ]

    def of_this_test(job_ids: str) -> set[str]:  # the cluster's last job before may have ended in the window, too
        return {word for word in job_ids.split() if int(word) >= completed}

    def by_sacct(states: str) -> set[str]:
        return of_this_test(cluster.run("root", ["sacct", *window, "-s", states]).stdout)

    def by_acct(states: str) -> set[str]:
        result = run("acct", "--ledger", str(folder / "ledger.db"), *window, "-s", states)
        assert result.exit_code == 0, result.output
        return of_this_test(result.output)

    expected = {
        "PD": {completed, failed, running, requeued, stopped, waiting, cancelled},
        "R": {completed, failed, running, requeued, stopped},
        "CD": {completed}, "F": {failed}, "CA": {held, stopped, cancelled, dependent, later}, "RQ": {requeued},
        "PD,CA": {completed, failed, running, requeued, stopped, waiting, cancelled, held, dependent, later},
        "R,CD": {completed, failed, running, requeued, stopped},
    }  # fmt: skip

    def recorded() -> bool:  # slurmdbd hears of it a little later
        return {states: by_sacct(states) for states in STATES} == {
            states: set(map(str, ids)) for states, ids in expected.items()
        }

    cluster.wait(recorded, what="sacct's answers")
    assert {states: by_acct(states) for states in STATES} == {states: by_sacct(states) for states in STATES}


@pytest.mark.parametrize("options", [("-s", "R"), ("-s", "R", "-E", "now"), ("-s", "PD", "-S", "now")])
def test_without_a_window_states_are_those_of_this_moment(
    cluster: Sandbox, folder: Path, site: LiveSite, options: tuple[str, ...]
) -> None:
    user = cluster.researchers[0]
    running, suspended = cluster.sbatch(user, SLEEPS), cluster.sbatch(user, SLEEPS)
    cluster.wait_job(suspended, "RUNNING")
    cluster.wait_job(running, "RUNNING")
    waiting = cluster.sbatch(user, WHOLE)
    cluster.run("root", ["scontrol", "suspend", str(suspended)])
    cluster.wait_job(suspended, "SUSPENDED")
    time.sleep(2)
    site.scheduler.run()
    shown = ["-a", "-X", "-n", "-P", "-o", "jobid", *options]
    expected = {str(waiting if "PD" in options else running)}
    cluster.wait(lambda: set(cluster.run("root", ["sacct", *shown]).stdout.split()) == expected, what="sacct")
    result = run("acct", "--ledger", str(folder / "ledger.db"), *shown)
    assert (result.exit_code, set(result.output.split())) == (0, expected)
