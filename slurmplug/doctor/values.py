"""What is read of a site to be checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmplug.cluster.pyslurm_process import Proof
from slurmplug.config.schema import Config


@dataclass(frozen=True)
class PathStatus:
    """A folder's owner, mode, access and file system; `problem`: why it cannot be read, `free`: bytes free on it."""

    path: str
    problem: str = ""
    owner: int = -1
    group: int = -1
    mode: int = 0
    readable: bool = False
    """whether this process' user can list and enter it"""
    writable: bool = False
    file_system: str = ""
    exported: bool = False
    """whether this machine's NFS server exports it"""
    free: int = 0
    answers: bool = True
    """False: its file system hangs, and nothing of it is known"""


@dataclass(frozen=True)
class Facts:
    """What was read of the site. `read_errors`: by what was read (`Slurm`, `accounting`), why it failed.

    `clock_offset`: slurmctld's clock less this machine's in seconds, the value nearest to 0 that the answer allows;
    None if slurmctld did not report it. `other_nodes`: the number of nodes' machines other than this one.
    """

    config: Config
    user: str
    uid: int
    gid: int
    host: str
    settings: Mapping[str, str]
    clock_offset: float | None
    admin_level: str
    other_nodes: int
    spool: PathStatus
    reports: PathStatus
    requests: PathStatus
    ledger: PathStatus
    ledger_mode: int | None = None
    """the mode of the ledger's file, without others' rights if no others can reach it; None if it cannot be read"""
    shared: PathStatus | None = None
    """`takeover.folder`"""
    read_errors: Mapping[str, str] = field(default_factory=dict)
    pyslurm: Proof | None = None
    """what became of a trial of pyslurm; None where there was none"""
    identity: str = ""
    """`Site.identity` of the slurmctld that answered"""
    siblings: tuple[str, ...] = ()
    """the other clusters of the federation that this one is a member of"""
    mail_problem: str = ""
    """why no mail can be sent to users, where the configuration has any sent"""
