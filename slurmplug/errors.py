"""The errors that slurmplug raises; each message says what to do about it."""

import errno


class SlurmplugError(Exception):
    """The base of every error that slurmplug raises on purpose."""


class ReadFailed(SlurmplugError):
    """Slurm or the spool could not be read; that is not the same as an empty queue."""


class ConfigError(SlurmplugError):
    """The configuration is not valid."""


class LedgerError(SlurmplugError):
    """The ledger cannot be read or written."""


class LedgerDamaged(LedgerError):
    """The ledger is a readable database, but holds values that slurmplug never wrote: it was damaged or edited."""


class LedgerLost(SlurmplugError):
    """What was written to the ledger is gone: the daemon has to be restarted, and continues from what is left."""


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


_SHORTAGES = {
    errno.EMFILE: "; the daemon may open too few files: raise LimitNOFILE of its service (ulimit -n)",
    errno.ENFILE: "; this machine has too many files open: raise fs.file-max (sysctl)",
    errno.ENOMEM: "; free memory on this machine",
    errno.EAGAIN: "; the daemon may start too few threads and processes: raise TasksMax of its service (ulimit -u)",
    errno.ENOSPC: "; make room on its disk",
    errno.EDQUOT: "; raise the quota of its disk",
}


def advice(error: OSError, otherwise: str = "") -> str:
    """The end of the message of a system error: what to do about a shortage; `otherwise` for any other error."""
    return _SHORTAGES.get(error.errno or 0, otherwise)
