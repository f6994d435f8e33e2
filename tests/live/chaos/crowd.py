"""Jobs of every sort, which note when each of their runs began and ended."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurmplug.sandbox import Sandbox

PROGRAM = """
import os, signal, sys, time
from slurmplug import checkpoint_requested, report
job, run = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_RESTART_COUNT", "0")
log, path = f"chaos-{job}.log", f"chaos-{job}.checkpoint"
begun = int(open(path).read()) if os.path.exists(path) else 0
def note(*words):
    with open(log, "a") as file:
        print(run, *words, f"{time.time():.2f}", file=file)
note("began", begun)
for i in range(begun + 1, ITERATIONS + 1):
    time.sleep(0.2)
    stop = report(iteration=i, loss=1 / i, accuracy=1 - 1 / (i + 1))
    if i % 5 == 0:
        note("alive")
    asked = checkpoint_requested() or os.path.exists(path + ".asked")
    if asked and not os.path.exists(f"chaos-{job}.deaf"):
        with open(path + ".new", "w") as file:
            file.write(str(i))
        os.replace(path + ".new", path)
        if os.path.exists(path + ".asked"):
            os.remove(path + ".asked")
        report(checkpoint=i)
    if stop and OBEYS:
        break
note("ended")
"""

COMPONENT = "#SBATCH hetjob\n#SBATCH --gres=gpu:1 --time=30 --mem=10\n"


@dataclass(frozen=True)
class Sort:
    """One kind of job. `lines`: its directives. `managed`: whether slurmplug may touch it."""

    name: str
    lines: str = ""
    gpus: int = 1
    iterations: int = 60
    obeys: bool = True
    signalled: bool = False
    held: bool = False
    components: int = 1
    managed: bool = True
    options: tuple[str, ...] = ()

    def script(self) -> str:
        trap = "trap 'touch chaos-$SLURM_JOB_ID.checkpoint.asked' USR1\n" if self.signalled else ""
        program = PROGRAM.replace("ITERATIONS", str(self.iterations)).replace("OBEYS", str(self.obeys))
        return (
            f"#!/bin/sh\n#SBATCH --gres=gpu:{self.gpus} --requeue --open-mode=append --output=/dev/null --time=30 "
            f"--mem=10\n{COMPONENT * (self.components - 1)}{self.lines}\n{trap}{sys.executable} -u -c '{program}' &\n"
            "wait $!; while kill -0 $! 2>/dev/null; do wait $!; done\n"
        )


TO_TARGET = "#PLUG --stop=target --target=accuracy>=0.99"
SORTS = (
    Sort("elastic", "#PLUG --gpus=1..4 --checkpoint=file@10", 2, 150),
    Sort("elastic-signalled", "#PLUG --gpus=1..3 --checkpoint=USR1:batch@10", 1, signalled=True),
    Sort("stops", f"{TO_TARGET} --checkpoint=file@3", 1),
    Sort("deaf", f"{TO_TARGET} --checkpoint=USR1:batch@3", 1, obeys=False, signalled=True),
    Sort("admitted", "#PLUG --utility=50,0.5,12 --gpus=1..2", 1, 25),
    Sort("plain", "", 1, 40, managed=False),
    Sort("held", "#PLUG --urgency=9", 1, held=True, managed=False, options=("--hold",)),
    Sort("heterogeneous", TO_TARGET, 1, 150, components=2),
    Sort("array", "#PLUG --urgency=3", 1, 20, options=("--array=0-1",)),
)


@dataclass
class Crowd:
    """The jobs that were submitted, by id."""

    cluster: Sandbox
    jobs: dict[int, Sort] = field(default_factory=dict)
    _sorts: Iterator[Sort] = field(init=False)

    def __post_init__(self) -> None:
        self._sorts = (SORTS[number % len(SORTS)] for number in range(1_000_000))

    def fill(self, alive: int) -> None:
        """Submit until so many jobs wait or run."""
        missing = alive - len(self.alive())
        for sort in (next(self._sorts) for _ in range(missing)):
            if sort.held and sum(each.held for each in self.jobs.values()) >= 2:
                continue
            user = self.cluster.researchers[len(self.jobs) % len(self.cluster.researchers)]
            options = (f"--job-name={sort.name}", *sort.options)
            self.jobs[self.cluster.sbatch(user, sort.script(), *options)] = sort

    def alive(self) -> list[str]:
        """The ids of what waits or runs."""
        result = self.cluster.run("root", ["squeue", "-h", "-r", "-t", "PD,R,CG,CF,S", "-o", "%A"])
        return result.stdout.split()

    def runs(self) -> dict[int, list[list[str]]]:
        """The lines that each job wrote: run, what, when."""
        found = {}
        for user in self.cluster.researchers:
            for path in self.cluster.home(user).glob("chaos-*.log"):
                found[int(path.stem.split("-")[1])] = [line.split() for line in path.read_text().splitlines()]
        return found
