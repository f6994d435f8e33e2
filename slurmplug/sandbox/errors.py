"""The errors of a sandbox; every message says what to do next."""

from slurmplug.errors import SandboxError


class NotInstalled(SandboxError):
    """A program or an account of Debian's packages is missing."""


class StartFailed(SandboxError):
    """A daemon ended or did not answer in time; the message names its log."""


class CommandFailed(SandboxError):
    """A command of a user ended with an error."""


class WaitTimeout(SandboxError):
    """What was waited for did not happen in time."""
