"""The SiteFactor of a job as slurmplug knows it, and what a comparison with Slurm's tells about who set it. Pure."""

from typing import NamedTuple

NAN = float("nan")


class SiteFactor(NamedTuple):
    """The SiteFactor in place, and how that is known.

    value: NaN where not known. compared: what the last comparison showed, NaN before the first. booted: the start of
    the slurmctld (`Site.booted`) that confirmed the value, by the outcome of a write or by a comparison; NaN where
    none did. by_others: whether somebody else set it, so that slurmplug leaves it alone.
    """

    value: float = 0.0
    compared: float = NAN
    booted: float = NAN
    by_others: bool = False


def after_comparison(known: SiteFactor, in_slurm: float, booted: float) -> SiteFactor:
    """What is known of a SiteFactor that Slurm shows as `in_slurm`, whose slurmctld started at `booted`.

    Somebody else set it if this slurmctld confirmed another one and it is not what the last comparison showed. Where
    slurmctld was started again, or the write never showed, the value is gone: it is what Slurm has, and may be
    written again. One that somebody else set stays theirs until they set it to 0.
    """
    if known.by_others:
        returned = in_slurm == 0 != known.value
        return SiteFactor(in_slurm, in_slurm, booted, by_others=not returned)
    confirmed = known.booted == booted and known.value == known.value
    by_others = confirmed and in_slurm not in (known.value, known.compared)
    return SiteFactor(in_slurm, in_slurm, booted, by_others)


def surplus_of_change(value: float, own_before: float, own: float, *, elsewhere: bool) -> float:
    """What is to be taken off a SiteFactor of `value` after a change of its job's request, so that no place is had with
    one request and used with another.

    own_before, own: Slurm's priority without the SiteFactor, before and after the change; NaN where not known.
    elsewhere: whether the job is now in other partitions or another QOS, where it brings its own place alone.
    """
    if value != value or value == 0:
        return 0.0
    rise = own - own_before
    if elsewhere or rise != rise:
        return max(value, 0.0)
    return max(rise if value < 0 else min(rise, value), 0.0)


def after_write(known: SiteFactor, value: float, booted: float) -> SiteFactor:
    """What is known after slurmplug wrote `value` (NaN: the outcome is not known) to the slurmctld of `booted`."""
    return SiteFactor(value, known.compared, booted)
