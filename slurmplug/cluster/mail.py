"""Mail to users by the program that Slurm itself sends it with: MailProg and MailDomain of slurm.conf(5)."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from slurmplug.cluster.programs import last_words

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]{0,127}")
_NONE = ("", "(null)")


class MailFailed(Exception):
    """Why a mail was not sent."""


class MailNotKnown(MailFailed):
    """Why it is not known whether a mail was sent."""


class Mailer:
    """Sends mail as Slurm does: `MailProg -s SUBJECT ADDRESS`, the text on standard input."""

    def __init__(self, slurm_conf: Mapping[str, str], timeout: float) -> None:
        """slurm_conf: its settings. timeout: seconds that each mail may take."""
        self._program = slurm_conf.get("MailProg", "")
        domain = slurm_conf.get("MailDomain", "")
        self._domain = "" if domain in _NONE else f"@{domain}"
        self._timeout = timeout

    @property
    def problem(self) -> str:
        """Why no mail can be sent; empty for nothing that is known."""
        if self._program in _NONE or not Path(self._program).is_absolute():
            return "slurm.conf has no MailProg"
        return "" if os.access(self._program, os.X_OK) else f"{self._program} is not there, or not executable"

    def send(self, user: str, subject: str, text: str) -> None:
        """Raises MailFailed, also for a user whose name could be taken for something else, and MailNotKnown where the
        program was ended before it was done."""
        if not _USER.fullmatch(user):
            raise MailFailed(f"{user!r} is not a user name to which mail can be sent")
        if problem := self.problem:
            raise MailFailed(problem)
        command = [self._program, "-s", subject, f"{user}{self._domain}"]
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=self._timeout, check=False)
        except subprocess.TimeoutExpired:
            raise MailNotKnown(f"{self._program} did not end within {self._timeout:g} s") from None
        except OSError as error:
            raise MailFailed(f"{self._program}: {error.strerror}") from error
        if done.returncode < 0:
            raise MailNotKnown(f"{self._program} was ended by signal {-done.returncode}")
        if done.returncode:
            raise MailFailed(f"{self._program} exits {done.returncode}: {last_words(done.stderr)}")
