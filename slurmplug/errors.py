"""The errors that slurmplug raises; each message says what to do about it."""


class SlurmplugError(Exception):
    """The base of every error that slurmplug raises on purpose."""


class ReadFailed(SlurmplugError):
    """Slurm or the spool could not be read; that is not the same as an empty queue."""


class ConfigError(SlurmplugError):
    """The configuration is not valid."""


class LedgerError(SlurmplugError):
    """The ledger cannot be read or written."""


class AlreadyRunning(SlurmplugError):
    """Another daemon is serving this cluster."""


class SandboxError(SlurmplugError):
    """The throwaway cluster could not be started or reached."""


class UsageError(SlurmplugError):
    """Options or arguments of a command that cannot be used together, or at all."""


class DataError(SlurmplugError):
    """A file of data cannot be read, or its content is not valid."""


class EndpointError(SlurmplugError):
    """The daemon's endpoint does not answer, or refuses the request."""


class SteppedDown(SlurmplugError):
    """Another daemon holds the lease, so this one may not act."""


class NotConfirmed(SlurmplugError):
    """Whether another daemon acts is not known at the moment, so nothing is done."""
