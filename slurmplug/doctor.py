"""What slurmplug needs of a site, held against what is there; each finding with the line that mends it.

Pure: `doctor_facts.py` looks once, `examine` judges. What a finding `hinders` is not acted on by the daemon, which
observes until it is mended.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from slurmplug.config import Config, Mode, Modes

Level: TypeAlias = Literal["ok", "note", "wrong"]

OLDEST, NEWEST = (22, 5), (26, 5)
"""Slurm's releases that slurmplug is tried with, and those between."""
MOST_OFF = 5.0
"""Seconds that this machine's clock may differ from slurmctld's: deadlines and start times are told by both."""
LEAST_FREE = 1 << 30
"""Bytes that the ledger's disk should have left."""
EVERYTHING = frozenset({"everything"})
NETWORKED = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs", "cifs", "smb3",
     "panfs", "wekafs", "orangefs", "pvfs2", "afs", "fuse.sshfs", "virtiofs", "9p", "gfs2", "ocfs2"}
)  # fmt: skip
"""File systems, as /proc/self/mountinfo calls them, that several machines can share."""


@dataclass(frozen=True)
class Place:
    """A path. `problem`: why it cannot be looked at; `kind`: its file system; `free`: bytes left on it."""

    path: str
    problem: str = ""
    owner: int = -1
    group: int = -1
    mode: int = 0
    readable: bool = False
    """whether this user can list and enter it"""
    writable: bool = False
    kind: str = ""
    free: int = 0


@dataclass(frozen=True)
class Facts:
    """What was seen, once. `trouble`: by what was asked, why there was no answer.

    `clock`: slurmctld's clock less this machine's in seconds, the nearest to 0 that the answer allows, None where not
    told. `other_nodes`: how many machines of nodes are not this one.
    """

    config: Config
    user: str
    uid: int
    gid: int
    host: str
    settings: Mapping[str, str]
    clock: float | None
    admin_level: str
    other_nodes: int
    spool: Place
    reports: Place
    requests: Place
    ledger: Place
    ledger_mode: int | None = None
    """of the file in that folder what its mode lets whoever do that can come there; None where it cannot be seen"""
    shared: Place | None = None
    """the takeover's folder"""
    trouble: Mapping[str, str] = field(default_factory=dict)


class Finding(NamedTuple):
    """`mend`: the command or the line of a file that mends it. `hinders`: kinds of action, or `everything`."""

    about: str
    level: Level
    says: str
    mend: str = ""
    hinders: frozenset[str] = frozenset()


def examine(facts: Facts) -> list[Finding]:
    """Every check, in the order of an installation."""
    if "Slurm" in facts.trouble:
        mend = "systemctl status slurmctld munge; or set slurm.conf and slurm.bin in the configuration"
        unread = [Finding("Slurm", "wrong", facts.trouble["Slurm"], mend, EVERYTHING)]
        return unread + [finding for check in _OF_THIS_MACHINE for finding in check(facts)]
    return [finding for check in (*_OF_SLURM, *_OF_THIS_MACHINE) for finding in check(facts)]


def hindered(findings: Sequence[Finding]) -> dict[str, str]:
    """By kind of action, or `everything`: what is missing and the line that mends it."""
    return {
        kind: f"{each.about}: {each.says}; fix it: {each.mend}" for each in reversed(findings) for kind in each.hinders
    }


def allowed(modes: Modes, hinders: Mapping[str, str]) -> Modes:
    """The modes with every kind of action that is hindered set to observe."""
    kinds = [name for name in type(modes).model_fields if name != "default"]
    observe: Mode = "observe"
    if hinders.keys() & EVERYTHING:
        return Modes(default=observe)
    return modes.model_copy(update={kind: observe for kind in kinds if kind in hinders})


# --- Slurm ---------------------------------------------------------------------------------------------------------


