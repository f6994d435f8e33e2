"""Checks of a site against what slurmplug needs; each finding says how to fix it.

Pure: `facts.collect_facts` reads the site once, `run_checks` judges the facts. The actions that a finding `blocks` are
only observed by the daemon until it is fixed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from slurmplug.config.schema import Mode, Modes
from slurmplug.doctor.values import Facts

Level: TypeAlias = Literal["ok", "note", "wrong"]

OLDEST_SLURM, NEWEST_SLURM = (22, 5), (26, 5)
"""The oldest and the newest release of Slurm that slurmplug is tested with."""
MAX_CLOCK_OFFSET = 5.0
"""Seconds by which this machine's clock may differ from slurmctld's: deadlines and start times depend on both."""
MIN_FREE_BYTES = 1 << 30
"""Bytes that should be free on the ledger's disk."""
GRANTS = ("sacctmgr -i ", "install -d -o ")
"""How a `fix` begins that gives rights or a folder to the account under which the checks run."""
ALL_ACTIONS = frozenset({"everything"})
"""Blocks every kind of action."""
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs", "cifs", "smb3",
     "panfs", "wekafs", "orangefs", "pvfs2", "afs", "fuse.sshfs", "virtiofs", "9p", "gfs2", "ocfs2"}
)  # fmt: skip
"""File systems, by their names in /proc/self/mountinfo, that several machines can share."""


class Finding(NamedTuple):
    """The result of a check. `fix`: the command or the line of a file that fixes it.

    `blocks`: the kinds of action that must not be done until then, or `everything`.
    """

    check: str
    level: Level
    message: str
    fix: str = ""
    blocks: frozenset[str] = frozenset()


def run_checks(facts: Facts) -> list[Finding]:
    """The findings of all checks, in the order of an installation."""
    if "Slurm" in facts.read_errors:
        fix = "systemctl status slurmctld munge; or set slurm.conf and slurm.bin in the configuration"
        unread = [Finding("Slurm", "wrong", facts.read_errors["Slurm"], fix, ALL_ACTIONS)]
        return unread + [finding for check in _OF_THIS_MACHINE for finding in check(facts)]
    return [finding for check in (*_OF_SLURM, *_OF_THIS_MACHINE) for finding in check(facts)]


def for_others(findings: Sequence[Finding]) -> list[Finding]:
    """The findings as they are for a user under whose account the daemon does not run: what the daemon's account has to
    be granted, or to own, is not to be given to this user."""
    return [each._replace(fix="") if each.fix.startswith(GRANTS) else each for each in findings]


def blocked_actions(findings: Sequence[Finding]) -> dict[str, str]:
    """By kind of action, or `everything`: which check blocks it, and how to fix that."""
    return {
        kind: f"{each.check}: {each.message}; fix: {each.fix}" for each in reversed(findings) for kind in each.blocks
    }


def restrict_modes(modes: Modes, blocks: Mapping[str, str]) -> Modes:
    """The modes with every blocked kind of action set to observe."""
    kinds = [name for name in modes.settings if name != "default"]
    observe: Mode = "observe"
    if blocks.keys() & ALL_ACTIONS:
        return Modes(default=observe)
    return modes.replaced(**dict.fromkeys((kind for kind in kinds if kind in blocks), observe))


# --- Slurm ---------------------------------------------------------------------------------------------------------


def _version(facts: Facts) -> Iterator[Finding]:
    release = facts.settings.get("SLURM_VERSION", "")
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None:
        yield Finding(
            "version", "note", f"Slurm reports {release!r}, which is not a version number", "scontrol version"
        )
        return
    version = int(match[1]), int(match[2])
    if version < OLDEST_SLURM:
        yield Finding("version", "wrong", f"Slurm {release} is older than 22.05", "upgrade Slurm to 22.05", ALL_ACTIONS)
    elif version > NEWEST_SLURM:
        yield Finding(
            "version",
            "note",
            f"Slurm {release} is newer than 26.05, the last that was tested",
            'let it observe first: in slurmplug.toml, mode.default = "observe"',
        )
    else:
        yield Finding("version", "ok", f"Slurm {release}")


