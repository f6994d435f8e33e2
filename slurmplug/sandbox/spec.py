"""The specification of a sandbox: its nodes, partitions and scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Node:
    """One `slurmd -N`. Memory is in MB.

    It has `gpus` of one type (empty: untyped `gpu:4`), and besides them `more_gpus`, by type: of another model, or MIG
    instances such as `1g.10gb`. `shards`: into how many shards all of them can be divided, gres/shard.
    """

    gpus: int = 4
    gpu_type: str = ""
    more_gpus: Mapping[str, int] = field(default_factory=dict)
    shards: int = 0
    cpus: int = 8
    memory: int = 4000
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gpus < 0 or self.cpus < 1 or self.memory < 1:
            raise ValueError(f"a node needs CPUs and memory, and no negative number of GPUs: {self}")
        if self.more_gpus and (not self.gpu_type or self.gpu_type in self.more_gpus):
            raise ValueError(f"the GPUs of a node with several types are each of a type of their own: {self}")

    @property
    def gpus_by_type(self) -> Mapping[str, int]:
        """All its GPUs, in the order of their device files."""
        return {**({self.gpu_type: self.gpus} if self.gpus else {}), **self.more_gpus}


@dataclass(frozen=True)
class Partition:
    """A partition of `nodes` (by name; all where empty), with further options of slurm.conf(5), such as MaxTime."""

    name: str
    nodes: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterSpec:
    """A whole cluster. Its nodes are named n1, n2, ...; the first partition is the default one.

    scheduler   further SchedulerParameters, such as `bf_continue` or `bf_interval=5`; one of the same name is replaced.
    settings    further settings of slurm.conf(5) by name; they replace those of the sandbox.
    job_submit  a Lua script to load as job_submit.lua.
    slurm       the prefix of the Slurm to run, such as /opt/slurm; None for the system's.
    """

    nodes: tuple[Node, ...] = (Node(),) * 4
    partitions: tuple[Partition, ...] = (Partition("gpu"),)
    priority: Literal["multifactor", "basic"] = "multifactor"
    weights: Mapping[str, int] = field(default_factory=lambda: {"Age": 1000, "FairShare": 1000, "JobSize": 100})
    scheduler: tuple[str, ...] = ()
    job_submit: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    slurm: Path | None = None

    def __post_init__(self) -> None:
        if not self.nodes or not self.partitions:
            raise ValueError("a cluster needs at least one node and one partition")
        for partition in self.partitions:
            unknown = set(partition.nodes) - set(self.node_names)
            if unknown:
                raise ValueError(f"partition {partition.name} names nodes that do not exist: {sorted(unknown)}")

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return tuple(f"n{number}" for number in range(1, len(self.nodes) + 1))
