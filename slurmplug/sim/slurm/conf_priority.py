"""What a slurm.conf sets of priorities, and of the usage that fairshare counts."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from slurmplug.console import times
from slurmplug.sim.slurm.conf_lines import ConfLines, number
from slurmplug.sim.slurm.conf_nodes import totals
from slurmplug.sim.slurm.multifactor import Billing, Weights
from slurmplug.sim.workloads.rows import as_number, quoted

SHARES = "shares of accounts and users (fairshare takes all users for equal; name them with --sacctmgr)"
_WEEK = "7-0"
_BILLED = ("gres/gpu", "cpu", "mem")
_TRES = (*_BILLED, "node")
_BILLED_BY_DEFAULT = (0.0, 1.0, 0.0)
_MEBIBYTES = MappingProxyType({"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3})
_WEIGHTS = ("priorityweightage", "priorityweightfairshare", "priorityweightjobsize", "priorityweightpartition")
_PRIORITY, _BILLING = "PriorityWeightTRES", "TRESBillingWeights"
_YES = frozenset({"yes", "up", "true", "1"})
_NO_NORMAL = frozenset({"NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES"})
_ALL = "NO_NORMAL_ALL"
_FLAGS = frozenset({"FAIR_TREE", "NO_FAIR_TREE", *_NO_NORMAL, _ALL, "SMALL_RELATIVE_TO_TIME"})
"""those that are followed"""


def weights(conf: ConfLines) -> Weights:
    """All but those of QOS, whose priorities are in slurmdbd. Raises ValueError."""
    values, flags = conf.values, priority_flags(conf)
    of_partition = {
        each["partitionname"]: number(each, "priority", number(each, "priorityjobfactor", 1.0))
        for each in conf.partitions
    }
    age, fairshare, job_size, partition = (0.0 if is_basic(conf) else number(values, each, 0.0) for each in _WEIGHTS)
    if "NO_NORMAL_PART" in flags:
        partition *= max(of_partition.values(), default=0.0)
    return Weights(
        age=age,
        fairshare=fairshare,
        job_size=job_size,
        partition=partition,
        max_age=max(times.parse_limit(values.get("prioritymaxage", _WEEK)), 1.0),
        half_life=times.parse_limit(values.get("prioritydecayhalflife", _WEEK)),
        partition_priority=MappingProxyType(of_partition),
        favor_small=values.get("priorityfavorsmall", "").lower() in _YES,
        relative_to_time="SMALL_RELATIVE_TO_TIME" in flags,
        tres=MappingProxyType({} if is_basic(conf) else dict(_of_partitions(conf))),
    )


def _of_partitions(conf: ConfLines) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """What PriorityWeightTRES gives for a GPU, a CPU, a MiB and a node in each partition, by name."""
    found = _tres_weights(conf.values, _PRIORITY)
    given = [found.get(name, 0.0) for name in _TRES]
    for name, total in totals(conf) if any(given) else ():
        of_all = (1.0,) * len(given) if "NO_NORMAL_TRES" in priority_flags(conf) else total
        gpu, cpu, memory, node = (weight / one if one else 0.0 for weight, one in zip(given, of_all, strict=True))
        yield name, (gpu, cpu, memory, node)


def billing(conf: ConfLines) -> Billing:
    """TRESBillingWeights of each partition; one CPU counts 1 where there are none. Raises ValueError."""
    listed = (each for each in conf.partitions if _BILLING.lower() in each)
    found = {each["partitionname"]: _tres_weights(each, _BILLING) for each in listed}
    gpu, cpu, memory = _BILLED
    given = {name: (each.get(gpu, 0.0), each.get(cpu, 0.0), each.get(memory, 0.0)) for name, each in found.items()}
    return Billing(MappingProxyType(given), other=_BILLED_BY_DEFAULT)


def not_followed(conf: ConfLines) -> Iterator[str]:
    """What it sets of priorities that the simulated Slurm does without, a phrase each."""
    flags = priority_flags(conf)
    if others := sorted(_tres_weights(conf.values, _PRIORITY).keys() - set(_TRES)):
        yield f"{_PRIORITY} of {', '.join(others)}"
    if number(conf.values, "priorityweightfairshare", 0.0):
        yield SHARES
        if (period := conf.values.get("priorityusageresetperiod", "none")).lower() not in ("none", "now"):
            yield f"PriorityUsageResetPeriod={period} (usage is never reset)"
        billed = {name for each in conf.partitions for name in _tres_weights(each, _BILLING)}
        if others := sorted(billed - set(_BILLED)):
            yield f"{_BILLING} of {', '.join(others)}"
    if others := sorted(flags - _FLAGS):
        yield f"PriorityFlags={','.join(others)}"


def is_basic(conf: ConfLines) -> bool:
    """Whether jobs go in order of submission."""
    return conf.values.get("prioritytype", "").lower() == "priority/basic"


def priority_flags(conf: ConfLines) -> set[str]:
    """PriorityFlags in upper case."""
    flags = {flag.strip().upper() for flag in conf.values.get("priorityflags", "").split(",")} - {""}
    return flags | _NO_NORMAL if _ALL in flags else flags


def dampening(conf: ConfLines) -> float | None:
    """FairShareDampeningFactor, None with Fair Tree, which DEPTH_OBLIVIOUS turns off, too. Raises ValueError."""
    if priority_flags(conf).isdisjoint({"NO_FAIR_TREE", "DEPTH_OBLIVIOUS"}):
        return None
    return max(number(conf.values, "fairsharedampeningfactor", 1.0), 1.0)


def _tres_weights(values: Mapping[str, str], keyword: str) -> dict[str, float]:
    """The weights in a list of TRES by name, in lower case; of a MiB for memory. Raises ValueError."""
    found = {}
    for item in filter(None, (each.strip() for each in values.get(keyword.lower(), "").split(","))):
        name, _, text = item.lower().partition("=")
        unit = text[-1:] if name == "mem" and text[-1:] in _MEBIBYTES else ""
        if (weight := as_number(text[: len(text) - len(unit)])) is None:
            raise ValueError(f"{keyword} has {quoted(f'{name}={text}')}, not a number")
        found[name] = weight / _MEBIBYTES.get(unit, 1.0)
    return found
