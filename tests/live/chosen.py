"""The Slurm and the client of the live tests: `make test SLURM=PREFIX CLIENT=pyslurm`."""

import os
from pathlib import Path
from typing import Any

from slurmplug.sandbox.boot import slurm_version

SLURM = Path(os.environ["SLURM"]) if os.environ.get("SLURM") else None
"""the prefix of the Slurm that the sandboxes run; None for the system's"""
CLIENT = os.environ.get("CLIENT") or "cli"
"""`slurm.client` of every daemon and every cycle"""
PATH = [f"{SLURM}/{name}" for name in ("sbin", "bin")] if SLURM else []
"""the folders of that Slurm's programs"""


def release() -> tuple[int, int]:
    """That Slurm's, such as (22, 5), by which a test says what Slurm does where releases differ."""
    return slurm_version(SLURM)


def proven(client: Any) -> None:
    """Wait until a client that uses pyslurm does so; another one is what it is."""
    if CLIENT == "pyslurm":
        client.site()
        assert client.ready(60.0), "pyslurm does not work with this Slurm; see what was logged"