def _version(facts: Facts) -> Iterator[Finding]:
    told = facts.settings.get("SLURM_VERSION", "")
    match = re.match(r"(\d+)\.(\d+)", told)
    if match is None:
        yield Finding("version", "note", f"Slurm tells a version {told!r}, which is not one", "scontrol version")
        return
    version = int(match[1]), int(match[2])
    if version < OLDEST:
        yield Finding("version", "wrong", f"Slurm {told} is older than 22.05", "upgrade Slurm to 22.05", EVERYTHING)
    elif version > NEWEST:
        yield Finding(
            "version", "note", f"Slurm {told} is newer than 26.05, the last that was tried", "watch it observe first"
        )
    else:
        yield Finding("version", "ok", f"Slurm {told}")


def _priority(facts: Facts) -> Iterator[Finding]:
    kind = facts.settings.get("PriorityType", "")
    weights = sum(
        int(value) for name, value in facts.settings.items() if name.startswith("PriorityWeight") and value.isdecimal()
    )
    if kind != "priority/multifactor":
        mend = "slurm.conf: PriorityType=priority/multifactor"
        yield Finding("priority", "wrong", f"{kind or 'none'} takes no SiteFactor", mend, frozenset({"rank"}))
    elif not weights:
        mend = "slurm.conf: PriorityWeightFairShare=1000 and PriorityWeightAge=1000, or what suits the site"
        yield Finding("priority", "note", "every PriorityWeight is 0: the rank alone orders the queue", mend)
    else:
        yield Finding("priority", "ok", f"{kind}, weights {weights} in all")


def _rights(facts: Facts) -> Iterator[Finding]:
    own = facts.user
    master = facts.settings.get("SlurmUser", "").partition("(")[0]
    if own in {"root", master}:
        yield Finding("rights", "ok", f"{own}, who may do everything in Slurm; an Operator would do")
    elif facts.admin_level in {"Operator", "Administrator"}:
        yield Finding("rights", "ok", f"{own} is {facts.admin_level}")
    elif "accounting" in facts.trouble:
        mend = "systemctl status slurmdbd; sacctmgr show user"
        yield Finding("rights", "wrong", f"{own}'s are not known: {facts.trouble['accounting']}", mend, EVERYTHING)
    else:
        mend = (
            f"sacctmgr -i add user {own} account=root adminlevel=operator"
            if not facts.admin_level
            else f"sacctmgr -i modify user {own} set adminlevel=operator"
        )
        yield Finding("rights", "wrong", f"{own} is no Operator in slurmdbd", mend, EVERYTHING)


def _accounting(facts: Facts) -> Iterator[Finding]:
    kind = facts.settings.get("AccountingStorageType", "")
    if kind == "accounting_storage/slurmdbd":
        yield Finding("accounting", "ok", kind)
    else:
        mend = "slurm.conf: AccountingStorageType=accounting_storage/slurmdbd"
        yield Finding(
            "accounting", "note", "without slurmdbd, how a job ended that slurmctld forgot is never known", mend
        )


def _plugin(facts: Facts) -> Iterator[Finding]:
    if "lua" in facts.settings.get("JobSubmitPlugins", "").split(","):
        yield Finding("job_submit", "ok", "job_submit.lua is loaded")
    else:
        mend = "slurm.conf: JobSubmitPlugins=lua, and a job_submit.lua that loads /etc/slurmplug/slurmplug.lua"
        yield Finding("job_submit", "note", "mistakes in directives are not refused when a job is submitted", mend)


