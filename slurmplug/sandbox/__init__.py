"""A throwaway real Slurm for the demo and the live tests, made from Debian's packages."""

from slurmplug.errors import SandboxError
from slurmplug.sandbox.accounts import reachable
from slurmplug.sandbox.cluster import Sandbox
from slurmplug.sandbox.errors import CommandFailed, NotInstalled, StartFailed, WaitTimeout
from slurmplug.sandbox.spec import ClusterSpec, Node, Partition

__all__ = [
    "ClusterSpec",
    "CommandFailed",
    "Node",
    "NotInstalled",
    "Partition",
    "Sandbox",
    "SandboxError",
    "StartFailed",
    "WaitTimeout",
    "reachable",
]