def _priority(facts: Facts) -> Iterator[Finding]:
    kind = facts.settings.get("PriorityType", "")
    weights = sum(
        int(value) for name, value in facts.settings.items() if name.startswith("PriorityWeight") and value.isdecimal()
    )
    if kind != "priority/multifactor":
        fix = "slurm.conf: PriorityType=priority/multifactor"
        blocked = frozenset({"rank", "resize", "migrate"})  # a job takes its place by its SiteFactor
        yield Finding(
            "priority", "wrong", f"PriorityType {kind or '(not set)'} does not use the SiteFactor", fix, blocked
        )
    elif not weights:
        fix = "slurm.conf: PriorityWeightFairShare=1000 and PriorityWeightAge=1000, or what suits the site"
        yield Finding("priority", "note", "every PriorityWeight is 0: the SiteFactor alone orders the queue", fix)
    else:
        yield Finding("priority", "ok", f"{kind}, sum of the weights {weights}")


def _federation(facts: Facts) -> Iterator[Finding]:
    if not facts.siblings:
        yield Finding("federation", "ok", "jobs wait in this cluster alone")
        return
    message = f"jobs of a federation wait in {', '.join(facts.siblings)} too, where each change of them counts as well"
    fix = "sacctmgr modify federation NAME set clusters-=CLUSTER, then systemctl reload slurmplugd"
    yield Finding("federation", "wrong", message, fix, frozenset({"rank", "resize", "migrate", "preempt", "admit"}))


def _rights(facts: Facts) -> Iterator[Finding]:
    own = facts.user
    master = facts.settings.get("SlurmUser", "").partition("(")[0]
    if own in {"root", master}:
        yield Finding("rights", "ok", f"{own} has all rights in Slurm; those of an Operator would suffice")
    elif facts.admin_level in {"Operator", "Administrator"}:
        yield Finding("rights", "ok", f"{own} is {facts.admin_level}")
    elif "accounting" in facts.read_errors:
        fix = "systemctl status slurmdbd; sacctmgr show user"
        yield Finding(
            "rights",
            "wrong",
            f"the rights of {own} cannot be read: {facts.read_errors['accounting']}",
            fix,
            ALL_ACTIONS,
        )
    else:
        fix = (
            f"sacctmgr -i add user {own} account=root adminlevel=operator"
            if not facts.admin_level
            else f"sacctmgr -i modify user {own} set adminlevel=operator"
        )
        yield Finding("rights", "wrong", f"{own} is not an Operator in slurmdbd", fix, ALL_ACTIONS)


def _accounting(facts: Facts) -> Iterator[Finding]:
    kind = facts.settings.get("AccountingStorageType", "")
    if kind == "accounting_storage/slurmdbd":
        yield Finding("accounting", "ok", kind)
    else:
        fix = "slurm.conf: AccountingStorageType=accounting_storage/slurmdbd"
        yield Finding(
            "accounting", "note", "without slurmdbd, the final state of a job that slurmctld has purged is unknown", fix
        )


def _plugin(facts: Facts) -> Iterator[Finding]:
    if "lua" in facts.settings.get("JobSubmitPlugins", "").split(","):
        yield Finding("job_submit", "ok", "job_submit.lua is loaded")
    else:
        fix = "slurm.conf: JobSubmitPlugins=lua, and a job_submit.lua that loads /etc/slurmplug/slurmplug.lua"
        yield Finding("job_submit", "note", "mistakes in #PLUG directives are not reported by sbatch", fix)


def _rate_limit(facts: Facts) -> Iterator[Finding]:
    parameters = _parameters(facts, "SlurmctldParameters")
    if "rl_enable" not in parameters:
        yield Finding("rl_enable", "ok", "Slurm does not limit the rate of RPCs")
        return
    refill, bucket = parameters.get("rl_refill_rate", "2"), parameters.get("rl_bucket_size", "30")
    fix = (
        "slurm.conf: SlurmctldParameters=...,rl_enable,rl_bucket_size=1000,rl_refill_rate=50; "
        "or slurmplug.toml: guardrails.writes_per_cycle = 50"
    )
    message = f"a user may send {refill} RPCs a second after {bucket} at once: priorities are written slowly"
    enough = refill.isdecimal() and int(refill) * facts.config.interval >= facts.config.guardrails.writes_per_cycle
    yield Finding("rl_enable", "ok" if enough else "note", message, "" if enough else fix)


def _backfill(facts: Facts) -> Iterator[Finding]:
    if facts.settings.get("SchedulerType") != "sched/backfill":
        return
    if "bf_continue" in _parameters(facts, "SchedulerParameters"):
        yield Finding("bf_continue", "ok", "updates of jobs do not restart the backfill scheduler")
    else:
        fix = "slurm.conf: SchedulerParameters=...,bf_continue"
        yield Finding(
            "bf_continue",
            "note",
            "each update of a job may restart the backfill scheduler at the head of the queue",
            fix,
        )


