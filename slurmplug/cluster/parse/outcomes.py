"""What Slurm's answer to a command says about its outcome."""

import re
from collections.abc import Sequence

from slurmplug.cluster.port import Command, Outcome, Status

MESSAGE_LENGTH = 500
"""characters that are kept of a message"""
_NO_ANSWER = re.compile(
    r"unable to contact|connection|not connected|timed out|unexpected message|zero bytes|standby|unavailable",
    re.IGNORECASE,
)
"""Answers that leave open whether a command was done. scontrol prints `Unexpected message` where it got none."""
_PUT_OFF = re.compile(r"DB index is being set", re.IGNORECASE)
"""Slurm updates no job while it waits for slurmdbd to record it, and says so after 5 s (ESLURM_JOB_SETTING_DB_INX)."""
_ELEMENTS = re.compile(r"[0-9]+_\[?([0-9,:-]+)(\.\.\.)?\]?(?:: (.*))?")
"""The address of elements of an array, or Slurm's message on some: their tasks, whether these are cut, the message."""


def outcome(command: Command, address: str, complaint: str | None, rest: str) -> Outcome:
    """The outcome of a command.

    `complaint` is what Slurm printed about it, None where it was not processed; then `rest` is what was printed last.
    """
    if complaint is None:
        return Outcome(command.id, "unknown", rest.strip()[:MESSAGE_LENGTH] or "Slurm did not answer in time")
    message = complaint.strip()
    if not message:
        return Outcome(command.id, "done")
    lines = [_ELEMENTS.fullmatch(line) for line in message.splitlines()]
    if all(lines) and (elements := _ELEMENTS.fullmatch(address)):
        status = _array_status([line for line in lines if line], _count_tasks(elements[1]))
    else:
        status = _status(message)
    return Outcome(command.id, status, message[:MESSAGE_LENGTH])


def _status(message: str) -> Status:
    """The status of a command about which Slurm printed this."""
    if _PUT_OFF.search(message):
        return "put off"
    return "unknown" if _NO_ANSWER.search(message) else "refused"


def _array_status(messages: Sequence[re.Match[str]], addressed: int) -> Status:
    """The status of a command to `addressed` elements of an array: done where it was done to one of them.

    Some may have ended since the queue was read. About those for which the command succeeded, 22.05 prints `No error`
    and 24.11 nothing. Where the list of tasks in a message is cut, it is not known.
    """
    if any(line[3] == "No error" for line in messages):
        return "done"
    if any(line[2] for line in messages):
        return "unknown"
    return "done" if sum(_count_tasks(line[1]) for line in messages) < addressed else "refused"


def _count_tasks(tasks: str) -> int:
    """The number of tasks in `0-2,7,10-20:5`."""
    return sum(
        len(range(int(low), int(high or low) + 1, int(step or 1)))
        for low, high, step in re.findall(r"([0-9]+)(?:-([0-9]+))?(?::([0-9]+))?", tasks)
    )
