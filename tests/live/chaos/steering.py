"""What leads the daemon to the places that are left, which chance alone reaches too seldom."""

import json
from collections.abc import Collection
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from slurmplug.ledger.ledger import Ledger
from slurmplug.sandbox.errors import CommandFailed

if TYPE_CHECKING:
    from tests.live.chaos.run import Chaos

RESTARTS = ("resize", "migrate", "preempt")
LIFTS = 0.05
"""the chance, at a look, that an operator requeues a job whose node list is to be restored"""


def steer(chaos: "Chaos", places: Collection[str]) -> None:
    """Tell the policy, by the file `steer`, which kinds of moves are wanted, and what of which job.

    A migration of which only node lists remain (`bound`) is followed by `lift` once somebody requeues the job. A resize
    or a preemption comes there where the job was migrated before, and the preemption where it then does not save.
    """
    wanted = {tuple(place.split()[:2]) for place in places}
    kinds = {kind for kind, _ in wanted if kind in RESTARTS}
    seconds = sorted({kind for kind, step in wanted if kind in ("resize", "preempt") and step in ("bound", "lift")})
    moved = _moved(chaos)
    jobs: dict[int, str] = {}
    if seconds:
        kinds |= {"migrate"}
        jobs = {job: chaos.draw.choice(seconds) for job, (kind, _) in moved.items() if kind == "migrate"}
        for job, kind in jobs.items():
            deaf = chaos.cluster.home(moved[job][1]) / f"chaos-{job}.deaf"
            deaf.touch() if kind == "preempt" else deaf.unlink(missing_ok=True)
    for job, (kind, _) in moved.items():
        if (kind, "lift") in wanted and chaos.draw.random() < LIFTS:
            with suppress(CommandFailed):  # it has ended, or is pending
                chaos.cluster.run("root", ["scontrol", "requeue", str(job)])
    new = chaos.folder / "steer.new"
    new.write_text(json.dumps({"kinds": sorted(kinds), "jobs": jobs}))
    new.chmod(0o644)
    new.replace(chaos.folder / "steer")


def _moved(chaos: "Chaos") -> dict[int, tuple[str, str]]:
    """By job id, the kind of the operation of which only node lists remain, and the user."""
    if not chaos.ledger.exists():
        return {}
    with closing(Ledger(chaos.ledger, readonly=True)) as ledger:
        rows = ledger.query(
            "SELECT job_id, kind, user FROM operations JOIN jobs ON jobs.id = job WHERE step = 'bound' AND ended = 0"
        )
    return {int(row["job_id"]): (row["kind"], row["user"]) for row in rows}