def _requeue(facts: Facts) -> Iterator[Finding]:
    if facts.settings.get("JobRequeue") == "0":
        message = "only jobs submitted with --requeue can be requeued; others are not resized, migrated or preempted"
        yield Finding("requeue", "note", message, "slurm.conf: JobRequeue=1; or users submit with --requeue")
    else:
        yield Finding("requeue", "ok", "jobs can be requeued unless submitted with --no-requeue")
    mode = facts.settings.get("PreemptMode", "OFF").upper()
    if "CANCEL" in mode:
        message = f"PreemptMode is {mode}: Slurm's own preemption cancels jobs that could be requeued"
        yield Finding("preemption", "note", message, "slurm.conf: PreemptMode=REQUEUE")
    else:
        yield Finding("preemption", "ok", f"PreemptMode is {mode}")


def _mail(facts: Facts) -> Iterator[Finding]:
    if facts.config.notifications.mail == "off":
        return
    if facts.mail_problem:
        fix = 'slurm.conf: MailProg=/usr/bin/mail; or slurmplug.toml: notifications.mail = "off"'
        yield Finding("mail", "note", f"users get no notifications by mail: {facts.mail_problem}", fix)
    else:
        yield Finding("mail", "ok", f"notifications are sent by {facts.settings['MailProg']}")


def _pyslurm(facts: Facts) -> Iterator[Finding]:
    proof = facts.pyslurm
    if proof is None:
        return
    if proof.problem:
        release = ".".join(facts.settings.get("SLURM_VERSION", "").split(".")[:2])
        fix = (
            f"pip install 'pyslurm=={release}.*' with SLURM_INCLUDE_DIR and SLURM_LIB_DIR, as in docs/installation.md; "
            'or slurmplug.toml: slurm.client = "cli"'
        )
        yield Finding("pyslurm", "note", f"priorities are written by scontrol instead: pyslurm {proof.problem}", fix)
    else:
        yield Finding("pyslurm", "ok", f"pyslurm {proof.release} writes priorities")


def _clock(facts: Facts) -> Iterator[Finding]:
    if facts.clock_offset is None:
        yield Finding("clock", "note", "slurmctld does not report its time", "timedatectl")
    elif abs(facts.clock_offset) > MAX_CLOCK_OFFSET:
        message = f"slurmctld's clock differs by {facts.clock_offset:+.0f} s from this machine's"
        yield Finding(
            "clock", "wrong", message, "systemctl enable --now systemd-timesyncd, on both machines", ALL_ACTIONS
        )
    else:
        yield Finding("clock", "ok", f"within {MAX_CLOCK_OFFSET:g} s of slurmctld's")


# --- this machine --------------------------------------------------------------------------------------------------


def _spool(facts: Facts) -> Iterator[Finding]:
    own = facts.user
    wanted = (
        (facts.reports, 0o3773, "jobs write their reports there, and no user may list or remove another's"),
        (facts.requests, 0o711, "the daemon writes its requests to jobs there, and no user may list them"),
    )
    for status, mode, why in wanted:
        name = f"spool/{status.path.rpartition('/')[2]}"
        fix = f"install -d -o {own} -g {own} -m {mode:o} {status.path}"
        blocks = frozenset() if status is facts.reports else frozenset({"stop"})
        if not status.answers:
            fix = f"see why `stat {status.path}` hangs: its file system, or the file server"
            yield Finding(name, "wrong", f"{status.path} does not answer", fix, frozenset({"stop"}))
        elif status.problem:
            yield Finding(name, "wrong", f"{status.path}: {status.problem}", fix, ALL_ACTIONS)
        elif status is facts.reports and not status.readable:
            yield Finding(name, "wrong", f"{status.path} cannot be read by {own}", fix, ALL_ACTIONS)
        elif status is facts.requests and not status.writable:
            yield Finding(name, "wrong", f"{status.path} cannot be written by {own}", fix, blocks)
        elif status.owner != facts.uid or status.mode != mode:
            level: Level = "wrong" if status is facts.requests and status.mode & 0o022 else "note"
            message = (
                f"{status.path} has owner uid {status.owner} and mode {status.mode:o}, not {own} and {mode:o}: {why}"
            )
            if own == "root" and status.owner:
                fix = f"slurmplug doctor --user NAME, if the daemon has an account of its own; else {fix}"
            yield Finding(name, level, message, fix, blocks if level == "wrong" else frozenset())
        else:
            yield Finding(name, "ok", f"{status.path}, mode {status.mode:o}")


