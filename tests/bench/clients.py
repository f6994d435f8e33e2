"""pyslurm beside the command line, on a sandbox: `python -m tests.bench.clients --slurm PREFIX`, as root; a minute.

Each figure is the median of some rounds, in milliseconds, as the daemon sees it: with the processes that the command
line starts and parsing their output, and with the pipe to pyslurm's process.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from policies.snapshot import JobKey
from slurmplug.cluster.api_client import ApiClient, make_client
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Command
from slurmplug.config.schema import SlurmSettings
from slurmplug.processes.child import Channel, Child
from slurmplug.sandbox import ClusterSpec, Sandbox

ROWS = 10_000
ROUNDS = 5
JOB = "id user_id account qos partition state name priority submit_time eligible_time start_time".split()
NODE = "name state allocated_cpus real_memory allocated_memory".split()


def read(channel: Channel, conf: str) -> None:
    """A process that reads with pyslurm and answers with typed columns."""
    os.environ["SLURM_CONF"] = conf
    pyslurm = import_module("pyslurm")

    def columns(rows: Any, names: list[str]) -> list[list[Any]]:
        return [[getattr(row, name) for row in rows] for name in names]

    reads: dict[str, Callable[[], Any]] = {
        "jobs": lambda: columns(list(pyslurm.Jobs.load().values()), JOB),
        "nodes": lambda: columns(list(pyslurm.Nodes.load().values()), NODE),
    }
    channel.send("ready")
    while True:
        channel.send(reads[channel.receive()]())


def median(what: Callable[[], Any]) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        what()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def show(name: str, cli: Callable[[], Any], pyslurm: Callable[[], Any]) -> None:
    print(f"| {name} | {median(cli):.1f} | {median(pyslurm):.1f} |", flush=True)


def write(client: CliClient, jobs: list[int]) -> None:
    factor = str(time.monotonic_ns() % 1000 + 1)
    commands = [Command(str(job), "update", JobKey("sandbox", job, 0), {"SiteFactor": factor}) for job in jobs]
    outcomes = client.write(commands, [str(job) for job in jobs])
    assert {each.status for each in outcomes} == {"done"}, outcomes[:3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slurm", type=Path, required=True)
    prefix = parser.parse_args().slurm
    settings = {"MaxArraySize": str(ROWS + 1), "MaxJobCount": str(4 * ROWS)}
    with Sandbox(ClusterSpec(settings=settings, slurm=prefix)) as cluster:
        conf = cluster.layout.slurm_conf
        cli = make_client(SlurmSettings(conf=conf, bin=prefix / "bin"))
        api = make_client(SlurmSettings(conf=conf, bin=prefix / "bin", client="pyslurm"))
        assert isinstance(api, ApiClient)
        options = ("--hold", f"--array=0-{ROWS - 1}")
        array = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nsleep 9\n", *options)
        lines = "".join(f"update JobId={array}_{task} SiteFactor=1\n" for task in range(ROWS))  # splits each one off
        cluster.run("root", ["scontrol"], input=lines, timeout=600, check=False)
        jobs = cli.queue().rows.job_id.tolist()
        print(f"{len(jobs)} jobs\n\n| ms | command line | pyslurm |\n|---|---|---|")
        api.site()
        assert api.ready(60.0)
        for count in (1, 40, 500):
            show(
                f"{count} {'write' if count == 1 else 'writes'}",
                partial(write, cli, jobs[:count]),
                partial(write, api, jobs[:count]),
            )
        reader = Child("reader", import_module("tests.bench.clients").read, str(conf))
        assert reader.channel.receive(60.0) == "ready"

        def ask(what: str) -> Any:
            reader.channel.send(what)
            return reader.channel.receive(120.0)

        show(f"{len(jobs)} jobs", cli.queue, partial(ask, "jobs"))
        show("nodes", cli.nodes, partial(ask, "nodes"))
        reader.kill()
        api.pyslurm.end()


if __name__ == "__main__":
    main()
