"""What may be done at a site, when slurmctld is started again or reconfigured."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slurmplug.cluster.parse.site import identity
from slurmplug.cluster.parse.site import site as parsed
from slurmplug.config.schema import Config
from slurmplug.daemon.site import BLOCKED, Examined, SiteExamination
from slurmplug.errors import LedgerError
from slurmplug.ledger.ledger import Ledger
from slurmplug.processes import background
from tests.fake_cluster import SITE

DATA = Path(__file__).parents[2] / "data"
CONFIG = Config.from_table({"mode": {"default": "act"}})
FIRST, SECOND = replace(SITE, identity="first"), replace(SITE, identity="second")


class Slurm:
    """The site that an examination finds: the identity that slurmctld has now, and what is blocked there."""

    def __init__(self) -> None:
        self.identity, self.count = "first", 0
        self.blocked: Mapping[str, str] = {}
        self.go = threading.Event()
        self.go.set()

    def examine(self, _: Config, __: object) -> Examined:
        self.go.wait(60)
        self.count += 1
        return Examined(self.identity, self.blocked)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with closing(Ledger(None)) as one:
        yield one


def modes(config: Config) -> tuple[str, str]:
    return config.mode.of("rank"), config.mode.of("stop")


def test_a_site_is_examined_again_after_each_start_and_configuration_before_anything_is_done(ledger: Ledger) -> None:
    slurm = Slurm()
    site = SiteExamination(CONFIG, ledger, examine=slurm.examine)
    assert modes(site.in_force(FIRST)) == modes(site.in_force(FIRST)) == ("act", "act")
    assert slurm.count == 1
    slurm.identity, slurm.blocked = "second", {"rank": "priority/basic does not use the SiteFactor"}
    assert modes(site.in_force(SECOND)) == ("observe", "act")
    assert ledger.control(BLOCKED) == "priority/basic does not use the SiteFactor"
    slurm.identity, slurm.blocked = "first", {}
    assert modes(site.in_force(FIRST)) == ("act", "act")
    assert ledger.control(BLOCKED) is None


def test_until_it_has_been_examined_everything_is_observed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm()
    site = SiteExamination(CONFIG, ledger, examine=slurm.examine)
    site.in_force(FIRST)
    monkeypatch.setattr(background, "WAIT", 0.0)
    slurm.go.clear()
    assert modes(site.in_force(SECOND)) == modes(site.in_force(SECOND)) == ("observe", "observe")
    slurm.identity = "second"
    slurm.go.set()
    while modes(site.in_force(SECOND)) != ("act", "act"):
        pass
    assert slurm.count == 2


def test_a_new_configuration_counts_at_once_with_what_is_blocked(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Slurm()
    slurm.blocked = {"stop": "the requests folder cannot be written"}
    site = SiteExamination(Config(), ledger, examine=slurm.examine)
    site.in_force(FIRST)
    monkeypatch.setattr(background, "WAIT", 0.0)
    slurm.go.clear()
    assert modes(site.use(CONFIG)) == modes(site.in_force(FIRST)) == ("act", "observe")
    slurm.go.set()


def test_what_cannot_be_noted_is_examined_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm()
    slurm.blocked = {"rank": "basic"}
    site = SiteExamination(CONFIG, ledger, examine=slurm.examine)
    with monkeypatch.context() as full:
        full.setattr(ledger, "set_control", lambda *_: (_ for _ in ()).throw(LedgerError("full")))
        with pytest.raises(LedgerError):
            site.in_force(FIRST)
    assert modes(site.in_force(FIRST)) == ("observe", "act")
    assert ledger.control(BLOCKED) == "basic"


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_a_site_is_known_by_its_start_and_settings_and_by_nothing_that_passes(release: str) -> None:
    text = (DATA / f"slurm-{release}" / "config.txt").read_text()
    assert parsed(text).identity == identity(text)
    later = text.replace("as of 17", "as of 18").replace("NEXT_JOB_ID             = 25", "NEXT_JOB_ID = 26")
    later = later.replace(" is UP", " is DOWN")
    assert later != text
    assert identity(later) == identity(text)
    for setting in ("BOOT_TIME  ", "PriorityType  ", "SchedulerParameters  "):
        assert identity(text.replace(setting, setting + "x")) != identity(text)
