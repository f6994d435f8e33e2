"""Record what the Slurm of this machine answers about a queue that has one of everything; see README.md."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.parse import QueueReader, Separators
from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox

FIELD, RECORD = "fMARKED", "rMARKED"
SPEC = ClusterSpec(
    nodes=(
        Node(gpu_type="a100", features=("fast", "nvlink")),
        Node(gpu_type="a100", features=("fast", "nvlink")),
        Node(gpu_type="v100", features=("slow",)),
        Node(),
        Node(gpus=0),
    ),
    partitions=(Partition("gpu"), Partition("fast", ("n1", "n2"), {"MaxTime": "1-00:00:00"})),
    settings={"AccountingStorageTRES": "gres/gpu,gres/gpu:a100,gres/gpu:v100"},
)
SLEEP = "#!/bin/sh\nsleep 600\n"
HET = "#!/bin/sh\n#SBATCH -J het --hold --gres=gpu:1\n#SBATCH hetjob\n#SBATCH -J het --hold -n2\nsleep 600\n"
HOSTILE = "a=b|c\n99|99|RUNNING\n\x1f\x01\t%s,(null)"
RUNNING: Mapping[str, Sequence[str]] = {
    "per-node": ("-N2", "--gpus-per-node=a100:1", "-t", "1-02:03:04"),
    "per-task": ("-n2", "--gpus-per-task=2", "-w", "n4"),
    "typed": ("--gres=gpu:a100:2", "-w", "n1"),
    "array": ("--array=0-9%2", "--gpus=v100:1", "-w", "n3"),
}
WAITING: Mapping[str, Sequence[str]] = {
    "per-job": ("--gpus=6", "-n6"),
    "per-socket": ("-N2", "--sockets-per-node=2", "--gpus-per-socket=1"),
    "mixed": ("-N2", "-n2", "--gpus=a100:3,v100:2"),
    "partitions": ("-N2-4", "-p", "gpu,fast", "-C", "fast&nvlink", "--gres=gpu:1"),
    "split": ("--array=1-5,8", "--gres=gpu:1"),
    "no-gpu": ("-n3", "--mem-per-cpu=1500M"),
    "reserved": ("--reservation=maintenance",),
}

RESERVATIONS: Sequence[Mapping[str, str]] = (
    {
        "ReservationName": "maintenance",
        "StartTime": "now+1day",
        "Duration": "2:00:00",
        "Users": "games,news",
        "Nodes": "n[1-3]",
    },
    {
        "ReservationName": "class",
        "StartTime": "now+7days",
        "Duration": "60",
        "Accounts": "vision,language",
        "Nodes": "n4",
    },
)


class Recorder(CliClient):
    """Keeps the last answer that was read, with marks that are always the same."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox.layout.slurm_conf, None, 30.0)
        self.answer = b""
        self._queue_separators = Separators(FIELD, RECORD)
        self._queue_reader = QueueReader(self._queue_separators)

    def _run(self, argv: Sequence[str], *args: Any, **kwargs: Any) -> CompletedProcess[bytes]:
        result = super()._run(argv, *args, **kwargs)
        self.answer = result.stdout or b""
        columns = [word.rpartition(":")[2] for word in argv[-1].split(",")]
        for drawn, fixed in (columns[-1], RECORD), (columns[0], FIELD):
            self.answer = self.answer.replace(drawn.encode(), fixed.encode()) if ":" in argv[-1] else self.answer
        return result


def fill(sandbox: Sandbox) -> None:
    """One of everything, under names that tell what it is."""
    games, news = sandbox.researchers[:2]
    ran = sandbox.sbatch(news, "#!/bin/sh\nexit 3\n", "-J", "failed")
    killed = sandbox.sbatch(news, "#!/bin/sh\nkill -9 $$\n", "-J", "killed")
    done = sandbox.sbatch(news, "#!/bin/sh\n", "-J", "completed")
    for job, state in (ran, "FAILED"), (killed, "FAILED"), (done, "COMPLETED"):
        sandbox.wait_job(job, state)
    for name, options in RUNNING.items():
        job = sandbox.sbatch(games, SLEEP, "-J", name, *options)
        sandbox.wait_job(f"{job}_1" if name == "array" else job, "RUNNING")
    for reservation in RESERVATIONS:
        settings = (f"{option}={value}" for option, value in reservation.items())
        sandbox.run("root", ["scontrol", "create", "reservation", "Flags=IGNORE_JOBS", *settings])
    held = {name: sandbox.sbatch(news, SLEEP, "-J", name, "--hold", *options) for name, options in WAITING.items()}
    sandbox.sbatch(news, HET)
    sandbox.sbatch(
        news, SLEEP, "-J", "dependent", "-d", f"afterok:{held['no-gpu']}:{held['mixed']}?afterany:{held['split']}"
    )
    sandbox.sbatch(news, SLEEP, "-J", "later", "--begin=now+1hour")
    sandbox.sbatch(news, SLEEP, "-J", f"hostile {HOSTILE}", "--comment", HOSTILE, "--hold")
    operated = sandbox.sbatch(games, SLEEP, "-J", "held by an operator", "--begin=now+1hour")
    cancelled = sandbox.sbatch(games, SLEEP, "-J", "cancelled", "--hold")
    sandbox.run(sandbox.operator, ["scontrol", "hold", str(operated)])
    sandbox.run(sandbox.operator, ["scontrol", "update", f"JobId={held['split']}_3", "SiteFactor=7"])
    sandbox.run(games, ["scancel", str(cancelled)])
    sandbox.run("root", ["scontrol", "update", "NodeName=n5", "State=drain", "Reason=fans"])


def record(sandbox: Sandbox, folder: Path) -> None:
    client = Recorder(sandbox)
    ended = [int(line) for line in sandbox.run("root", ["squeue", "-ht", "F,CD,CA", "-o", "%A"]).stdout.split()]
    sandbox.wait(lambda: len(client.endings(ended)) == len(ended), what="the accounting to know of the endings")
    folder.mkdir(exist_ok=True)
    readings: dict[str, Callable[[], object]] = {
        "squeue": client.queue,
        "sinfo": client.nodes,
        "reservations": client.reservations,
        "config": client.site,
        "sacct": lambda: client.endings(ended),
    }
    for name, read in readings.items():
        read()
        (folder / f"{name}.txt").write_bytes(client.answer)


if __name__ == "__main__":
    with Sandbox(SPEC) as started:
        fill(started)
        record(started, Path(sys.argv[1]))
