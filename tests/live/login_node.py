"""A host without the ledger: its commands ask the endpoint of a daemon."""

import socket
from pathlib import Path
from subprocess import CompletedProcess

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import SLURMPLUG


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class LoginNode:
    """A configuration without a ledger, and commands with it.

    `config`: that configuration. `listen`: the settings by which a daemon answers it; keys of [endpoint] may follow.
    """

    def __init__(self, cluster: Sandbox) -> None:
        self._cluster = cluster
        port, layout = free_port(), cluster.layout
        section = f'[endpoint]\nurl = "http://127.0.0.1:{port}"\nmunge_socket = "{layout.munge_socket}"\n'
        self.listen = f'{section}listen = "127.0.0.1:{port}"\n'
        self.config: Path = cluster.folder / "login.toml"
        slurm = f'[slurm]\nconf = "{layout.slurm_conf}"\n'
        self.config.write_text(f'[ledger]\npath = "/nowhere/ledger.db"\n{slurm}{section}')
        self.config.chmod(0o644)

    def ask(self, user: str, *arguments: str) -> CompletedProcess[str]:
        """Run `slurmplug` as a user."""
        env = {"SLURMPLUG_CONFIG": str(self.config)}
        return self._cluster.run(user, [SLURMPLUG, *arguments], env=env, check=False)
