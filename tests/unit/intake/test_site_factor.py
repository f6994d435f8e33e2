"""What a comparison with Slurm tells of a SiteFactor: in place, gone, or set by somebody else."""

import pytest

from slurmplug.intake.site_factor import NAN, SiteFactor, after_comparison, after_write, surplus_of_change

BOOT, LATER = 1000.0, 2000.0
SEEN = SiteFactor(96.0, 96.0, BOOT)
WRITTEN = SiteFactor(128.0, 96.0, BOOT)
"""and confirmed by the outcome, but not compared since"""


@pytest.mark.parametrize(
    ("known", "in_slurm", "booted", "by_others"),
    [
        (SEEN, 96.0, BOOT, False),
        (WRITTEN, 128.0, BOOT, False),
        (WRITTEN, 96.0, BOOT, False),
        (WRITTEN, 7.0, BOOT, True),
        (SEEN, 7.0, BOOT, True),
        (SEEN, 0.0, BOOT, True),
        (SEEN, 0.0, LATER, False),
        (SEEN, 64.0, LATER, False),
        (SiteFactor(NAN, 96.0, BOOT), 7.0, BOOT, False),
        (SiteFactor(0.0, NAN, BOOT), 7.0, BOOT, True),
        (SiteFactor(0.0, NAN, NAN), 7.0, BOOT, False),
    ],
    ids=[
        "in place", "in place for the first time", "never shown", "written and changed", "changed", "set to 0",
        "gone with a new boot", "an older one after a new boot", "outcome not known", "a new job changed",
        "found by a daemon that does not know the job",
    ],
)  # fmt: skip
def test_who_set_what_slurm_has(known: SiteFactor, in_slurm: float, booted: float, by_others: bool) -> None:
    assert after_comparison(known, in_slurm, booted) == SiteFactor(in_slurm, in_slurm, booted, by_others)


@pytest.mark.parametrize(
    ("theirs", "in_slurm", "by_others"),
    [(7.0, 7.0, True), (7.0, 9.0, True), (7.0, 0.0, False), (0.0, 0.0, True), (0.0, 9.0, True)],
)
@pytest.mark.parametrize("booted", [BOOT, LATER])
def test_somebody_elses_stays_theirs_until_it_is_set_to_0(
    theirs: float, in_slurm: float, by_others: bool, booted: float
) -> None:
    known = SiteFactor(theirs, theirs, BOOT, by_others=True)
    assert after_comparison(known, in_slurm, booted).by_others == by_others


def test_a_write_makes_it_slurmplugs_again() -> None:
    assert after_write(SiteFactor(7.0, 7.0, BOOT, by_others=True), 32.0, LATER) == SiteFactor(32.0, 7.0, LATER)


@pytest.mark.parametrize(
    ("value", "own_before", "own", "elsewhere", "surplus"),
    [
        (800.0, 100.0, 600.0, False, 500.0),
        (800.0, 100.0, 5100.0, False, 800.0),
        (800.0, 100.0, 50.0, False, 0.0),
        (-800.0, 900.0, 1400.0, False, 500.0),
        (-800.0, 900.0, 400.0, False, 0.0),
        (800.0, 100.0, 10100.0, True, 800.0),
        (800.0, 10100.0, 100.0, True, 800.0),
        (-800.0, 900.0, 10900.0, True, 0.0),
        (800.0, NAN, 600.0, False, 800.0),
        (0.0, 100.0, 600.0, True, 0.0),
        (NAN, 100.0, 600.0, True, 0.0),
    ],
    ids=[
        "more", "more than was gained", "less", "more, of a place given away", "less, of a place given away",
        "a higher QOS", "a lower QOS", "a higher QOS, of a place given away", "not known", "nothing in place",
        "not known what is in place",
    ],
)  # fmt: skip
def test_what_a_changed_request_adds_beside_a_site_factor(
    value: float, own_before: float, own: float, elsewhere: bool, surplus: float
) -> None:
    assert surplus_of_change(value, own_before, own, elsewhere=elsewhere) == surplus
