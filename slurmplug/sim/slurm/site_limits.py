"""Limits and shares of a site's QOS and associations, in what `sacctmgr dump` wrote and `sacctmgr show qos` printed.

As in sacctmgr(1), FLAT FILE DUMP AND LOAD: a line is an account or a user below the account that the last `Parent` line
names, or the cluster, whose limits are those of the account root; newer releases write the QOS there, too. A limit on
single jobs or users is passed down to the users of an account and of the accounts below it, one kind of TRES at a time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slurmplug.cluster.limits import CHECKED_TRES, Assoc, AssocLimits, Limits, QosLimits
from slurmplug.cluster.parse.limits import amounts, assoc_limits, qos_limits
from slurmplug.errors import DataError
from slurmplug.sim.slurm.assoc_priority import inherited
from slurmplug.sim.slurm.conf_priority import SHARES
from slurmplug.sim.slurm.job_limits import BILLING, SECONDS_OF, USED_SECONDS_OF
from slurmplug.sim.slurm.share_tree import OF_PARENT, ROOT, Shares
from slurmplug.sim.slurm.site_conf import ASSOC_PRIORITIES, LIMITS, QOS_PRIORITIES, SiteConf
from slurmplug.sim.workloads.rows import Row, WorkloadError, as_number, comma_separated, open_lines, quoted

_FAIRSHARE_PARENT = "2147483647"
"""Fairshare=parent, as it is in a dump"""
_LINE = re.compile(r"(\w+) - '([^']*)'(?::(.*))?")
_OPTION = re.compile(r"(\w+)=('[^']*'|(?:gres/[^:=,]*:|[^:'])*)(?::|$)")
_WRITE_DUMP = "write it with: sacctmgr dump CLUSTER file=FILE"
_WRITE_QOS = "write it with: sacctmgr --parsable2 show qos"
_COLUMNS = MappingProxyType(
    {
        "MaxTRESPerJob": "MaxTRES",
        "MaxTRESPerUser": "MaxTRESPU",
        "MaxTRESPerAccount": "MaxTRESPA",
        "MaxJobsPerUser": "MaxJobsPU",
        "MaxJobsPerAccount": "MaxJobsPA",
        "MaxTRESMinsPerJob": "MaxTRESMins",
        "MaxTRESRunMinsPerUser": "MaxTRESRunMinsPU",
        "MaxTRESRunMinsPerAccount": "MaxTRESRunMinsPA",
    }
)
"""names of a dump, and those of the columns that sacctmgr shows"""
_TRES_LIMITS = frozenset({"GrpTRES", "MaxTRES", "MaxTRESPU", "MaxTRESPA"})
_USED_MINUTES = "GrpTRESMins"
_MINUTES = frozenset({_USED_MINUTES, "GrpTRESRunMins", "MaxTRESMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA"})
_FOLLOWED = _TRES_LIMITS | _MINUTES | {"GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA"}
_LIMIT = re.compile(r"(?:Grp|Max|Min)[A-Z]\w*|LimitFactor")
_NO_NODES = "node"
"""of the kinds that are checked live, the one that is not followed here: nodes that jobs share count once"""


@dataclass(frozen=True)
class SiteLimits:
    """What the files have: limits, the priorities of QOS, and what is not followed, a phrase each.

    `of`: whose limits were in them, `QOS` or `associations`. `usage_factor`: by QOS. `no_decay`: QOS with this
    flag. `shares`: None without associations. `assoc_priority`: of all accounts, and of users who have their own.
    """

    limits: Limits
    qos_priority: Mapping[str, float]
    usage_factor: Mapping[str, float]
    no_decay: frozenset[str]
    shares: Shares | None
    assoc_priority: Mapping[Assoc, float]
    of: frozenset[str]
    not_followed: tuple[str, ...]


@dataclass
class _Found:
    qos: dict[str, QosLimits] = field(default_factory=dict)
    qos_priority: dict[str, float] = field(default_factory=dict)
    usage_factor: dict[str, float] = field(default_factory=dict)
    no_decay: set[str] = field(default_factory=set)
    assocs: dict[Assoc, AssocLimits] = field(default_factory=dict)
    shares: dict[Assoc, float] = field(default_factory=dict)
    assoc_priority: dict[Assoc, float] = field(default_factory=dict)
    not_followed: dict[str, dict[str, None]] = field(default_factory=lambda: {"QOS": {}, "associations": {}})


def read(dump: Path | None, qos: Path | None) -> SiteLimits:
    """The limits in a dump, and of QOS in a table, which replaces those in the dump.

    Raises:
        DataError: a file cannot be read, or is no such file
    """
    found = _Found()
    if dump is not None:
        _read_dump(dump, found)
    if qos is not None:
        found.qos.clear()
        found.not_followed["QOS"].clear()
        found.qos_priority.clear()
        found.usage_factor.clear()
        found.no_decay.clear()
        _read_qos(qos, found)
    return SiteLimits(
        Limits(MappingProxyType(found.qos), MappingProxyType(_passed_down(found.assocs))),
        MappingProxyType(found.qos_priority),
        MappingProxyType(found.usage_factor),
        frozenset(found.no_decay),
        _shares(found),
        MappingProxyType(inherited(found.assoc_priority, _above(found))),
        frozenset([*["QOS"] * bool(found.qos), *["associations"] * bool(found.assocs)]),
        tuple(f"limits of {of}: {', '.join(sorted(names))}" for of, names in found.not_followed.items() if names),
    )


def with_limits(conf: SiteConf, found: SiteLimits) -> SiteConf:
    """The settings with these limits, where Slurm enforces any."""
    not_followed = [each for each in conf.not_followed if each not in (LIMITS, QOS_PRIORITIES)]
    weights, limits = conf.settings.weights, found.limits
    if conf.qos_weight and not found.qos_priority:
        not_followed.append(QOS_PRIORITIES)
    of_qos = _weight(conf.qos_weight, found.qos_priority, relative=conf.qos_is_relative)
    weights = replace(weights, qos=of_qos, qos_priority=found.qos_priority)
    if conf.enforces_limits:
        limits = replace(limits, partition_qos=conf.partition_qos)
        missing = {"QOS": "--qos", "associations": "--sacctmgr"}
        not_followed += [f"limits of {of} (name them with {missing[of]})" for of in missing if of not in found.of]
        not_followed += found.not_followed
    else:
        limits = Limits()
        not_followed.append(f"{LIMITS}, which AccountingStorageEnforce of this slurm.conf does not have")
    if found.shares is not None:
        not_followed = [each for each in not_followed if each not in (SHARES, ASSOC_PRIORITIES)]
    billing = replace(conf.settings.billing, qos=found.usage_factor)
    of_assoc = _weight(conf.assoc_weight, found.assoc_priority, relative=conf.assoc_is_relative)
    settings = replace(
        conf.settings,
        weights=replace(weights, assoc=of_assoc),
        assoc_priority=found.assoc_priority if conf.assoc_weight else MappingProxyType({}),
        limits=limits,
        no_decay=found.no_decay,
        shares=found.shares,
        billing=billing,
    )
    return replace(conf, settings=settings, not_followed=tuple(not_followed))


def _weight(weight: float, priorities: Mapping[Any, float], *, relative: bool) -> float:
    """Of a factor that is the share of the highest of these priorities; with NO_NORMAL_*, it is not relative."""
    return weight * (1.0 if relative and priorities else max(priorities.values(), default=0.0))


def _read_qos(path: Path, found: _Found) -> None:
    try:
        for row in comma_separated(path, ("Name",), delimiter="|"):
            if row.fault:
                raise row.bad("", row.fault)
            _add_qos(found, row.text("Name"), row)
    except WorkloadError as error:
        raise DataError(f"{error}; {_WRITE_QOS}") from error
    if not found.qos:
        raise DataError(f"{path}: it has no QOS; {_WRITE_QOS}")


def _read_dump(path: Path, found: _Found) -> None:
    parent = ROOT
    with open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            row = Row(str(path), number, {})
            if (match := _LINE.fullmatch(text)) is None:
                raise row.bad("", f"is not a line of a dump: {quoted(text)}; {_WRITE_DUMP}")
            kind, name, options = match[1].lower(), match[2], match[3] or ""
            row = Row(str(path), number, _options(row, options))
            if kind == "parent":
                if Assoc(name, "", "") not in found.assocs:
                    raise row.bad("", f"names the parent {quoted(name)}, which no earlier line defines")
                parent = name
            elif kind in ("cluster", "account", "user"):
                _add_assoc(found, kind, name, parent, row)
            elif kind == "qos":
                _add_qos(found, name, row)
            else:
                raise row.bad("", f"begins with {quoted(match[1])}, not with Cluster, QOS, Parent, Account or User")
    if not found.assocs:
        raise DataError(f"{path}: it has no account and no user; {_WRITE_DUMP}")


def _options(row: Row, text: str) -> dict[str, str]:
    """The options of a line. A `:` in quotes, or before a type of GPU, ends none."""
    found, end = {}, 0
    while end < len(text):
        if (match := _OPTION.match(text, end)) is None:
            raise row.bad("", f"has an option that is not NAME=VALUE: {quoted(text[end:])}; {_WRITE_DUMP}")
        found[_COLUMNS.get(match[1], match[1])], end = match[2].strip("'"), match.end()
    return found


def _add_assoc(found: _Found, kind: str, name: str, parent: str, row: Row) -> None:
    try:
        limits = assoc_limits(_without_wall(row.cells))
        limits = replace(
            limits,
            group={**limits.group, **_seconds(row.cells, "GrpTRESRunMins"), **_used_seconds(row.cells)},
            job={**limits.job, **_seconds(row.cells, "MaxTRESMins")},
        )
    except ValueError as error:
        raise row.bad("", str(error)) from error
    if kind == "user":
        assoc = Assoc(parent, name, row.cells.get("Partition", ""))
    else:
        assoc = Assoc(ROOT if kind == "cluster" else name, "", "")
        limits = replace(limits, parent="" if assoc.account == ROOT else parent)
        if assoc in found.assocs:
            raise row.bad("", f"defines the account {quoted(assoc.account)} again")
    found.assocs[assoc] = limits
    found.shares[assoc] = _share(row)
    if row.cells.get("Priority"):
        found.assoc_priority[assoc] = _number(row, "Priority", "0")
    _note_others(found, "associations", row.cells)


def _number(row: Row, column: str, default: str) -> float:
    """Raises WorkloadError."""
    text = row.cells.get(column, "") or default
    if (number := as_number(text)) is None or number < 0:
        raise row.bad(column, f"is {quoted(text)}, not a number from 0")
    return number


def _share(row: Row) -> float:
    """As sacctmgr writes it, 1 where it writes none. Raises DataError."""
    text = row.cells.get("Fairshare", "") or "1"
    if text.lower() == "parent" or text == _FAIRSHARE_PARENT:
        return OF_PARENT
    if (number := as_number(text)) is None or number < 0:
        raise row.bad("Fairshare", f"is {quoted(text)}, neither a number from 0 nor parent")
    return number


def _shares(found: _Found) -> Shares | None:
    if not found.shares:
        return None
    return Shares(MappingProxyType(found.shares), MappingProxyType(_above(found)))


def _above(found: _Found) -> dict[str, str]:
    """The account above each account."""
    return {assoc.account: limits.parent for assoc, limits in found.assocs.items() if not assoc.user}


def _add_qos(found: _Found, name: str, row: Row) -> None:
    cells = {_COLUMNS.get(column, column): cell for column, cell in row.cells.items()}
    try:
        limits = qos_limits(_without_wall(cells))
        found.qos[name] = replace(
            limits,
            group={**limits.group, **_seconds(cells, "GrpTRESRunMins"), **_used_seconds(cells)},
            job={**limits.job, **_seconds(cells, "MaxTRESMins")},
            user={**limits.user, **_seconds(cells, "MaxTRESRunMinsPU")},
            account={**limits.account, **_seconds(cells, "MaxTRESRunMinsPA")},
        )
    except ValueError as error:
        raise row.bad("", str(error)) from error
    found.qos_priority[name] = _number(row, "Priority", "0")
    found.usage_factor[name] = _number(row, "UsageFactor", "1")
    _note_others(found, "QOS", cells)
    flags = cells.get("Flags", "").split(",")
    if "NoReserve" in flags:
        found.not_followed["QOS"]["NoReserve"] = None
    if "NoDecay" in flags:
        found.no_decay.add(name)


def _seconds(cells: Mapping[str, str], column: str) -> dict[str, float]:
    """Limits on TRES times minutes, in seconds. Raises ValueError."""
    return {f"{SECONDS_OF}{kind}": 60 * most for kind, most in amounts(cells, column).items()}


def _used_seconds(cells: Mapping[str, str]) -> dict[str, float]:
    """Limits on TRES times the minutes that were used, in seconds. Raises ValueError."""
    found = {f"{USED_SECONDS_OF}{kind}": 60 * most for kind, most in amounts(cells, _USED_MINUTES).items()}
    for item in cells.get(_USED_MINUTES, "").split(","):
        name, _, text = item.partition("=")
        if name == BILLING and not text.startswith("-"):
            if (most := as_number(text)) is None:
                raise ValueError(f"{_USED_MINUTES} has {quoted(item)}, which is not a number")
            found[f"{USED_SECONDS_OF}{BILLING}"] = 60 * most
    return found


def _without_wall(cells: Mapping[str, str]) -> dict[str, str]:
    """Jobs have the time limits that the log has."""
    return {name: cell for name, cell in cells.items() if name != "MaxWall"}


def _note_others(found: _Found, of: str, cells: Mapping[str, str]) -> None:
    """Note the limits that are set and not followed."""
    noted = found.not_followed[of]
    for name, cell in cells.items():
        if not _LIMIT.fullmatch(name) or cell in ("", "-1"):
            continue
        if name not in _FOLLOWED:
            noted[name] = None
        elif name in _TRES_LIMITS | _MINUTES:
            kinds = (item.partition("=")[0] for item in cell.split(","))
            more = {BILLING} if name == _USED_MINUTES else set()
            noted |= {f"{name} of {kind}": None for kind in kinds if kind not in more and not _is_followed(kind)}


def _is_followed(kind: str) -> bool:
    return (kind in CHECKED_TRES and kind != _NO_NODES) or kind.startswith("gres/gpu:")


def _passed_down(assocs: Mapping[Assoc, AssocLimits]) -> dict[Assoc, AssocLimits]:
    """With what accounts pass down to those below them; an account comes after its parent, as sacctmgr writes them."""
    found: dict[Assoc, AssocLimits] = {}
    for assoc, limits in assocs.items():
        above = found.get(Assoc(assoc.account if assoc.user else limits.parent, "", ""))
        if above is not None:
            jobs = limits.jobs if limits.jobs < float("inf") else above.jobs
            found[assoc] = replace(limits, job={**above.job, **limits.job}, jobs=jobs)
        else:
            found[assoc] = limits
    return found
