"""Starting a sandbox: its configuration, the commands of its daemons, and the order that starts them quickly."""

import os
import secrets
import signal
import subprocess
from pathlib import Path

from slurmplug.sandbox import processes, render
from slurmplug.sandbox.accounts import MARIADB, MUNGE, SLURM, run_as, search_path, set_owner
from slurmplug.sandbox.daemons import Daemons
from slurmplug.sandbox.errors import StartFailed
from slurmplug.sandbox.layout import Layout
from slurmplug.sandbox.processes import DaemonCommand
from slurmplug.sandbox.render import Ports
from slurmplug.sandbox.spec import ClusterSpec


def prepare(spec: ClusterSpec, layout: Layout, ports: Ports) -> Daemons:
    """Write everything that a cluster needs into an empty folder; nothing is started yet."""
    cluster = f"sandbox_{secrets.token_hex(3)}"
    layout.make(spec)
    _configure(spec, layout, cluster, ports)
    return Daemons(layout, cluster, _daemon_commands(spec, layout, ports))


def start(spec: ClusterSpec, layout: Layout, daemons: Daemons) -> None:
    """Start every daemon; returns when all answer. Where this raises, the caller ends those that have started."""
    daemons.spawn("munged")
    _install_database(spec, layout)
    daemons.spawn("mariadbd")
    daemons.await_ready("munged", "mariadbd")
    daemons.spawn("slurmdbd")
    daemons.await_ready("slurmdbd")
    _load_accounts(spec, layout, daemons.cluster)  # before slurmctld, which enforces associations
    daemons.spawn("slurmctld")
    daemons.await_ready("slurmctld")
    for name in spec.node_names:
        daemons.spawn(name)
    daemons.await_ready(*spec.node_names)


def _configure(spec: ClusterSpec, layout: Layout, cluster: str, ports: Ports) -> None:
    password = secrets.token_hex(16)
    etc = layout.slurm_conf.parent
    texts = {
        "slurm.conf": render.slurm_conf(spec, layout, cluster, ports),
        "gres.conf": render.gres_conf(spec, layout),
        "cgroup.conf": render.cgroup_conf(slurm_version(spec.slurm)),
        "job_submit.lua": spec.job_submit.read_text() if spec.job_submit else "",
    }
    for name, text in texts.items():
        if text:
            (etc / name).write_text(text)
            (etc / name).chmod(0o644)
    _write_secret(etc / "slurmdbd.conf", render.slurmdbd_conf(layout, cluster, ports, password), SLURM)
    _write_secret(etc / "database.sql", render.database_sql(cluster, password), MARIADB)


def _write_secret(path: Path, text: str, account: str) -> None:
    path.touch(0o600)
    path.write_text(text)
    set_owner(path, account, 0o600)


def slurm_version(slurm: Path | None) -> tuple[int, int]:
    """The release, as (22, 5), of the Slurm below a prefix or of the system's; `slurmctld -V`: "slurm-wlm 22.05.8"."""
    answer = subprocess.run(
        ["slurmctld", "-V"], env={"PATH": search_path(slurm)}, capture_output=True, text=True, check=True, timeout=10
    ).stdout
    year, month = answer.split()[1].split(".")[:2]
    return int(year), int(month)


def _daemon_commands(spec: ClusterSpec, layout: Layout, ports: Ports) -> dict[str, DaemonCommand]:
    env = _env(spec, layout)
    munge = layout.munge_key.parent
    return {
        "munged": DaemonCommand(
            MUNGE,
            (
                "munged",
                "--foreground",
                f"--key-file={layout.munge_key}",
                f"--socket={layout.munge_socket}",
                f"--pid-file={munge}/pid",
                f"--seed-file={munge}/seed",
                "--num-threads=4",
            ),
            env,
            str(layout.munge_socket),
        ),
        "mariadbd": DaemonCommand(
            MARIADB,
            (
                "mariadbd",
                *render.mariadb_options(layout),
                "--bind-address=127.0.0.1",
                f"--port={ports.mariadbd}",
                f"--socket={layout.database}/socket",
                f"--pid-file={layout.database}/pid",
                f"--init-file={layout.slurm_conf.parent}/database.sql",
            ),
            env,
            ports.mariadbd,
        ),
        "slurmdbd": DaemonCommand(SLURM, ("slurmdbd", "-D"), env, ports.slurmdbd),
        # -i: 26.05 does not start again after it was killed before it had written every file of its state.
        # It also listens before it has read its configuration, so a probe is needed.
        "slurmctld": DaemonCommand(SLURM, ("slurmctld", "-D", "-i"), env, ports.slurmctld, ("scontrol", "ping")),
        **{
            name: DaemonCommand("root", ("slurmd", "-D", "-N", name), env, port)
            for name, port in zip(spec.node_names, ports.nodes, strict=True)
        },
    }


def _install_database(spec: ClusterSpec, layout: Layout) -> None:
    argv = (
        "mariadb-install-db",
        *render.mariadb_options(layout),
        "--skip-test-db",
        "--auth-root-authentication-method=socket",
    )
    log = layout.logs / "mariadb-install-db.out"
    install = processes.spawn(MARIADB, argv, _env(spec, layout), log)
    try:
        status = install.wait(60)
    except subprocess.TimeoutExpired as error:
        raise StartFailed(f"mariadb-install-db did not end within 60 s; see {log}") from error
    finally:
        if install.poll() is None:
            os.killpg(install.pid, signal.SIGKILL)
            install.wait()
    if status != 0:
        raise StartFailed(f"mariadb-install-db ended with status {status}; see {log}")


def _load_accounts(spec: ClusterSpec, layout: Layout, cluster: str) -> None:
    """Register the accounts. `load` takes a third of the time of single `add`s."""
    accounting = layout.slurm_conf.parent / "accounting.cfg"
    accounting.write_text(render.accounting(cluster))
    argv = ["sacctmgr", "-i", "load", str(accounting)]
    answer = run_as("root", argv, env=_env(spec, layout), cwd=layout.folder)
    (layout.logs / "sacctmgr.out").write_text(answer.stdout + answer.stderr)
    if answer.returncode != 0:
        raise StartFailed(f"sacctmgr could not register the cluster; logs in {layout.logs}: {answer.stderr.strip()}")


def _env(spec: ClusterSpec, layout: Layout) -> dict[str, str]:
    return {"PATH": search_path(spec.slurm), "LC_ALL": "C", "SLURM_CONF": str(layout.slurm_conf)}
