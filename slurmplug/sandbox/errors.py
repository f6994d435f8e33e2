"""What can go wrong with a sandbox; every message says what to do next."""

from slurmplug.errors import SandboxError


class NotInstalled(SandboxError):
    """A program or an account that Debian's packages bring is missing."""


class StartFailed(SandboxError):
    """A daemon ended or did not answer in time; the message names its log."""


class CommandFailed(SandboxError):
    """A client command of Slurm ended with an error."""


class WaitTimeout(SandboxError):
    """What was waited for did not come about in time."""
