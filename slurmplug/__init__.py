"""slurmplug, as a training job sees it: the standard library and nothing else is imported here."""

from slurmplug_report.report import checkpoint_requested, report

__all__ = ["checkpoint_requested", "report"]
