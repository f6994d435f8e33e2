"""slurmplug, as a training job sees it: what `slurmplug_report` has, loaded when it is asked for, as slurmplug's own
commands do without."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmplug_report import Stop, checkpoint_on_signal, checkpoint_requested, report

__all__ = ["Stop", "checkpoint_on_signal", "checkpoint_requested", "report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'slurmplug' has no attribute {name!r}")
    import slurmplug_report  # noqa: PLC0415

    return getattr(slurmplug_report, name)
