"""The names of the installed policies. `policy_registry` makes them, and loads what they are made of."""

from importlib.metadata import entry_points

GROUP = "slurmplug.policies"
"""of the entry points that name policies"""


def names() -> list[str]:
    """The installed names that `policy = ` may take."""
    return sorted({point.name for point in entry_points(group=GROUP)})
