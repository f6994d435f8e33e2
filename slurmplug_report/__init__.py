"""For import in training jobs: `report()` progress and ask `checkpoint_requested()`. Standard library, Python 3.8."""

from slurmplug_report.report import checkpoint_on_signal, checkpoint_requested, report
from slurmplug_report.stop import Stop

__all__ = ["Stop", "checkpoint_on_signal", "checkpoint_requested", "report"]
