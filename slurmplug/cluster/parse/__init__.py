"""The texts of squeue, sinfo, sprio, sacct and scontrol, Slurm 22.05 and later, as rows. Pure.

What a user writes (names, comments, paths) may hold newlines and anything else, so fields and records end in marks
that no user knows: those of the queue are never shown, all others are drawn anew for each look. An answer that does not
fit is a `ReadFailed`, never a shorter queue.

No code asks for the release: an answer is read in each form that a supported release gives it, and none is ambiguous.

What differs                       22.05               24.11               26.05               Read by
---------------------------------  ------------------  ------------------  ------------------  -----------------------
squeue, exit_code                  a wait status: 768  3:0                 3:0                 `table.exit_code`
squeue, GPUs asked for per node    gres:gpu:2          gres/gpu:2          gres/gpu:2          `cluster.tres.gpus`
squeue, nodes to keep out          -o %x alone         -o %x, -O ExcNodes  -o %x, -O ExcNodes  `asking.asked`, by -o
sacct, Start of what never ran     when it ended       None                None                `table.moment`
scontrol update, to the elements   `No error` of each  nothing             nothing             `_judged_elements` of
of an array that it went well for                                                              `cluster.cli_client`
scancel, an element by its own id  not found, once     found               found               `jobs.Queue.addresses`
                                   the first ended
squeue, tasks evenly apart         the last is left    the same            the same            `jobs._with_dropped_one`
                                   out
a job, where job_submit.lua throws passes               passes              is refused          pcall, as slurmplug.lua
                                                                                               says to call it
scontrol show job, what it has or  TRES                AllocTRES, ReqTRES  AllocTRES, ReqTRES  `fields_of` of
asks for                                                                                       `sandbox.cluster`

The answers of each release that were recorded are in tests/data, and `make test-matrix` asks each release anew.
"""

from slurmplug.cluster.parse.asking import ASKED_FIELDS, asked
from slurmplug.cluster.parse.jobs import (
    COMMENT,
    ENDING_FIELDS,
    JOB_FIELDS,
    TEXT,
    Queue,
    Queues,
    endings,
    queue,
    site_factors,
)
from slurmplug.cluster.parse.places import NODE_FIELDS, nodes, reservations
from slurmplug.cluster.parse.settings import site
from slurmplug.cluster.parse.table import Marks

__all__ = [
    "ASKED_FIELDS",
    "COMMENT",
    "ENDING_FIELDS",
    "JOB_FIELDS",
    "NODE_FIELDS",
    "TEXT",
    "Marks",
    "Queue",
    "Queues",
    "asked",
    "endings",
    "nodes",
    "queue",
    "reservations",
    "site",
    "site_factors",
]
