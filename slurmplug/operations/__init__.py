"""What outlives a cycle: an allowed action, carried out step by step.

Pure. Each cycle `advance` looks at what the snapshot shows of an open operation and says the next command. A command
whose outcome is not `done` is said again, so a crash between two lines is only another snapshot.
"""

from slurmplug.operations.advance import MOVES, admissions, advance, questions, urgent
from slurmplug.operations.values import (
    BINDING,
    CANCEL_LIMIT,
    RESERVATION,
    TRIES,
    Operation,
    Settings,
    Sight,
    Told,
    reservation,
)

__all__ = [
    "BINDING",
    "CANCEL_LIMIT",
    "MOVES",
    "RESERVATION",
    "TRIES",
    "Operation",
    "Settings",
    "Sight",
    "Told",
    "admissions",
    "advance",
    "questions",
    "reservation",
    "urgent",
]
