"""The jobs that the demo submits: of three researchers, who together request far more GPUs than there are."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurmplug.directives.grammar import PREFIX

MINUTES = 5
"""the time limit of each job"""


@dataclass(frozen=True)
class DemoJob:
    """One sbatch.

    user        the number of the researcher who submits it
    data        the name of a data set
    model       further options of `slurmplug.sandbox.training`
    directives  the options of its `#PLUG` line; where there are any, --max-iterations is added
    after       the name of the job that has to complete before it
    elements    of an array whose index is the seed; 0 for no array
    at          seconds after the first submission
    """

    name: str
    user: int
    gpus: int
    data: str
    model: str
    iterations: int
    directives: str = ""
    after: str = ""
    elements: int = 0
    at: float = 0.0

    def options(self) -> list[str]:
        """The options of sbatch, without the dependency."""
        array = [f"--array=0-{self.elements - 1}"] if self.elements else []
        return [f"--job-name={self.name}", f"--gres=gpu:{self.gpus}", f"--time={MINUTES}", *array]

    def script(self, python: str, data: Path, seconds: float) -> str:
        """The batch script, with the path of a Python, the folder of the data sets and the seconds of an iteration."""
        directives = f"{PREFIX} {self.directives} --max-iterations={self.iterations}" if self.directives else "#"
        program = shlex.join(
            [python, "-m", "slurmplug.sandbox.training", f"{data}/{self.data}.npz", f"--iterations={self.iterations}"]
        )
        seed = " --seed=$SLURM_ARRAY_TASK_ID" if self.elements else ""
        return (
            f"#!/bin/sh\n{directives}\nexport OMP_NUM_THREADS=1\n"
            f"exec {program} {self.model} --seconds={seconds:g}{seed} --save={self.name}-$SLURM_JOB_ID.npz\n"
        )


VISION, LANGUAGE, GUEST = range(3)

JOBS: Sequence[DemoJob] = (
    DemoJob("digits-net", VISION, 2, "digits", "--hidden=24 --rate=0.02", 60,
            "--target=accuracy>=0.94 --stop=target --type=digits --urgency=6 --deadline=3m"),
    DemoJob("digits-wide", VISION, 4, "digits", "--hidden=48 --rate=0.01", 60,
            "--target=accuracy>=0.9 --stop=target --type=digits"),
    DemoJob("moons-line", LANGUAGE, 1, "moons", "--rate=0.05", 60,
            "--target=accuracy>=0.95 --stop=optstop --type=moons"),
    DemoJob("clusters-net", LANGUAGE, 4, "clusters", "--hidden=32 --rate=0.01", 60,
            "--target=accuracy>=0.75 --allow-downgrade=target --type=clusters"),
    DemoJob("plain", GUEST, 1, "cancer", "--rate=0.005", 25),
    DemoJob("wine-line", GUEST, 1, "wine", "--rate=0.3", 50, "--stop=optstop --type=wine"),
    DemoJob("digits-sgd", VISION, 2, "digits", "--model=linear --rate=0.0001", 60,
            "--target=accuracy>=0.9 --stop=target --type=digits --urgency=4"),
    DemoJob("diabetes", LANGUAGE, 2, "diabetes", "--rate=0.015", 60,
            "--target=loss<=0.56 --stop=target --type=diabetes"),
    DemoJob("left-alone", GUEST, 2, "digits", "--rate=0.01", 20, "--manage=off"),
    DemoJob("pretrain", VISION, 4, "digits", "--hidden=32 --rate=0.015", 60,
            "--target=accuracy>=0.88 --stop=target --type=digits --ml-job=reader"),
    DemoJob("fine-tune", VISION, 2, "digits", "--hidden=32 --rate=0.02", 50,
            "--target=accuracy>=0.9 --stop=target --type=digits --ml-job=reader", after="pretrain"),
    DemoJob("distil", VISION, 1, "digits", "--rate=0.02", 8, "--type=digits --ml-job=reader", after="fine-tune"),
    DemoJob("wine-sweep", LANGUAGE, 1, "wine", "--hidden=6 --rate=0.03", 50,
            "--target=accuracy>=0.85 --stop=target --type=wine", elements=3),
    DemoJob("moons-net", GUEST, 3, "moons", "--hidden=12 --rate=0.15", 60,
            "--target=accuracy>=0.93 --stop=target --type=moons --urgency=3", at=6),
    DemoJob("cancer-net", VISION, 2, "cancer", "--hidden=8 --rate=0.01", 60,
            "--target=accuracy>=0.93 --allow-downgrade=target --type=cancer", at=6),
    DemoJob("cancer-line", LANGUAGE, 1, "cancer", "--rate=0.005", 30, "--type=cancer --urgency=2", at=6),
    DemoJob("clusters-mlp", LANGUAGE, 3, "clusters", "--model=perceptron --hidden=32 --rate=0.002", 60,
            "--target=accuracy>=0.77 --stop=target --type=clusters", at=6),
    DemoJob("digits-tiny", GUEST, 2, "digits", "--hidden=12 --rate=0.02", 60,
            "--target=accuracy>=0.88 --stop=target --type=digits", at=6),
    DemoJob("moons-more", LANGUAGE, 2, "moons", "--rate=0.1", 60,
            "--target=accuracy>=0.97 --stop=optstop --type=moons", at=12),
    DemoJob("diabetes-net", GUEST, 1, "diabetes", "--hidden=4 --rate=0.01", 60,
            "--target=r2>=0.3 --stop=target --type=diabetes", at=12),
    DemoJob("clusters-wide", VISION, 4, "clusters", "--hidden=64 --rate=0.01", 60,
            "--target=accuracy>=0.75 --allow-downgrade=target --type=clusters", at=12),
    DemoJob("patient", GUEST, 2, "cancer", "--hidden=4 --rate=0.005", 30, "--type=cancer --urgency=0", at=12),
    DemoJob("wine-deep", GUEST, 2, "wine", "--hidden=12 --rate=0.02", 60,
            "--target=accuracy>=0.85 --stop=target --type=wine --deadline=5m", at=12),
    DemoJob("urgent", VISION, 4, "digits", "--hidden=24 --rate=0.02", 60,
            "--target=accuracy>=0.9 --stop=target --type=digits --urgency=10 --deadline=2m", at=18),
    DemoJob("short", GUEST, 1, "wine", "--rate=0.05", 12, "--type=wine", at=18),
    DemoJob("digits-line", LANGUAGE, 2, "digits", "--rate=0.01", 60,
            "--target=accuracy>=0.88 --stop=target --type=digits", at=18),
    DemoJob("moons-deep", VISION, 3, "moons", "--hidden=16 --rate=0.2", 60,
            "--target=accuracy>=0.93 --stop=target --type=moons", at=18),
    DemoJob("plain-too", LANGUAGE, 2, "clusters", "--hidden=16 --rate=0.02", 20, at=18),
    DemoJob("diabetes-line", LANGUAGE, 1, "diabetes", "--rate=0.05", 60,
            "--target=r2>=0.6 --stop=optstop --type=diabetes", at=24),
    DemoJob("digits-mlp", LANGUAGE, 4, "digits", "--model=perceptron --hidden=24 --rate=0.002", 60,
            "--target=accuracy>=0.9 --stop=target --type=digits", at=24),
    DemoJob("wine-net", VISION, 1, "wine", "--hidden=6 --rate=0.1", 40,
            "--target=accuracy>=0.95 --allow-downgrade=target --type=wine", at=24),
    DemoJob("cancer-deep", VISION, 2, "cancer", "--hidden=16 --rate=0.02", 60,
            "--target=accuracy>=0.92 --stop=target --type=cancer --urgency=7", at=24),
)  # fmt: skip
"""34 jobs with the elements of the array. The targets are reached, if at all, long before the last iteration."""
