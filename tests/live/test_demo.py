"""The demo in small: sbatch with directives, the daemon that acts, a stop under overload, the report."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from slurmplug.ledger.ledger import Ledger
from slurmplug.sandbox import Sandbox
from slurmplug.sandbox.demo import run_jobs
from slurmplug.sandbox.demo_jobs import DemoJob
from slurmplug.sandbox.view import EventPrinter

SLURMPLUG = Path(sys.executable).with_name("slurmplug")

WILLING = DemoJob(
    "willing", 0, 4, "digits", "--hidden=24 --rate=0.02", 200, "--target=accuracy>=0.9 --allow-downgrade=target"
)
JOBS = (
    WILLING,
    DemoJob("steady", 1, 4, "wine", "--rate=0.05", 160),
    DemoJob("steady-too", 1, 4, "wine", "--rate=0.05", 160, "--manage=off"),
    DemoJob("steady-also", 2, 4, "wine", "--rate=0.05", 160, "--stop=iterations"),
    DemoJob("waits", 0, 4, "digits", "--hidden=24 --rate=0.02", 200, "--target=accuracy>=0.9 --stop=target"),
    DemoJob("waits-more", 2, 4, "wine", "--rate=0.05", 5, "--urgency=1"),
    DemoJob("waits-less", 2, 4, "wine", "--rate=0.05", 5, "--urgency=10"),
    DemoJob("next", 0, 1, "digits", "--rate=0.01", 3, "--type=digits", after="willing"),
)


def acct(ledger: Path) -> dict[str, dict[str, Any]]:
    """The report's jobs by name."""
    output = subprocess.run(
        [SLURMPLUG, "acct", "--ledger", ledger, "--allusers", "--starttime=now-1hour", "--json"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return {job["jobname"]: job for job in json.loads(output)["jobs"]}


def test_jobs_are_ranked_and_stopped_at_their_target_under_overload_and_what_depends_on_them_runs(
    cluster: Sandbox, tmp_path: Path
) -> None:
    lines = io.StringIO()

    run_jobs(cluster, JOBS, tmp_path, EventPrinter(Console(file=lines, soft_wrap=True), gpus=16), iteration=0.25)
    print(lines.getvalue())

    output = acct(tmp_path / "ledger.db")
    jobs = {job.name: output[job.name] for job in JOBS}
    assert {job["state"] for job in jobs.values()} == {"COMPLETED"}
    assert {name for name, job in jobs.items() if job["stop"] == "target"} == {"willing", "waits"}
    assert jobs["willing"]["iterations"] < 200
    assert jobs["willing"]["value"] >= 0.9
    assert jobs["next"]["start"] >= jobs["willing"]["end"]
    assert jobs["steady-too"]["iterations"] == jobs["steady"]["iterations"] == 160

    ledger = Ledger(tmp_path / "ledger.db", readonly=True)
    commands = ledger.query("SELECT name, verb, fields FROM commands JOIN jobs ON jobs.id = commands.job")
    stops = ledger.query("SELECT name, facts FROM operations JOIN jobs ON jobs.id = operations.job")
    ledger.close()
    labelled = {row["name"] for row in commands if "SiteFactor" in row["fields"]}
    assert labelled & {"waits-more", "waits-less"}  # which exchange their places; one may keep its priority
    assert jobs["waits-less"]["start"] <= jobs["waits-more"]["start"]
    assert not labelled & {"steady", "steady-too"}
    assert {row["name"]: json.loads(row["facts"])["overload"] for row in stops}["willing"] == "yes"

    assert f"stop       {jobs['willing']['jobid']} willing: its accuracy of 0.9" in lines.getvalue()
    assert f"ended      {jobs['next']['jobid']} next: COMPLETED" in lines.getvalue()


def test_an_interrupted_demo_stops_what_it_started_and_leaves_its_logs(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    argv: list[str | Path] = [SLURMPLUG, "sandbox", "demo", folder]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        output = list(_until(demo.stdout, "started "))
        assert "started " in output[-1], output
        state = (folder / "cluster").resolve()
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()

    assert demo.returncode == 1, rest
    assert not running_below(state)
    assert (folder / "daemon.log").exists()
    assert (state / "log" / "slurmctld.log").exists()
    subprocess.run([SLURMPLUG, "sandbox", "down", folder / "cluster"], check=True)


def running_below(state: Path) -> list[str]:
    """The command lines of what has the folder in its arguments or its environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            output = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(state) in output:
            found.append(output.decode(errors="replace"))
    return found


def _until(lines: Iterable[str], word: str) -> Iterator[str]:
    """The lines up to the first that has this word."""
    for line in lines:
        yield line
        if word in line:
            return