def _rate_limit(facts: Facts) -> Iterator[Finding]:
    parameters = _parameters(facts, "SlurmctldParameters")
    if "rl_enable" not in parameters:
        yield Finding("rl_enable", "ok", "Slurm does not limit the rate of requests")
        return
    refill, bucket = parameters.get("rl_refill_rate", "2"), parameters.get("rl_bucket_size", "30")
    mend = (
        "slurm.conf: SlurmctldParameters=...,rl_enable,rl_bucket_size=1000,rl_refill_rate=50; "
        "or slurmplug.toml: guardrails.writes_per_cycle = 50"
    )
    says = f"an Operator may send {refill} requests a second after {bucket} at once; writes will be slow"
    enough = refill.isdecimal() and int(refill) * facts.config.interval >= facts.config.guardrails.writes_per_cycle
    yield Finding("rl_enable", "ok" if enough else "note", says, "" if enough else mend)


def _backfill(facts: Facts) -> Iterator[Finding]:
    if facts.settings.get("SchedulerType") != "sched/backfill":
        return
    if "bf_continue" in _parameters(facts, "SchedulerParameters"):
        yield Finding("bf_continue", "ok", "writes do not make backfill begin again")
    else:
        mend = "slurm.conf: SchedulerParameters=...,bf_continue"
        yield Finding("bf_continue", "note", "each write may make backfill begin again at the head of the queue", mend)


def _requeue(facts: Facts) -> Iterator[Finding]:
    if facts.settings.get("JobRequeue") == "0":
        says = "only jobs submitted with --requeue can be requeued: no resize, migration or preemption of others"
        yield Finding("requeue", "note", says, "slurm.conf: JobRequeue=1; or tell users of --requeue")
    else:
        yield Finding("requeue", "ok", "jobs can be requeued unless they say --no-requeue")
    mode = facts.settings.get("PreemptMode", "OFF").upper()
    if "CANCEL" in mode:
        says = f"PreemptMode is {mode}: Slurm's own preemption cancels what could be requeued"
        yield Finding("preemption", "note", says, "slurm.conf: PreemptMode=REQUEUE")
    else:
        yield Finding("preemption", "ok", f"PreemptMode is {mode}")


def _clock(facts: Facts) -> Iterator[Finding]:
    if facts.clock is None:
        yield Finding("clock", "note", "slurmctld does not tell its time", "timedatectl")
    elif abs(facts.clock) > MOST_OFF:
        says = f"slurmctld's clock is {facts.clock:+.0f} s off this machine's"
        yield Finding("clock", "wrong", says, "systemctl enable --now systemd-timesyncd, on both", EVERYTHING)
    else:
        yield Finding("clock", "ok", f"within {MOST_OFF:g} s of slurmctld's")


# --- this machine --------------------------------------------------------------------------------------------------


def _spool(facts: Facts) -> Iterator[Finding]:
    own = facts.user
    wanted = (
        (facts.reports, 0o3773, "jobs report there, and nobody lists or removes another's"),
        (facts.requests, 0o755, "the daemon asks there"),
    )
    for place, mode, why in wanted:
        name = f"spool/{place.path.rpartition('/')[2]}"
        mend = f"install -d -o {own} -g {own} -m {mode:o} {place.path}"
        hinders = frozenset() if place is facts.reports else frozenset({"stop"})
        if place.problem:
            yield Finding(name, "wrong", f"{place.path}: {place.problem}", mend, EVERYTHING)
        elif place is facts.reports and not place.readable:
            yield Finding(name, "wrong", f"{place.path} cannot be read by {own}", mend, EVERYTHING)
        elif place is facts.requests and not place.writable:
            yield Finding(name, "wrong", f"{place.path} cannot be written by {own}", mend, hinders)
        elif place.owner != facts.uid or place.mode != mode:
            level: Level = "wrong" if place is facts.requests and place.mode & 0o022 else "note"
            says = f"{place.path} is of uid {place.owner} with mode {place.mode:o}, not {own}'s with {mode:o}: {why}"
            if own == "root" and place.owner:
                mend = f"slurmplug doctor --user NAME, where the daemon has an account of its own; else {mend}"
            yield Finding(name, level, says, mend, hinders if level == "wrong" else frozenset())
        else:
            yield Finding(name, "ok", f"{place.path}, mode {place.mode:o}")


