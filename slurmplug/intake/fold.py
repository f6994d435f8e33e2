"""What is found while a reading is absorbed."""

from dataclasses import dataclass, field

from policies.snapshot import JobKey
from slurmplug.cluster.port import Reading
from slurmplug.intake.job_record import Changes, JobRecord, Point
from slurmplug.spool.values import SpoolFault


@dataclass
class Fold:
    """A reading that is being absorbed, and the changes found in it so far."""

    reading: Reading
    touched: dict[JobKey, JobRecord] = field(default_factory=dict)
    unread: list[JobRecord] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    faults: list[SpoolFault] = field(default_factory=list)

    def touch(self, record: JobRecord) -> None:
        """Note that the ledger has to store the record's row again."""
        self.touched[record.key] = record

    def changes(self) -> Changes:
        """What the ledger has to store."""
        return Changes(
            now=self.reading.now,
            records=tuple(self.touched.values()),
            points=tuple(self.points),
            faults=(*self.reading.faults, *self.faults),
        )
