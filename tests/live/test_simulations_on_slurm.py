"""`slurmplug simulate` and `replay --on slurm`: the elements of an array make the same as one process does."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from slurmplug.sandbox import ClusterSpec, Node, Sandbox
from slurmplug.sim.experiment import comparison

SLURMPLUG = str(Path(sys.executable).with_name("slurmplug"))
SIMULATE = "simulate gen:mlfs --cluster 4x4 --jobs 40 --load 3 --policy fifo --policy mlfs --seed 3 --seed 4".split()
COLUMNS = "JobID|User|Submit|Start|ElapsedRaw|Timelimit|AllocTRES|NCPUS|State|JobName"
NODES = 2
CLOCK = comparison.MEASURED | {"wall_s"}


@pytest.fixture
def cluster(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    return special_cluster(ClusterSpec(nodes=(Node(gpus=0, cpus=1),) * NODES))


def figures(path: Path) -> list[tuple[str, int, dict[str, float]]]:
    """Those that do not depend on the machine."""
    runs = comparison.read(path).runs
    return [(run.policy, run.seed, {k: v for k, v in run.figures.items() if k not in CLOCK}) for run in runs]


def element(home: Path) -> int | None:
    """The process of an element that runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if b"submitit.core._submit" in (folder / "cmdline").read_bytes().split(b"\0"):
                variables = (folder / "environ").read_bytes().split(b"\0")
                if {f"HOME={home}".encode(), b"SLURM_PROCID=0"} <= set(variables):
                    return int(folder.name)
    return None


def test_an_element_that_is_killed_is_submitted_again_and_all_figures_are_those_of_one_process(
    cluster: Sandbox,
) -> None:
    user = cluster.researchers[0]
    home = cluster.home(user)
    with ThreadPoolExecutor(1) as waiting:
        asked = [SLURMPLUG, *SIMULATE, "--json", str(home / "array.json"), "--on", "slurm"]
        simulated = waiting.submit(cluster.run, user, asked, timeout=400, check=False)
        try:
            first = cluster.wait(lambda: simulated.done() or element(home), 120, "an element")
            assert first, simulated.result().stderr
            assert first is not True, simulated.result().stderr
            os.kill(first, signal.SIGKILL)
        finally:
            done = simulated.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was killed" in done.stderr
    cluster.run(user, [SLURMPLUG, *SIMULATE, "--json", str(home / "here.json")], timeout=200)
    assert figures(home / "array.json") == figures(home / "here.json")
    assert len(figures(home / "here.json")) == 4


def test_a_replay_in_an_array_prints_what_one_process_does_and_what_fails_is_told(cluster: Sandbox) -> None:
    user = cluster.researchers[0]
    rows = [
        f"{n}|ada|2026-03-01T10:{n:02}:00|2026-03-01T10:{n:02}:00|600|01:00:00|gres/gpu=4|4|COMPLETED|train"
        for n in range(1, 25)
    ]
    log = cluster.home(user) / "sacct.txt"
    log.write_text(
        "JobID|User|Submit|Start|ElapsedRaw|Timelimit|AllocTRES|NCPUS|State|JobName\n" + "\n".join(rows) + "\n"
    )
    log.chmod(0o644)
    replay = [SLURMPLUG, *f"replay --sacct {log} --assume-directives 0.5 --samples 2 --config /dev/null".split()]
    here = cluster.run(user, [*replay, "--cluster", "2x4"], timeout=200)
    array = cluster.run(user, [*replay, "--cluster", "2x4", "--on", "slurm"], timeout=400)
    assert array.stdout == here.stdout
    too_large = [SLURMPLUG, *"simulate gen:mlfs?elastic=off --cluster 1x1 --jobs 20 --policy fifo --on slurm".split()]
    refused = cluster.run(user, too_large, timeout=400, check=False)
    assert refused.returncode == 1
    assert "GPUs" in refused.stderr
    assert "output of the elements is in slurm" in refused.stderr
