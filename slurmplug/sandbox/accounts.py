"""The system accounts a sandbox uses, and what they can reach. None is created.

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
_PACKAGES = "slurmctld slurmd slurm-client slurmdbd slurm-wlm-mysql-plugin mariadb-server munge"
_SOCKET_PATH_LIMIT = 60  # sun_path holds 108 bytes; slurmstepd's sockets add a node, a job and a step to the folder


def require_installed() -> None:
    """Raise NotInstalled, naming the packages, unless every program and account is there; SandboxError unless root."""
    missing = {package for name, package in _PROGRAMS.items() if shutil.which(name, path=SYSTEM_PATH) is None}
    if not any(Path("/usr/lib").glob("*/slurm*/accounting_storage_mysql.so")):
        missing.add("slurm-wlm-mysql-plugin")
    if missing:
        raise NotInstalled(f"{', '.join(sorted(missing))} not installed; run: apt-get install {_PACKAGES}")
    known = {entry.pw_name for entry in pwd.getpwall()}
    if absent := [name for name in ACCOUNTS if name not in known]:
        raise NotInstalled(f"no account {', '.join(absent)}; run: apt-get install --reinstall base-passwd {_PACKAGES}")
    if os.geteuid() != 0:
        raise SandboxError("a sandbox runs jobs of several users and needs root; run it with sudo")


def run_as(
    account: str, argv: list[str], *, env: Mapping[str, str], cwd: Path, stdin: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command as an account, with its own group and no supplementary ones; undecodable bytes survive."""
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
    """Tell whether an account can read a file, or enter and list a folder, through every folder above it.

    An interpreter below /root, for one, is not reachable for anyone but root.
    """
    rights = ["-r", "-x"] if path.is_dir() else ["-r"]
    return all(
        run_as(account, ["test", right, str(path)], env={"PATH": SYSTEM_PATH}, cwd=Path("/")).returncode == 0
        for right in rights
    )


def claim_folder(wished: Path | None) -> Path:
    """Make the folder for a sandbox's state: the wished one if every account can reach it, else a fresh temporary one.

    In the latter case the wished path becomes a link to it. Raises SandboxError if the wished path is in use.
    """
    if wished is None:
        return _temporary_folder()
    wished = wished.absolute()
    if wished.is_symlink() and not wished.exists():
        wished.unlink()
    if wished.is_symlink() or (wished.exists() and any(wished.iterdir())):
        raise SandboxError(f"{wished} is in use; run `slurmplug sandbox down {wished}` or choose another folder")
    wished.parent.mkdir(parents=True, exist_ok=True)
    if len(str(wished)) <= _SOCKET_PATH_LIMIT and all(reachable(account, wished.parent) for account in ACCOUNTS):
        wished.mkdir(exist_ok=True)
        wished.chmod(0o755)
        return wished
    if wished.exists():
        wished.rmdir()
    folder = _temporary_folder()
    wished.symlink_to(folder)
    return folder


def _temporary_folder() -> Path:
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if len(parent) < _SOCKET_PATH_LIMIT // 2 and all(reachable(account, Path(parent)) for account in ACCOUNTS):
            folder = Path(tempfile.mkdtemp(prefix="slurmplug-", dir=parent))
            folder.chmod(0o755)
            return folder
    raise SandboxError("neither $TMPDIR nor /tmp nor /var/tmp can be entered by all users; set TMPDIR to one that can")


def own(path: Path, account: str, mode: int) -> None:
    """Give a path to an account and its group."""
    entry = pwd.getpwnam(account)
    os.chown(path, entry.pw_uid, entry.pw_gid)
    path.chmod(mode)
