"""`queue`, `prio` and `acct` beside squeue, sprio and sacct: the same jobs, columns and values."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from slurmplug.sandbox import Sandbox
from tests.ledgers import run
from tests.live.live_site import LiveSite

SLEEPS = "#!/bin/sh\n#SBATCH --gres=gpu:1 --requeue --output=/dev/null\nsrun sleep 600\n"
WHOLE = "#!/bin/sh\n#SBATCH --gres=gpu:4 -N4 -n4 --output=/dev/null\nsleep 600\n"
FORMAT = "%.18i|%.9P|%8j|%.8u|%.2t|%.8T|%.9l|%D|%5C|%R|%A|%a|%q|%V|%v|%U|%k"


@pytest.fixture
def site(cluster: Sandbox, folder: Path) -> Iterator[LiveSite]:
    (folder / "ledger.db").unlink(missing_ok=True)
    one = LiveSite(cluster, folder)
    with closing(one.ledger):
        yield one


def test_a_queue_by_element_is_squeues(
    cluster: Sandbox, folder: Path, site: LiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = cluster.researchers[0]
    cluster.sbatch(user, SLEEPS, "--array=0-8,13-25:3%2")
    cluster.sbatch(user, SLEEPS, "--hold")
    cluster.wait(lambda: cluster.run("root", ["squeue", "-h", "-t", "R"]).stdout.count("\n") == 2, what="two elements")
    site.scheduler.run()
    monkeypatch.setenv("SLURM_CONF", str(cluster.layout.slurm_conf))
    result = run("queue", "--ledger", str(folder / "ledger.db"), "-r", "-n", "-o", "%i %j %t %D %P")
    assert result.exit_code == 0, result.output
    theirs = cluster.run("root", ["squeue", "-r", "-h", "-o", "%i %j %t %D %P"]).stdout.splitlines()
    assert sorted(result.output.splitlines()) == sorted(theirs)
    assert len(theirs) == 15


def test_the_reports_are_as_slurms_own(
    cluster: Sandbox, folder: Path, site: LiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = cluster.researchers[0]
    running, requeued = cluster.sbatch(user, SLEEPS), cluster.sbatch(user, SLEEPS)
    cluster.wait_job(running, "RUNNING")
    cluster.wait_job(requeued, "RUNNING")
    cluster.run("root", ["scontrol", "requeue", str(requeued)])
    runs = ["sacct", "-n", "-X", "-D", "-j", str(requeued), "-o", "state"]  # in the order of slurmdbd

    def has_two_runs() -> bool:
        return cluster.run("root", runs).stdout.split() == ["REQUEUED", "PENDING"]

    cluster.wait(has_two_runs, what="sacct to have its second run")
    waiting, cancelled = cluster.sbatch(user, WHOLE), cluster.sbatch(user, WHOLE)
    site.scheduler.run()  # of a job that no cycle saw, nothing is recorded
    cluster.run(user, ["scancel", str(cancelled)])
    cluster.wait(lambda: cluster.run("root", ["sprio", "-h"]).stdout != "", what="sprio")
    reasons = ["squeue", "-h", "-t", "PD", "-o", "%r"]

    def both_wait() -> bool:
        found = cluster.run("root", reasons).stdout.split()
        return len(found) == 2 and "None" not in found

    cluster.wait(both_wait, what="reasons to wait")
    site.scheduler.run()
    monkeypatch.setenv("SLURM_CONF", str(cluster.layout.slurm_conf))
    ledger = ("--ledger", str(folder / "ledger.db"))

    def ours(*arguments: str) -> list[str]:
        result = run(arguments[0], *ledger, *arguments[1:])
        assert result.exit_code == 0, result.output
        return result.output.splitlines()

    def slurms(*arguments: str) -> list[str]:
        return cluster.run("root", [*arguments]).stdout.splitlines()

    assert ours("queue", "-o", FORMAT, "-S", "i") == slurms("squeue", "-o", FORMAT, "-S", "i")
    types = "JobArrayID:.8,UserName,StateCompact:4,NumNodes:.3,Partition:5"
    assert ours("queue", "-O", types, "-S", "-i") == slurms("squeue", "-O", types, "-S", "-i")
    (job,) = json.loads("\n".join(ours("prio", "--json", "-j", str(waiting))))["jobs"]
    terms = {
        "AGE": "%A",
        "ASSOC": "%B",
        "FAIRSHARE": "%F",
        "JOBSIZE": "%J",
        "PARTITION": "%P",
        "QOS": "%Q",
        "NICE": "%N",
    }
    sprio = slurms("sprio", "-h", "-j", str(waiting), "-o", " ".join(f"%{letter}" for letter in terms.values()))[
        0
    ].split()
    theirs = dict(zip(terms, map(float, sprio), strict=True))
    shown = {name: job["slurm"][name] for name in theirs}
    assert shown.pop("AGE") <= theirs.pop("AGE")  # sprio was asked later
    assert shown == theirs
    assert any(shown.values())
    fields = "jobid,state,exitcode,nodelist"
    jobs = ("-j", f"{running},{requeued},{cancelled}", "-n", "-P", "-D", "-o", fields)

    def recorded() -> bool:
        site.scheduler.run()
        return ours("acct", *jobs, "--steps") == [line.replace("None assigned", "") for line in slurms("sacct", *jobs)]

    cluster.wait(recorded, what="sacct to show what acct shows")


def test_submit_is_sbatch_after_a_check(cluster: Sandbox, folder: Path, site: LiveSite) -> None:
    user = cluster.researchers[0]
    site.scheduler.run()
    submit = [sys.executable, "-c", "from slurmplug.commands import main; main()", "submit"]
    for name, directive in (("good.sh", "--urgency=7"), ("wrong.sh", "--urgencey=7")):
        (cluster.home(user) / name).write_text(f"#!/bin/sh\n#PLUG {directive}\necho $1; sleep 600\n")
    done = cluster.run(user, [*submit, "good.sh", "--parsable", "--comment=of its own", "--output=%j.out", "--", "a b"])
    number = int(done.stdout)
    job = cluster.job(number)
    assert (job["Comment"], job["JobName"]) == ("of its own", "good.sh")
    output = cluster.home(user) / f"{number}.out"
    cluster.wait(lambda: output.exists() and output.read_text() == "a b\n", what="the script's argument")
    wrong = cluster.run(user, [*submit, "wrong.sh", "--parsable"], check=False)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "wrong.sh: line 2: --urgencey=7: no such directive; did you mean --urgency?" in wrong.stderr
    known = cluster.run("root", [*submit, "--ledger", f"{folder}/ledger.db", f"{cluster.home(user)}/good.sh", "-Ht10"])
    assert "--urgency=7." in known.stderr
    assert "Run time" in known.stderr
    cluster.run("root", ["scancel", known.stdout.split()[-1]])
    refused = cluster.run(user, [*submit, "good.sh", "--partition=none"], check=False)
    alone = cluster.run(user, ["sbatch", "--partition=none", "good.sh"], check=False)
    assert alone.returncode != 0
    assert (refused.returncode, refused.stdout) == (alone.returncode, alone.stdout)
    assert refused.stderr.endswith(alone.stderr)
    assert cluster.run("root", ["squeue", "-h", "-o", "%A"]).stdout.split() == [str(number)]


def test_a_job_starts_within_the_time_that_was_estimated_before_its_submission(
    cluster: Sandbox, folder: Path, site: LiveSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The jobs that run may take ten minutes, and nothing is known of how long they do; one ends when it is told to,
    once the estimated time has begun."""
    user = cluster.researchers[0]
    until_told = "#!/bin/sh\n#SBATCH --gres=gpu:4 -t 10 --output=/dev/null\nuntil [ -e end ]; do sleep 0.2; done\n"
    running = [cluster.sbatch(user, until_told.replace("end", f"end{i}")) for i in range(4)]
    for job in running:
        cluster.wait_job(job, "RUNNING")
    site.scheduler.run()
    monkeypatch.setenv("SLURM_CONF", str(cluster.layout.slurm_conf))
    script = tmp_path / "next.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:4 -t 10 --output=/dev/null\n#PLUG --deadline=1h\ntrue\n")
    result = run("estimate", "--ledger", str(folder / "ledger.db"), "--json", str(script))
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    job = cluster.sbatch(user, script.read_text())
    cluster.wait(lambda: time.time() >= found["start"]["low"], what="the estimated time to begin")
    (cluster.home(user) / "end0").touch()
    cluster.wait_job(job, "COMPLETED")
    started = datetime.fromisoformat(cluster.job(job)["StartTime"]).timestamp()
    print(f"estimated {found['start']}, Slurm's estimate {found['slurm']['start']}, started {started}")
    assert found["start"]["low"] - 1 <= started <= found["start"]["high"]
    assert found["slurm"]["start"] > found["start"]["high"], "Slurm takes them to run for all of their limits"
    assert found["in_time"] == 1.0
