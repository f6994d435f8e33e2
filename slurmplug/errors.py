"""What can go wrong, each with what to do about it in its message."""


class SlurmplugError(Exception):
    """The base of every error that slurmplug raises on purpose."""


class ReadFailed(SlurmplugError):
    """Slurm or the spool could not be read: nothing is known, which is not an empty queue."""


class ConfigError(SlurmplugError):
    """The configuration is not valid."""


class LedgerError(SlurmplugError):
    """The ledger cannot be read or written."""


class AlreadyRunning(SlurmplugError):
    """Another daemon serves this cluster."""


class SandboxError(SlurmplugError):
    """The throwaway cluster could not be started or reached."""


class UsageError(SlurmplugError):
    """Options or arguments of a command that cannot be used together, or at all."""


class DataError(SlurmplugError):
    """A file of data cannot be read, or something in it makes no sense."""


class EndpointError(SlurmplugError):
    """The daemon's endpoint does not answer, or refuses."""


class SteppedDown(SlurmplugError):
    """Another daemon acts now, so this one may not."""


class NotConfirmed(SlurmplugError):
    """Whether another daemon acts is not known at the moment, so nothing is done."""
