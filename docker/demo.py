"""The demo's jobs on the cluster in containers: submitted by three users, and their results."""

import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

from slurmplug.sandbox import datasets
from slurmplug.sandbox.demo_jobs import JOBS

USERS = ("ada", "bob", "cleo")
DATA = Path("/home/data")
SECONDS = float(os.environ.get("DEMO_ITERATION", "1"))
LIMIT = 900.0
FORMAT = "jobid%6,user%6,jobname%13,gpus,state,elapsed,waited,iterations,maxiterations,target%15,value,stop,saved%6"


def as_user(user: str, *argv: str, stdin: str | None = None) -> str:
    """The output of a command, run in the user's home."""
    entry = pwd.getpwnam(user)
    done = subprocess.run(
        argv, input=stdin, text=True, capture_output=True, check=False, timeout=120,
        user=entry.pw_uid, group=entry.pw_gid, extra_groups=[],
        cwd=f"/home/{user}", env={**os.environ, "HOME": f"/home/{user}", "USER": user},
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{user}: {' '.join(argv)}: {done.stderr or done.stdout}")
    return done.stdout


def main() -> None:
    DATA.mkdir(exist_ok=True)
    datasets.save_all(DATA)
    began, ids = time.monotonic(), dict[str, str]()
    for job in JOBS:
        time.sleep(max(0.0, began + job.at - time.monotonic()))
        after = [f"--dependency=afterok:{ids[job.after]}"] if job.after else []
        script = job.script(sys.executable, DATA, SECONDS)
        output = as_user(USERS[job.user], "sbatch", "--parsable", *job.options(), *after, stdin=script)
        ids[job.name] = output.strip().split(";")[0]
        print(f"submitted  {ids[job.name]} {job.name}: {job.gpus} GPUs {job.directives}", flush=True)
    while subprocess.run(["squeue", "-h", "-a"], capture_output=True, text=True, check=True).stdout.strip():
        if time.monotonic() - began > LIMIT:
            sys.exit("the jobs took too long")
        time.sleep(2)
    time.sleep(10)  # two cycles of the daemon
    for command in (
        ("acct", "--allusers", "-S", "now-1hours", f"--format={FORMAT}"),
        ("why", ids["urgent"]),
        ("status",),
    ):
        print(f"\n$ slurmplug {' '.join(command)}", flush=True)
        subprocess.run(["slurmplug", *command], check=True)


if __name__ == "__main__":
    main()
