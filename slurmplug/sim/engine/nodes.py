"""The nodes of a simulated cluster."""

import re
from dataclasses import dataclass

from slurmplug.errors import UsageError

CPUS_A_GPU = 8
MEMORY_A_GPU = 32_768.0
NETWORK = 1.25e9
MOST_NODES = 100_000
_GROUP = re.compile(r"(\d{1,6})x(\d{1,4})(?:x(\d{1,5}))?(?:x(\d{1,8}))?(?::([A-Za-z0-9_.-]{1,64}))?")


@dataclass(frozen=True)
class SimNodes:
    """One entry a node. `memory` in MiB, `network` in bytes a second in each direction."""

    names: tuple[str, ...]
    gpus: tuple[int, ...]
    cpus: tuple[int, ...]
    memory: tuple[float, ...]
    network: tuple[float, ...]
    gpu_type: tuple[str, ...] = ()
    """of each node's GPUs, empty where they have none; empty for nodes without types"""

    def __len__(self) -> int:
        return len(self.names)


def parse(text: str) -> SimNodes:
    """The nodes that `text` names.

    A group is NODESxGPUS, such as 16x4, or NODESxGPUSxCPUSxMEMORY (MiB a node), and may end in the type of its GPUs, as
    in 8x4:a100; several are joined by +. By default a node has 8 CPUs and 32 GiB for each of its GPUs (of one GPU where
    it has none), and 10 Gbit/s.

    Raises:
        UsageError
    """
    kinds: list[tuple[int, int, float, str]] = []
    for group in text.split("+"):
        match = _GROUP.fullmatch(group.strip())
        if match is None or not 1 <= int(match[1]) <= MOST_NODES:
            raise UsageError(
                f"a cluster is NODESxGPUS, such as 16x4, or 8x4:a100+2x8:v100, or 16x4x32x131072, not {text!r}"
            )
        gpus = int(match[2])
        cpus = int(match[3]) if match[3] else CPUS_A_GPU * max(gpus, 1)
        memory = float(match[4]) if match[4] else MEMORY_A_GPU * max(gpus, 1)
        kinds += [(gpus, cpus, memory, match[5] or "")] * int(match[1])
    return SimNodes(
        names=tuple(f"n{node + 1}" for node in range(len(kinds))),
        gpus=tuple(gpus for gpus, *_ in kinds),
        cpus=tuple(cpus for _, cpus, _, _ in kinds),
        memory=tuple(memory for _, _, memory, _ in kinds),
        network=(NETWORK,) * len(kinds),
        gpu_type=tuple(gpu_type for *_, gpu_type in kinds),
    )
