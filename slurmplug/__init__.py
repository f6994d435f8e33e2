"""slurmplug, as a training job sees it: `report` and `checkpoint_requested` of `slurmplug_report`, loaded when they are
asked for, as slurmplug's own commands do without."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmplug_report import Stop, checkpoint_requested, report

__all__ = ["Stop", "checkpoint_requested", "report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'slurmplug' has no attribute {name!r}")
    import slurmplug_report  # noqa: PLC0415

    return getattr(slurmplug_report, name)
