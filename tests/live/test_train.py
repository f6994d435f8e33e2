"""`slurmplug train --on slurm`: an array of trainings on several nodes, of which one is killed and another requeued."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from slurmplug.config import model_files
from slurmplug.sandbox import ClusterSpec, Node, Sandbox

pytestmark = pytest.mark.rl
SMALL = 'jobs=8 clusters=["4x4"] also=[] loads=[6,6] iterations=30 workloads=1 runs=2 choosing=1 hidden=4'.replace(
    " ", " --set "
)
KILLED, REQUEUED, _ = SEEDS = (1000, 2000, 3000)


def process(home: Path, element: int) -> int:
    """The number of the process that trains it."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            words, variables = (folder.joinpath(name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
            if b"submitit.core._submit" in words and {
                f"HOME={home}".encode(),
                f"SLURM_ARRAY_TASK_ID={element}".encode(),
                b"SLURM_PROCID=0",
            } <= set(variables):
                return int(folder.name)
    raise AssertionError(f"element {element} does not run")


def test_what_is_killed_or_requeued_goes_on_and_all_models_are_those_of_an_undisturbed_training(
    special_cluster: Callable[[ClusterSpec], Sandbox],
) -> None:
    cluster = special_cluster(ClusterSpec(nodes=(Node(gpus=0, cpus=1),) * 3))
    user = cluster.researchers[0]
    home = cluster.home(user)
    seeds = [word for seed in SEEDS for word in ("--seed", str(seed))]
    train = [str(Path(sys.executable).with_name("slurmplug")), *f"train mlf-rl --set {SMALL}".split(), *seeds, "--out"]

    def checkpoint(seed: int) -> bool:
        return (home / f"{seed}.run" / "checkpoint").exists()

    with ThreadPoolExecutor(1) as waiting:
        trained = waiting.submit(
            cluster.run, user, [*train, f"{home}/{{seed}}", "--on", "slurm"], timeout=500, check=False
        )
        try:
            cluster.wait(lambda: trained.done() or all(map(checkpoint, SEEDS)), 200, "checkpoints")
            listed = cluster.run(user, ["squeue", "-h", "-r", "-o", "%i %N %T"]).stdout.split()
            array, nodes = listed[0].split("_")[0], set(listed[1::3])
            os.kill(process(home, SEEDS.index(KILLED)), signal.SIGKILL)
            cluster.run(user, ["scontrol", "requeue", f"{array}_{SEEDS.index(REQUEUED)}"])
        finally:
            done = trained.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert nodes == {"n1", "n2", "n3"}
    assert "was killed" in done.stdout
    # Undisturbed, by the same user: linear algebra rounds by the kind of processor, and by what variables make of it.
    cluster.run(user, [*train, f"{home}/undisturbed-{{seed}}"], timeout=500)
    for seed in SEEDS:
        disturbed, undisturbed = (
            model_files.parse((home / name).read_bytes(), name) for name in (f"{seed}", f"undisturbed-{seed}")
        )
        assert disturbed.digest == undisturbed.digest
        assert not checkpoint(seed)
    said = "".join(path.read_text() for path in (home / "slurm").glob("*_log.out"))
    assert said.count("Starting with") == len(SEEDS) + 2
    assert said.count("iteration 1 ") == len(SEEDS)  # nobody began anew
