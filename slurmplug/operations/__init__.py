"""Operations: allowed actions that take many cycles, carried out step by step.

Pure. Each cycle `advance` takes what the snapshot shows of the open operations and returns the commands to issue next.
A command whose status is not `done` is issued again, so a crash between two lines is only another snapshot.
"""

from slurmplug.operations.advance import admissions, advance, goes_first, jobs_to_query, to_be_ranked, urgent
from slurmplug.operations.changes import changes_request
from slurmplug.operations.steps import request_fields
from slurmplug.operations.values import (
    CANCEL_LIMIT,
    MAX_TRIES,
    NODE_LIST_FIELDS,
    PRIORITY_FIELDS,
    RESERVATION_PREFIX,
    CommandStatus,
    Facts,
    Observation,
    Operation,
    OperationOutcome,
    OperationSettings,
    reservation_name,
)
from slurmplug.rules.guardrails import MOVES

__all__ = [
    "CANCEL_LIMIT",
    "MAX_TRIES",
    "MOVES",
    "NODE_LIST_FIELDS",
    "PRIORITY_FIELDS",
    "RESERVATION_PREFIX",
    "CommandStatus",
    "Facts",
    "Observation",
    "Operation",
    "OperationOutcome",
    "OperationSettings",
    "admissions",
    "advance",
    "changes_request",
    "goes_first",
    "jobs_to_query",
    "request_fields",
    "reservation_name",
    "to_be_ranked",
    "urgent",
]
