"""How many jobs backfill tries of a user, a partition or an association, and how many it starts, in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

from slurmplug.sim.slurm.queue import Pending


@dataclass(frozen=True)
class BackfillLimits:
    """SchedulerParameters' bf_max_job_user, bf_max_job_part, bf_max_job_user_part, bf_max_job_assoc (in whose place the
    first does not count) and bf_max_job_start; 0 for any number."""

    of_user: int = 0
    of_partition: int = 0
    of_user_in_partition: int = 0
    of_association: int = 0
    starts: int = 0

    def tried(self, pending: Pending, rows: Sequence[int], most: int) -> list[int]:
        """Those of these jobs that backfill tries; others count in `most` (bf_max_job_test), too."""
        if not any((self.of_user, self.of_partition, self.of_user_in_partition, self.of_association)):
            return list(rows)
        found, counts = [], dict[tuple[str, ...], int]()
        for row in rows[:most]:
            user, partition = str(pending.user[row]), str(pending.partition[row])
            association = ("association", str(pending.account[row]), user)
            limits = (
                (self.of_user_in_partition, ("user in partition", user, partition)),
                (self.of_partition, ("partition", partition)),
                (self.of_association, association),
                (0 if self.of_association else self.of_user, ("user", user)),
            )
            limited = [(at_most, of) for at_most, of in limits if at_most]
            if all(counts.get(of, 0) < at_most for at_most, of in limited):
                found.append(row)
                counts |= {of: counts.get(of, 0) + 1 for _, of in limited}
        return found