def _shared(facts: Facts) -> Iterator[Finding]:
    kind = facts.spool.kind
    if facts.spool.problem or "Slurm" in facts.trouble:
        return
    if not facts.other_nodes:
        yield Finding("shared spool", "ok", "every node is this machine")
    elif kind in NETWORKED:
        yield Finding("shared spool", "ok", f"{kind}; that the nodes mount it cannot be told from here")
    else:
        mend = f"export {facts.spool.path} and mount it on every node and login node (NFS will do)"
        says = f"{facts.spool.path} is on {kind or 'an unknown file system'}, with {facts.other_nodes} other machines"
        yield Finding("shared spool", "note", f"{says}: does an export of it reach them?", mend)


def _ledger(facts: Facts) -> Iterator[Finding]:
    place = facts.ledger
    if place.problem or not (place.readable and place.writable):
        mend = f"install -d -o {facts.user} -g {facts.user} -m 750 {place.path}"
        says = place.problem or f"cannot be written by {facts.user}"
        yield Finding("ledger", "wrong", f"{place.path}: {says}", mend, EVERYTHING)
    elif place.kind in NETWORKED:
        mend = "slurmplug.toml: ledger.path on a local disk"
        yield Finding(
            "ledger", "wrong", f"{place.path} is on {place.kind}: SQLite needs a local disk", mend, EVERYTHING
        )
    elif place.mode & 0o1002 == 0o002:
        says = f"everybody on this machine can put another file in the ledger's place in {place.path}"
        yield Finding("ledger", "wrong", says, f"chmod o-w {place.path}", EVERYTHING)
    elif (mode := facts.ledger_mode or 0) & 0o006:
        file, may = facts.config.ledger.path, "write" if mode & 0o002 else "read"
        says = f"everybody on this machine can {may} {file}, mode {mode:o}: all users' jobs and what they ask for"
        hinders = EVERYTHING if may == "write" else frozenset[str]()
        yield Finding("ledger", "wrong" if hinders else "note", says, f"chmod o= {file}*", hinders)
    elif place.free < LEAST_FREE:
        says = f"{place.free / 2**20:.0f} MiB are left for it"
        yield Finding("ledger", "note", says, f"make room on the disk of {place.path}, or lower ledger.keep_days")
    else:
        yield Finding("ledger", "ok", f"{place.path}, {place.free / 2**30:.0f} GiB left")


def _takeover(facts: Facts) -> Iterator[Finding]:
    place = facts.shared
    if place is None:
        return
    mend = f"install -d -o {facts.user} -g {facts.user} -m 700 {place.path}, on a shared file system"
    if place.problem or not place.writable:
        says = place.problem or f"cannot be written by {facts.user}"
        yield Finding("takeover", "wrong", f"{place.path}: {says}", mend, EVERYTHING)
    elif place.owner != facts.uid or place.mode & 0o077:
        says = f"{place.path} is of uid {place.owner} with mode {place.mode:o}: the ledger is not for others"
        yield Finding("takeover", "note", says, mend)
    elif place.kind not in NETWORKED:
        yield Finding("takeover", "note", f"{place.path} is on {place.kind}: does the other controller see it?", mend)
    else:
        yield Finding("takeover", "ok", f"{place.path} on {place.kind}")


def _parameters(facts: Facts, name: str) -> dict[str, str]:
    words = facts.settings.get(name, "").split(",")
    return {key.strip().lower(): value for key, _, value in (word.partition("=") for word in words)}


Check: TypeAlias = Callable[[Facts], Iterator[Finding]]
_OF_SLURM: tuple[Check, ...] = (
    _version, _priority, _rights, _accounting, _plugin, _rate_limit, _backfill, _requeue, _clock,
)  # fmt: skip
_OF_THIS_MACHINE: tuple[Check, ...] = (_spool, _shared, _ledger, _takeover)
