"""What a site's slurm.conf sets of the simulated Slurm, and what it sets that the simulated Slurm does not follow.

What is not set has Slurm's default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from slurmplug.cluster import tres
from slurmplug.console import times
from slurmplug.errors import DataError, UsageError
from slurmplug.sim.slurm import conf_lines, conf_nodes, conf_priority
from slurmplug.sim.slurm.backfill_limits import BackfillLimits
from slurmplug.sim.slurm.conf_lines import ConfLines, number
from slurmplug.sim.slurm.settings import LauncherSettings, Reservations

LIMITS = "limits of QOS and associations"
ASSOC_PRIORITIES = "PriorityWeightAssoc (name the priorities of accounts and users with --sacctmgr)"
QOS_PRIORITIES = "PriorityWeightQOS (the priorities of QOS are in slurmdbd)"
_CALC_PERIOD = "5"
"""minutes"""
_SCHEDULER_PARAMETERS = frozenset(
    {
        "batch_sched_delay",
        "bf_interval",
        "bf_job_part_count_reserve",
        "bf_max_job_assoc",
        "bf_max_job_part",
        "bf_max_job_start",
        "bf_max_job_test",
        "bf_max_job_user",
        "bf_max_job_user_part",
        "bf_resolution",
        "bf_window",
        "bf_window_linear",
    }
)
"""that are followed"""
_ALIKE = MappingProxyType(
    {
        "topologyplugin": "TopologyPlugin",
        "preempttype": "PreemptType",
        "licenses": "Licenses",
    }
)
"""keywords without effect here, and how they are written"""
_NOT_SET = frozenset({"", "0", "no", "none", "preempt/none", "topology/default", "topology/flat", "(null)"})


@dataclass(frozen=True)
class SiteConf:
    """A site's slurm.conf: cluster, as `slurmplug.sim.engine.nodes.parse` reads it, empty without nodes.

    `not_followed`: what it sets and the simulated Slurm does without, a phrase each. Of use once it is known what
    slurmdbd has (`slurmplug.sim.slurm.site_limits`): whether limits are enforced, PriorityWeightQOS, whether the factor
    of a QOS is the share of the highest priority of any, the same of associations, and the QOS of partitions.
    """

    settings: LauncherSettings
    cluster: str
    not_followed: tuple[str, ...]
    enforces_limits: bool = True
    qos_weight: float = 0.0
    qos_is_relative: bool = True
    partition_qos: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    assoc_weight: float = 0.0
    assoc_is_relative: bool = True


def read(path: Path) -> SiteConf:
    """The settings in a slurm.conf.

    Raises:
        DataError: it cannot be read, or a value is not one of slurm.conf
    """
    conf = conf_lines.read(path)
    try:
        return SiteConf(
            _settings(conf),
            "+".join(conf_nodes.groups(conf)),
            tuple(_not_followed(conf)),
            enforces_limits=bool({"limits", "safe", "all"} & _enforced(conf)),
            qos_weight=0.0 if conf_priority.is_basic(conf) else number(conf.values, "priorityweightqos", 0.0),
            qos_is_relative="NO_NORMAL_QOS" not in conf_priority.priority_flags(conf),
            partition_qos=MappingProxyType(
                {each["partitionname"]: each["qos"] for each in conf.partitions if "qos" in each}
            ),
            assoc_weight=0.0 if conf_priority.is_basic(conf) else number(conf.values, "priorityweightassoc", 0.0),
            assoc_is_relative="NO_NORMAL_ASSOC" not in conf_priority.priority_flags(conf),
        )
    except (ValueError, UsageError) as error:
        raise DataError(f"{path}: {error}") from error


def _settings(conf: ConfLines) -> LauncherSettings:
    parameters = _parameters(conf)
    return LauncherSettings(
        weights=conf_priority.weights(conf),
        backfill=_backfills(conf),
        bf_max_job_test=int(number(parameters, "bf_max_job_test", 500.0)),
        bf_limits=BackfillLimits(
            of_user=int(number(parameters, "bf_max_job_user", 0.0)),
            of_partition=int(number(parameters, "bf_max_job_part", 0.0)),
            of_user_in_partition=int(number(parameters, "bf_max_job_user_part", 0.0)),
            of_association=int(number(parameters, "bf_max_job_assoc", 0.0)),
            starts=int(number(parameters, "bf_max_job_start", 0.0)),
        ),
        reservations=Reservations(
            resolution=max(number(parameters, "bf_resolution", 60.0), 1.0),
            window=60.0 * number(parameters, "bf_window", 1440.0),
            window_linear=number(parameters, "bf_window_linear", 0.0),
            of_partition=int(number(parameters, "bf_job_part_count_reserve", 0.0)),
        ),
        bf_interval=number(parameters, "bf_interval", 30.0),
        pace=number(parameters, "batch_sched_delay", 3.0),
        default_limit=_default_limit(conf),
        safe_limits="safe" in _enforced(conf),
        dampening=conf_priority.dampening(conf),
        billing=conf_priority.billing(conf),
        fairshare_interval=times.parse_limit(conf.values.get("prioritycalcperiod", _CALC_PERIOD)),
        partitions=MappingProxyType(dict(conf_nodes.partitions(conf))),
        whole_nodes=conf.values.get("selecttype", "").lower() == "select/linear",
    )


def _backfills(conf: ConfLines) -> bool:
    return conf.values.get("schedulertype", "sched/backfill").lower() == "sched/backfill"


def _parameters(conf: ConfLines) -> dict[str, str]:
    """SchedulerParameters by name; what is a word alone has the value `yes`."""
    listed = conf.values.get("schedulerparameters", "")
    items = (item.strip().partition("=") for item in listed.split(",") if item.strip())
    return {name.lower(): value if equals else "yes" for name, equals, value in items}


def _default_limit(conf: ConfLines) -> float:
    """Seconds: DefaultTime, else MaxTime, of the default partition, else of the first."""
    ordered = sorted(conf.partitions, key=lambda each: each.get("default", "").lower() != "yes")
    for each in ordered[:1]:
        for name in ("defaulttime", "maxtime"):
            if (text := each.get(name, "")).upper() not in {"", "NONE", "UNLIMITED", "INFINITE", "-1"}:
                return times.parse_limit(text)
    return LauncherSettings.default_limit


def _not_followed(conf: ConfLines) -> Iterator[str]:
    values = conf.values
    for keyword, written in _ALIKE.items():
        if values.get(keyword, "").lower() not in _NOT_SET:
            yield written
    if number(values, "priorityweightqos", 0.0):
        yield QOS_PRIORITIES
    if number(values, "priorityweightassoc", 0.0):
        yield ASSOC_PRIORITIES
    yield from conf_priority.not_followed(conf)
    if {"limits", "safe", "qos", "all"} & _enforced(conf):
        yield LIMITS
    parameters = _parameters(conf)
    if others := sorted(parameters.keys() - _SCHEDULER_PARAMETERS):
        yield f"SchedulerParameters={','.join(others)}"
    shared = {conf_nodes.oversubscribe(each) for each in conf.partitions} - {"NO", "FORCE:1", conf_nodes.EXCLUSIVE}
    if shared:
        yield f"OverSubscribe={','.join(sorted(shared))} (jobs do not share CPUs)"
    for name in ("USER", "TOPO"):
        if any(_is_exclusive_for(each, name) for each in conf.partitions):
            yield f"Exclusive{name.capitalize()} of partitions"
    if any("," in tres.types(tres.gpus(each.get("gres", ""))) for each in conf.nodes):
        yield "types of GPUs on nodes that have several"


def _is_exclusive_for(partition: Mapping[str, str], name: str) -> bool:
    """Whether its nodes are shared by jobs of one user (USER), or of one switch (TOPO), alone."""
    given = partition.get("exclusive", "").upper()
    return given == name or (not given and partition.get(f"exclusive{name.lower()}", "").lower() not in _NOT_SET)


def _enforced(conf: ConfLines) -> set[str]:
    return set(conf.values.get("accountingstorageenforce", "").lower().split(","))
