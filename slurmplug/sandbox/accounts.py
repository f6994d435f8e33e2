"""The system accounts that a sandbox uses, and what they can access. None is created.

`munge`, `mysql` and `slurm` come with Debian's packages. The others exist on every Debian (base-passwd) and own nothing
that a job could harm: `backup` is the account of slurmplug's daemon; `games`, `news` and `irc` are researchers.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from slurmplug.errors import SandboxError
from slurmplug.sandbox.errors import NotInstalled

MUNGE, MARIADB, SLURM = "munge", "mysql", "slurm"
OPERATOR = "backup"
RESEARCHERS = ("games", "news", "irc")
ACCOUNTS = (MUNGE, MARIADB, SLURM, OPERATOR, *RESEARCHERS)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
}
_OF_SLURM = ("sbin/slurmctld", "sbin/slurmd", "sbin/slurmdbd", "bin/sbatch", "lib/slurm/accounting_storage_mysql.so")
"""What a Slurm of the sandbox's own has below its prefix."""
_PACKAGES = "slurmctld slurmd slurm-client slurmdbd slurm-wlm-mysql-plugin mariadb-server munge"
_SOCKET_PATH_LIMIT = 60  # sun_path holds 108 bytes; slurmstepd's sockets add a node, a job and a step to the folder


def search_path(slurm: Path | None) -> str:
    """The PATH of a sandbox, with a Slurm of its own first; `slurm`: its prefix, None for the system's Slurm."""
    return f"{slurm}/sbin:{slurm}/bin:{SYSTEM_PATH}" if slurm else SYSTEM_PATH


def require_installed(slurm: Path | None = None) -> None:
    """Check that a sandbox can run here, with the Slurm below the prefix `slurm` if there is one.

    Raises:
        NotInstalled: a program or an account is missing; the message names the packages to install.
        SandboxError: this process is not root's.
    """
    if slurm and (absent := [each for each in _OF_SLURM if not (slurm / each).exists()]):
        raise NotInstalled(f"{slurm} has no {', '.join(absent)}; docs/installation.md says how to build Slurm there")
    path = search_path(slurm)
    missing = {package for name, package in _PROGRAMS.items() if shutil.which(name, path=path) is None}
    if not slurm and not any(Path("/usr/lib").glob("*/slurm*/accounting_storage_mysql.so")):
        missing.add("slurm-wlm-mysql-plugin")
    if missing:
        raise NotInstalled(f"{', '.join(sorted(missing))} not installed; run: apt-get install {_PACKAGES}")
    existing = {entry.pw_name for entry in pwd.getpwall()}
    if unknown := [name for name in ACCOUNTS if name not in existing]:
        raise NotInstalled(f"no account {', '.join(unknown)}; run: apt-get install --reinstall base-passwd {_PACKAGES}")
    if os.geteuid() != 0:
        raise SandboxError("a sandbox runs jobs of several users and needs root; run it with sudo")


def run_as(
    account: str, argv: list[str], *, env: Mapping[str, str], cwd: Path, stdin: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command as an account, with its own group and no supplementary ones, and return its output.

    Bytes that are no UTF-8 are kept by surrogateescape. Raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    entry = pwd.getpwnam(account)
    return subprocess.run(
        argv,
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        umask=0o022,
        env=dict(env),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout,
        check=False,
    )


def reachable(account: str, path: Path) -> bool:
    """Whether an account can read a file, or enter and list a folder, through every folder above it.

    An interpreter below /root, for example, is reachable for root alone.
    """
    rights = ["-r", "-x"] if path.is_dir() else ["-r"]
    return all(
        run_as(account, ["test", right, str(path)], env={"PATH": SYSTEM_PATH}, cwd=Path("/")).returncode == 0
        for right in rights
    )


def claim_folder(requested: Path | None) -> Path:
    """Make the folder for a sandbox's state: the requested one if every account can reach it, else a temporary one.

    In the latter case the requested path becomes a link to it. Raises SandboxError if the requested path is in use.
    """
    if requested is None:
        return _temporary_folder()
    requested = requested.absolute()
    if requested.is_symlink() and not requested.exists():
        requested.unlink()
    if requested.is_symlink() or (requested.exists() and any(requested.iterdir())):
        raise SandboxError(f"{requested} is in use; run `slurmplug sandbox down {requested}` or choose another folder")
    requested.parent.mkdir(parents=True, exist_ok=True)
    if len(str(requested)) <= _SOCKET_PATH_LIMIT and all(reachable(account, requested.parent) for account in ACCOUNTS):
        requested.mkdir(exist_ok=True)
        requested.chmod(0o755)
        return requested
    if requested.exists():
        requested.rmdir()
    folder = _temporary_folder()
    requested.symlink_to(folder)
    return folder


def _temporary_folder() -> Path:
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if len(parent) < _SOCKET_PATH_LIMIT // 2 and all(reachable(account, Path(parent)) for account in ACCOUNTS):
            folder = Path(tempfile.mkdtemp(prefix="slurmplug-", dir=parent))
            folder.chmod(0o755)
            return folder
    raise SandboxError("neither $TMPDIR nor /tmp nor /var/tmp can be entered by all users; set TMPDIR to one that can")


def set_owner(path: Path, account: str, mode: int) -> None:
    """Make an account and its group the owners of a path, and set its mode."""
    entry = pwd.getpwnam(account)
    os.chown(path, entry.pw_uid, entry.pw_gid)
    path.chmod(mode)
