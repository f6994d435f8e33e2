"""slurmplug, as a training job sees it: the standard library and nothing else is imported here."""

from slurmplug_report.report import checkpoint_requested, report
from slurmplug_report.stop import Stop

__all__ = ["Stop", "checkpoint_requested", "report"]
