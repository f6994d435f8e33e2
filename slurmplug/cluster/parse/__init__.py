"""Parsers of what squeue, sinfo, sprio, sacct and scontrol print, Slurm 22.05 and later. Pure.

What a user writes (names, comments, paths) may contain newlines and anything else. So fields and records end in random
separators that no user can know: those of the queue are never shown to anybody, all others are drawn for each call. An
answer that does not parse is a `ReadFailed`, never a shorter queue.

No parser depends on the release: each reads every form that a supported release prints, and no form is ambiguous.

What differs                       22.05               24.11               26.05               Parsed or handled by
---------------------------------  ------------------  ------------------  ------------------  -----------------------
squeue, exit_code                  a wait status: 768  3:0                 3:0                 `table.exit_code`
squeue, GPUs requested per node    gres:gpu:2          gres/gpu:2          gres/gpu:2          `cluster.tres.gpus`
squeue, GPUs per task              gres:gpu:1          cpu=2,gres/gpu=1    cpu=2,gres/gpu=1    `cluster.tres.gpus`
scontrol show job, NumNodes        1, and 1-1 with     1 or 1-1            1 or 1-1            `request_update` of
without --nodes                    --nodes=1                                                   `operations`
squeue, excluded nodes             -o %x alone         -o %x, -O ExcNodes  -o %x, -O ExcNodes  `resource_requests`, of
                                                                                               -o %x
sacct, Start of what never ran     when it ended       None                None                `table.timestamp`
scontrol update of array elements  `No error` of each  nothing             nothing             `outcomes._array_status`
that succeeds
scancel, an element by its own id  not found, once     found               found               `jobs.Queue.addresses`
                                   the first ended
squeue, evenly spaced tasks        the last is left    the same            the same            `jobs._with_dropped_task`
                                   out
a job, where job_submit.lua fails  passes              passes              is refused          pcall, as slurmplug.lua
                                                                                               says to call it
scontrol show job, TRES held or    TRES                AllocTRES, ReqTRES  AllocTRES, ReqTRES  `job_fields` of
requested                                                                                      `sandbox.cluster`

Recorded answers of each release are in tests/data, and `make test-matrix` runs every release.
"""

from slurmplug.cluster.parse.jobs import (
    COMMENT_LENGTH,
    ENDING_FIELDS,
    JOB_FIELDS,
    RUN_IDENTITY_FIELDS,
    SPRIO_FORMAT,
    TEXT_LENGTH,
    Queue,
    QueueReader,
    endings,
    queue,
    run_identities,
    site_factors,
)
from slurmplug.cluster.parse.limits import ASSOC_FIELDS, DEFAULT_ACCOUNT_FIELDS, QOS_FIELDS, limits
from slurmplug.cluster.parse.nodes import NODE_FIELDS, nodes
from slurmplug.cluster.parse.outcomes import MESSAGE_LENGTH, outcome
from slurmplug.cluster.parse.reservations import reservations
from slurmplug.cluster.parse.resource_requests import RESOURCE_REQUEST_FIELDS, addresses, resource_requests
from slurmplug.cluster.parse.site import enforces_limits, site
from slurmplug.cluster.parse.table import Separators

__all__ = [
    "ASSOC_FIELDS",
    "COMMENT_LENGTH",
    "DEFAULT_ACCOUNT_FIELDS",
    "ENDING_FIELDS",
    "JOB_FIELDS",
    "MESSAGE_LENGTH",
    "NODE_FIELDS",
    "QOS_FIELDS",
    "RESOURCE_REQUEST_FIELDS",
    "RUN_IDENTITY_FIELDS",
    "SPRIO_FORMAT",
    "TEXT_LENGTH",
    "Queue",
    "QueueReader",
    "Separators",
    "addresses",
    "endings",
    "enforces_limits",
    "limits",
    "nodes",
    "outcome",
    "queue",
    "reservations",
    "resource_requests",
    "run_identities",
    "site",
    "site_factors",
]
