"""The texts of squeue, sinfo, sprio, sacct and scontrol, Slurm 22.05 and later, as rows. Pure.

What a user writes (names, comments, paths) may hold newlines and anything else, so fields and records end in marks
that are drawn anew for each look. An answer that does not fit is a `ReadFailed`, never a shorter queue.
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