def _shared(facts: Facts) -> Iterator[Finding]:
    kind = facts.spool.file_system
    if facts.spool.problem or not facts.spool.answers or "Slurm" in facts.read_errors:
        return
    if not facts.other_nodes:
        yield Finding("shared spool", "ok", "all nodes of the cluster run on this machine")
    elif kind in NETWORK_FILE_SYSTEMS:
        yield Finding("shared spool", "ok", f"{kind}; whether the nodes mount it cannot be checked from here")
    elif facts.spool.exported:
        yield Finding("shared spool", "ok", f"{kind}, exported; whether the nodes mount it cannot be checked from here")
    else:
        fix = f"export {facts.spool.path} and mount it on every node and login node (for example by NFS)"
        message = (
            f"{facts.spool.path} is on {kind or 'an unknown file system'}, which this machine does not export by NFS: "
            f"unless the {facts.other_nodes} other machines of the nodes share it in another way, their jobs can "
            "neither report nor be requested to stop"
        )
        yield Finding("shared spool", "note", message, fix)


def _ledger(facts: Facts) -> Iterator[Finding]:
    status = facts.ledger
    if status.problem or not (status.readable and status.writable):
        fix = f"install -d -o {facts.user} -g {facts.user} -m 750 {status.path}"
        message = status.problem or f"cannot be written by {facts.user}"
        yield Finding("ledger", "wrong", f"{status.path}: {message}", fix, ALL_ACTIONS)
    elif status.file_system in NETWORK_FILE_SYSTEMS:
        fix = "slurmplug.toml: ledger.path on a local disk"
        yield Finding(
            "ledger", "wrong", f"{status.path} is on {status.file_system}: SQLite needs a local disk", fix, ALL_ACTIONS
        )
    elif status.mode & 0o1002 == 0o002:
        message = f"every user of this machine can replace the ledger in {status.path}"
        yield Finding("ledger", "wrong", message, f"chmod o-w {status.path}", ALL_ACTIONS)
    elif (mode := facts.ledger_mode or 0) & 0o006:
        file, may = facts.config.ledger.path, "write" if mode & 0o002 else "read"
        message = f"every user of this machine can {may} {file}, mode {mode:o}, with all users' jobs and their requests"
        blocks = ALL_ACTIONS if may == "write" else frozenset[str]()
        yield Finding("ledger", "wrong" if blocks else "note", message, f"chmod o= {file}*", blocks)
    elif status.free < MIN_FREE_BYTES:
        message = f"only {status.free / 2**20:.0f} MiB are free on the disk of {status.path}"
        yield Finding("ledger", "note", message, f"free space on the disk of {status.path}, or lower ledger.keep_days")
    else:
        yield Finding("ledger", "ok", f"{status.path}, {status.free / 2**30:.0f} GiB free")


def _takeover(facts: Facts) -> Iterator[Finding]:
    status = facts.shared
    if status is None:
        return
    fix = f"install -d -o {facts.user} -g {facts.user} -m 700 {status.path}, on a shared file system"
    if status.problem or not status.writable:
        message = status.problem or f"cannot be written by {facts.user}"
        yield Finding("takeover", "wrong", f"{status.path}: {message}", fix, ALL_ACTIONS)
    elif status.owner != facts.uid or status.mode & 0o077:
        found = f"owner uid {status.owner} and mode {status.mode:o}"
        yield Finding("takeover", "note", f"{status.path} has {found}: others could read copies of the ledger", fix)
    elif status.file_system not in NETWORK_FILE_SYSTEMS:
        yield Finding(
            "takeover", "note", f"{status.path} is on {status.file_system}: does the other controller mount it?", fix
        )
    else:
        yield Finding("takeover", "ok", f"{status.path} on {status.file_system}")


def _parameters(facts: Facts, name: str) -> dict[str, str]:
    words = facts.settings.get(name, "").split(",")
    return {key.strip().lower(): value for key, _, value in (word.partition("=") for word in words)}


Check: TypeAlias = Callable[[Facts], Iterator[Finding]]
_OF_SLURM: tuple[Check, ...] = (
    _version, _priority, _federation, _rights, _accounting, _plugin, _rate_limit, _backfill, _requeue, _mail, _pyslurm,
    _clock,
)  # fmt: skip
_OF_THIS_MACHINE: tuple[Check, ...] = (_spool, _shared, _ledger, _takeover)
