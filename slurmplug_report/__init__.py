"""What a training job imports: reports its progress, and is told when to stop or to save. Standard library only."""

from slurmplug_report.report import checkpoint_requested, report

__all__ = ["checkpoint_requested", "report"]
