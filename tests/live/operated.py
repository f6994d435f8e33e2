"""A `SlurmCluster` beside a sandbox, whose clients run as the operator's account and note how they were called."""

import shutil
from pathlib import Path
from typing import Any

from policies.snapshot import JobKey
from slurmplug.cluster.port import Command, Reading
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.config.schema import Config
from slurmplug.sandbox import Sandbox
from tests.live import chosen

CLIENTS = ("squeue", "sinfo", "sprio", "scontrol", "scancel", "sacct", "sacctmgr")


def operated(cluster: Sandbox, folder: Path, timeout: float = 20.0) -> SlurmCluster:
    """Calls are noted in `folder`/calls, a line each; not those by which pyslurm was proven to work."""
    for name in CLIENTS:
        program = folder / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $(echo "$*" | tr "\\n" " ")" >>{folder}/calls\n'
            f"exec setpriv --reuid={cluster.operator} --regid={cluster.operator} --clear-groups "
            f'{shutil.which(name)} "$@"\n'
        )
        program.chmod(0o755)
    conf = cluster.env(cluster.operator)["SLURM_CONF"]
    slurm = {"conf": conf, "bin": str(folder), "timeout": timeout, "client": chosen.CLIENT}
    made = SlurmCluster(Config.from_table({"slurm": slurm, "spool": {"path": str(cluster.spool)}}))
    chosen.proven(made._client)
    (folder / "calls").unlink(missing_ok=True)
    return made


def calls(folder: Path, name: str) -> list[str]:
    """How a client was called, in order."""
    lines = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return [line.strip() for line in lines if line.split()[0] == name]


def read(port: SlurmCluster) -> dict[int, dict[str, Any]]:
    """The queue as rows by job id; no scripts are wanted."""
    jobs = port.read(_Every(), {}).jobs
    names = type(jobs).__dataclass_fields__
    return {int(job_id): {name: getattr(jobs, name)[at] for name in names} for at, job_id in enumerate(jobs.job_id)}


def look(port: SlurmCluster) -> Reading:
    """A reading without scripts."""
    return port.read(_Every(), {})


def command(name: str, verb: str, job_id: int, **fields: str) -> Command:
    return Command(name, verb, JobKey("sandbox", job_id, 0), fields)  # type: ignore[arg-type]


class _Every:
    def __contains__(self, _: object) -> bool:
        return True
