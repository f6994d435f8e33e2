"""The paths of a sandbox, all in one folder, and their owners."""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from slurmplug.errors import SandboxError
from slurmplug.sandbox.accounts import MARIADB, MUNGE, OPERATOR, RESEARCHERS, SLURM, set_owner
from slurmplug.sandbox.spec import ClusterSpec

_NULL_DEVICE = os.makedev(1, 3)


@dataclass(frozen=True)
class Layout:
    """The paths in the folder of a sandbox."""

    folder: Path

    @property
    def state(self) -> Path:
        """The file by which other processes find the daemons."""
        return self.folder / "sandbox.json"

    @property
    def logs(self) -> Path:
        """The folder with the logs of the daemons."""
        return self.folder / "log"

    @property
    def slurm_conf(self) -> Path:
        """slurm.conf; the other configuration files are beside it."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def database(self) -> Path:
        """The data folder of MariaDB."""
        return self.folder / "db"

    @property
    def database_scratch(self) -> Path:
        """The folder for MariaDB's temporary files."""
        return self.folder / "db-tmp"

    @property
    def munge_socket(self) -> Path:
        """The socket of munged."""
        return self.folder / "munge" / "socket"

    @property
    def munge_key(self) -> Path:
        """The key of munged."""
        return self.folder / "munge" / "key"

    @property
    def devices(self) -> Path:
        """The folder with the device files of the fake GPUs."""
        return self.folder / "dev"

    @property
    def spool(self) -> Path:
        """The spool of slurmplug, with `reports` and `requests`."""
        return self.folder / "spool"

    def home(self, account: str) -> Path:
        """The home of an account in the sandbox."""
        return self.folder / "home" / account

    def make(self, spec: ClusterSpec) -> None:
        """Make the folders, a munge key and the fake GPUs (each a null device of its own)."""
        for name, account, mode in (
            ("etc", "root", 0o755),
            ("log", SLURM, 0o755),
            ("munge", MUNGE, 0o755),
            ("db", MARIADB, 0o700),
            ("db-tmp", MARIADB, 0o700),
            ("run", SLURM, 0o755),
            ("state", SLURM, 0o700),
            ("nodes", "root", 0o755),
            ("dev", "root", 0o755),
            ("home", "root", 0o755),
            ("spool", OPERATOR, 0o755),
            ("spool/requests", OPERATOR, 0o711),
            # Anyone may add a report and nobody may list or remove another's; new files get the daemon's group.
            ("spool/reports", OPERATOR, 0o3773),
            *((f"home/{account}", account, 0o750) for account in (*RESEARCHERS, OPERATOR, SLURM, "root")),
        ):
            path = self.folder / name
            path.mkdir()
            set_owner(path, account, mode)
        self.munge_key.touch(0o600)
        self.munge_key.write_bytes(os.urandom(128))
        set_owner(self.munge_key, MUNGE, 0o600)
        try:
            for index in range(max(sum(node.gpus_by_type.values()) for node in spec.nodes)):
                os.mknod(self.devices / f"nvidia{index}", stat.S_IFCHR | 0o666, _NULL_DEVICE)
        except PermissionError as error:
            raise SandboxError(
                "no device nodes for the fake GPUs can be made here; give the container MKNOD"
            ) from error

    def remove_bulk(self) -> None:
        """Remove what is of no use for the analysis of a failure."""
        for name in ("db", "db-tmp", "dev", "munge", "nodes", "run", "state"):
            if (path := self.folder / name).exists():
                shutil.rmtree(path)
