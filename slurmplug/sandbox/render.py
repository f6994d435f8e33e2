"""The configuration files of a sandbox: slurm.conf(5), gres.conf(5), cgroup.conf(5), slurmdbd.conf(5) and SQL."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmplug.sandbox.accounts import OPERATOR, RESEARCHERS, SLURM
from slurmplug.sandbox.layout import Layout
from slurmplug.sandbox.spec import ClusterSpec, Node

# Short cycles, so that tests need not wait; bf_continue, so that updates do not make backfill begin again.
SCHEDULER = ("sched_interval=2", "sched_min_interval=100000", "bf_interval=1", "bf_continue", "batch_sched_delay=0")

_FIXED = {
    "SlurmdUser": "root",
    "AuthType": "auth/munge",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "MpiDefault": "none",
    "MailProg": "/bin/true",
    "SlurmdParameters": "config_overrides",
    "PropagateResourceLimits": "NONE",
    "ReturnToService": "2",
    "SlurmdTimeout": "30",
    "KillWait": "2",
    "MinJobAge": "300",
    "JobRequeue": "1",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "DefMemPerCPU": "100",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": "127.0.0.1",
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageTRES": "gres/gpu",
    "PrivateData": "jobs,usage",
    "PriorityDecayHalfLife": "7-0",
    "PriorityCalcPeriod": "1",
    "PriorityMaxAge": "7-0",
}


@dataclass(frozen=True)
class Ports:
    """The TCP ports of the daemons, those of the nodes in their order."""

    mariadbd: int
    slurmdbd: int
    slurmctld: int
    nodes: tuple[int, ...]


def slurm_conf(spec: ClusterSpec, layout: Layout, cluster: str, ports: Ports) -> str:
    """slurm.conf: fixed settings, then those of the spec, which replace them, then nodes and partitions."""
    host = socket.gethostname().split(".")[0]
    settings = {
        "ClusterName": cluster,
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": str(ports.slurmctld),
        "SlurmUser": SLURM,
        **_FIXED,
        "GresTypes": "gpu,shard" if any(node.shards for node in spec.nodes) else "gpu",
        "AuthInfo": f"socket={layout.munge_socket}",
        "StateSaveLocation": f"{layout.folder}/state",
        "SlurmdSpoolDir": f"{layout.folder}/nodes/%n",
        "SlurmctldPidFile": f"{layout.folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{layout.folder}/run/%n.pid",
        "SlurmctldLogFile": f"{layout.logs}/slurmctld.log",
        "SlurmdLogFile": f"{layout.logs}/%n.log",
        "AccountingStoragePort": str(ports.slurmdbd),
        "AccountingStoragePass": str(layout.munge_socket),
        "SchedulerParameters": ",".join(_by_name((*SCHEDULER, *spec.scheduler)).values()),
        "PriorityType": f"priority/{spec.priority}",
        **{f"PriorityWeight{name}": str(weight) for name, weight in spec.weights.items()},
        **({"JobSubmitPlugins": "lua"} if spec.job_submit else {}),
        **spec.settings,
    }
    nodes = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
        f"CPUs={node.cpus} RealMemory={node.memory}{_gres(node)}{_features(node)}"
        for name, node, port in zip(spec.node_names, spec.nodes, ports.nodes, strict=True)
    ]
    partitions = [
        _line(
            {
                "PartitionName": partition.name,
                "Nodes": ",".join(partition.nodes or spec.node_names),
                "Default": "NO" if number else "YES",
                "State": "UP",
                **partition.options,
            }
        )
        for number, partition in enumerate(spec.partitions)
    ]
    return "\n".join([*(f"{name}={value}" for name, value in settings.items()), *nodes, *partitions, ""])


def gres_conf(spec: ClusterSpec, layout: Layout) -> str:
    """gres.conf; a node whose GPUs have a Count and no device files would become INVAL."""
    return "".join(
        line for name, node in zip(spec.node_names, spec.nodes, strict=True) for line in _gres_lines(name, node, layout)
    )


def _gres_lines(name: str, node: Node, layout: Layout) -> Iterator[str]:
    first = 0
    for kind, count in node.gpus_by_type.items():
        files = f"{layout.devices}/nvidia[{first}-{first + count - 1}]"
        yield f"NodeName={name} Name=gpu{f' Type={kind}' if kind else ''} File={files}\n"
        first += count
    if node.shards:
        yield f"NodeName={name} Name=shard Count={node.shards}\n"


def cgroup_conf(version: tuple[int, int]) -> str:
    """cgroup.conf, which keeps Slurm away from the machine's control groups; empty before 23.11, which needs none."""
    return "CgroupPlugin=disabled\n" if version >= (23, 11) else ""


def slurmdbd_conf(layout: Layout, cluster: str, ports: Ports, password: str) -> str:
    """slurmdbd.conf, with the password of the database."""
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(ports.slurmdbd),
        "SlurmUser": SLURM,
        "PidFile": f"{layout.folder}/run/slurmdbd.pid",
        "LogFile": f"{layout.logs}/slurmdbd.log",
        "PrivateData": "jobs,usage",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": str(ports.mariadbd),
        "StorageUser": SLURM,
        "StoragePass": password,
        "StorageLoc": cluster,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def database_sql(cluster: str, password: str) -> str:
    """The SQL that makes slurmdbd's database and user; one statement per line, as mariadbd's init-file needs it."""
    return (
        f"CREATE DATABASE IF NOT EXISTS {cluster};\n"
        f"CREATE USER IF NOT EXISTS '{SLURM}'@'127.0.0.1' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON {cluster}.* TO '{SLURM}'@'127.0.0.1';\n"
    )


def mariadb_options(layout: Layout) -> list[str]:
    """Options for a small database without durability: nothing in it outlives the sandbox."""
    return [
        "--no-defaults",
        f"--datadir={layout.database}",
        # mariadbd removes temporary tables there when it starts; in /tmp also those of every other MariaDB.
        f"--tmpdir={layout.database_scratch}",
        "--skip-name-resolve",
        "--performance-schema=0",
        "--innodb-log-file-size=8M",
        "--innodb-buffer-pool-size=32M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--innodb-doublewrite=0",
        "--loose-innodb-snapshot-isolation=0",  # slurmdbd ends when it meets it; older MariaDBs do not know it
    ]


def accounting(cluster: str) -> str:
    """A file for `sacctmgr load`: the accounts of the researchers, and the daemon's as an operator and nothing more."""
    members = {"vision": RESEARCHERS[::2], "language": RESEARCHERS[1::2], "operators": (OPERATOR,)}
    lines = [
        f"Cluster - '{cluster}'",
        "Parent - 'root'",
        "User - 'root':DefaultAccount='root':AdminLevel='Administrator'",
    ]
    lines += [f"Account - '{account}':Description='{account}':Organization='lab'" for account in members]
    for account, users in members.items():
        lines.append(f"Parent - '{account}'")
        level = ":AdminLevel='Operator'" if account == "operators" else ""
        lines += [f"User - '{user}':DefaultAccount='{account}'{level}" for user in users]
    return "\n".join([*lines, ""])


def _by_name(parameters: tuple[str, ...]) -> Mapping[str, str]:
    return {parameter.split("=", 1)[0]: parameter for parameter in parameters}


def _line(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _gres(node: Node) -> str:
    gres = [f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in node.gpus_by_type.items()]
    gres += [f"shard:{node.shards}"] if node.shards else []
    return f" Gres={','.join(gres)}" if gres else ""


def _features(node: Node) -> str:
    return f" Feature={','.join(node.features)}" if node.features else ""
