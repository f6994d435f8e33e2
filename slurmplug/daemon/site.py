"""What may be done at a site: examined beside the cycles, and again whenever slurmctld has another configuration.

What a check of the site forbids is only observed. So is everything until the site that a cycle read has been examined:
after a start of slurmctld, or a reconfiguration, nothing is written by what an earlier one allowed.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from slurmplug.cluster.port import Site
from slurmplug.config.schema import Config, Modes
from slurmplug.doctor import checks, facts
from slurmplug.ledger.ledger import Ledger
from slurmplug.processes.background import BackgroundCall

RECHECK_INTERVAL = 60.0
"""Seconds from one examination of the site to the next while a failed check blocks actions."""
BLOCKED = "hindered"
"""The ledger's control value that says which checks of the site failed, so that actions are blocked."""

log = logging.getLogger(__name__)


class Examined(NamedTuple):
    """A site's identity (`Site.identity`; empty where Slurm did not answer), and what is blocked there, and why."""

    identity: str
    blocked: Mapping[str, str]


def examine(config: Config, shared: facts.Statuses) -> Examined:
    """Examine the site now, which may take as long as Slurm's programs may."""
    found = facts.collect_facts(config, shared)
    return Examined(found.identity, checks.blocked_actions(checks.run_checks(found)))


class SiteExamination:
    """The configuration in force: the configured one, with what may not be done at the site only observed."""

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        look: Callable[[Config], facts.Statuses] = facts.statuses_in_spool,
        examine: Callable[[Config, facts.Statuses], Examined] = examine,
    ) -> None:
        """Begin the first examination.

        config: as it was configured. look: at the shared folders, under deadlines; what it does not return does not
        answer.
        """
        self._ledger, self._look, self._examine = ledger, look, examine
        self._examination: BackgroundCall[Examined] = BackgroundCall("site")
        self._known: Examined | None = None
        self.use(config)

    def use(self, config: Config) -> Config:
        """Take another configuration, and examine the site for it; what was blocked stays so until that is done."""
        self._configured = config
        self._begin()
        return self._restricted()

    def in_force(self, site: Site) -> Config:
        """The configuration for a cycle that read this site.

        Raises:
            LedgerError: what is blocked cannot be noted there
        """
        self._take()
        if not self._is_of(site):
            if not self._examination.pending:
                self._begin()
            self._take()
            if not self._is_of(site):
                log.warning("the checks of this start and configuration of slurmctld are not done yet: only observing")
                return self._configured.replaced(mode=Modes(default="observe"))
        elif self._blocked and not self._examination.pending and time.monotonic() - self._since > RECHECK_INTERVAL:
            self._begin()
        return self._restricted()

    @property
    def _blocked(self) -> Mapping[str, str]:
        return self._known.blocked if self._known else {}

    def _is_of(self, site: Site) -> bool:
        return self._known is not None and self._known.identity == site.identity

    def _restricted(self) -> Config:
        mode = checks.restrict_modes(self._configured.mode, self._blocked)
        return self._configured.replaced(mode=mode)

    def _begin(self) -> None:
        config, self._since = self._configured, time.monotonic()
        shared = self._look(config)
        self._examination.start(lambda: self._examine(config, shared))

    def _take(self) -> None:
        """Take the answer, if there is one."""
        try:
            found = self._examination.poll()
        except Exception:
            log.exception("the site could not be examined")
            return
        if found is None:
            return
        self._ledger.set_control(BLOCKED, "; ".join(found.blocked.values()) or None)
        for kind, why in found.blocked.items():
            log.error("%s: only observing: %s", kind, why)
        if self._blocked and not found.blocked:
            log.info("every check of the site passes again")
        self._known = found
