"""`slurmplug audit`: decides the cycles again whose inputs the ledger keeps, and compares the plans bit by bit."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from policies.model import Model
from policies.plan import Memory
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import model_files, policy_registry
from slurmplug.console import table, times
from slurmplug.console.table import Field, counted, printable
from slurmplug.errors import ConfigError, DataError, LedgerDamaged
from slurmplug.ledger import codec, policy_models
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.decided import Difference, as_kept, first_difference
from slurmplug.ledger.inputs import KeptCycle, inputs
from slurmplug.rules import guardrails, valid_plan

SHOWN = 20
"""cycles of which the difference is shown; `--json` has all"""
_NAMES = {
    "slurmplug": "release of slurmplug", "numpy": "release of NumPy", "code": "code of the policy",
    "model": "model of the policy", "promoted": "promoted model",
}  # fmt: skip
"""what a decision rests on beside its inputs"""
Made: TypeAlias = Policy | str


class NotAgain(NamedTuple):
    """Why a cycle cannot be decided again; damaged: what was kept of it was changed or cut."""

    reason: str
    damaged: bool = False


@dataclass(frozen=True)
class Audited:
    """One cycle: the same where it is neither different nor could not be decided again."""

    cycle: KeptCycle
    different: Difference | None = None
    not_again: NotAgain | None = None


class Audit:
    """Decides cycles again, each by a policy that is made as the one that decided it."""

    def __init__(self, ledger: LedgerFile, configured: str) -> None:
        """configured: the policy as the configuration names it; a site's own file is run only if it is named there."""
        self._ledger, self._configured = ledger, configured
        self._made: dict[tuple[tuple[str, str], ...], Made] = {}

    def decide_again(self, cycle: KeptCycle) -> Audited:
        """Whether the plan is the same. Raises LedgerError: the ledger cannot be read at all."""
        try:
            found = inputs(self._ledger, cycle.id)
        except LedgerDamaged as error:
            return Audited(cycle, not_again=NotAgain(str(error), damaged=True))
        if found is None:
            return Audited(cycle, not_again=NotAgain("its inputs were deleted meanwhile, as older than is kept"))
        try:
            return self._compared(cycle, found)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            reason = f"what is kept of it cannot be read by this release ({type(error).__name__}: {error})"
            return Audited(cycle, not_again=NotAgain(reason, damaged=True))

    def _compared(self, cycle: KeptCycle, found: Sequence[Any]) -> Audited:
        if len(found) < 5:
            return Audited(cycle, not_again=NotAgain("the release that decided it kept the inputs, not the plan"))
        given, forecasts = codec.rebuild(Snapshot, found[0]), codec.rebuild(Forecasts, found[1])
        memory, made_from, recorded = found[2:]
        policy = self._policy(cycle, made_from)
        if isinstance(policy, str):
            return Audited(cycle, not_again=NotAgain(policy))
        again = codec.loads(codec.dumps(decided_again(policy, given, forecasts, memory)))
        difference = first_difference(recorded, again, given.jobs.keys)
        if difference and (changed := _changed(made_from, policy.made_from)):
            return Audited(cycle, not_again=NotAgain(f"its plan is another one by {changed}"))
        return Audited(cycle, difference)

    def _policy(self, cycle: KeptCycle, made_from: Mapping[str, str]) -> Made:
        """The policy that decided it, made again; or why it cannot be."""
        key = tuple(sorted(made_from.items()))
        if key not in self._made:
            self._made[key] = self._make(cycle, made_from)
        return self._made[key]

    def _make(self, cycle: KeptCycle, made_from: Mapping[str, str]) -> Made:
        if not made_from:
            return f"policy {cycle.policy} was not made from a configuration"
        try:
            return policy_registry.made_again(made_from, self._promoted, own_file=self._configured)
        except (ConfigError, DataError) as error:
            return f"policy {cycle.policy} cannot be made again: {error}"

    def _promoted(self, digest: str) -> Model:
        if digest not in {each.digest for each in policy_models.models(self._ledger)}:
            raise DataError(f"the promoted model {digest[:12]} is not kept any more")
        return model_files.parse(policy_models.content(self._ledger, digest), digest[:12])


def decided_again(policy: Policy, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Mapping[str, Any]:
    """The plan as it would be kept; of a policy that fails the one that leaves the queue to Slurm, as in a cycle."""
    try:
        plan = valid_plan.validate_plan(snapshot, policy.decide(snapshot, forecasts, memory))
    except (Exception, SystemExit):  # noqa: BLE001 whatever a site's own policy raises: its plan is the empty one
        plan = guardrails.left_to_slurm(snapshot, memory)
    return as_kept(plan)


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed since of what a decision rests on; empty for nothing."""
    changed = [name for name in _NAMES if then.get(name) != now.get(name)]
    versions = {"slurmplug", "numpy"}
    return ", and ".join(
        f"another {_NAMES[name]}" + (f" ({then.get(name)} then, {now.get(name)} now)" if name in versions else "")
        for name in changed
    )


def audit(
    ledger: LedgerFile,
    cycles: Sequence[KeptCycle],
    configured: str,
    on_progress: Callable[[int, int], Any] | None = None,
) -> list[Audited]:
    """Decide these cycles again, the last one first: a policy that keeps anything but its memory has not kept the same.

    Raises:
        LedgerError: the ledger cannot be read at all
    """
    deciding, found = Audit(ledger, configured), []
    for number, cycle in enumerate(reversed(cycles), start=1):
        found.append(deciding.decide_again(cycle))
        if on_progress:
            on_progress(number, len(cycles))
    return found[::-1]


def passed(found: Sequence[Audited]) -> bool:
    """Whether no cycle differs, and nothing that is kept is damaged."""
    return not any(each.different or (each.not_again and each.not_again.damaged) for each in found)


@dataclass(frozen=True)
class _Sum:
    """The cycles that one policy decided."""

    policy: str
    found: Sequence[Audited]

    @property
    def different(self) -> int:
        return sum(each.different is not None for each in self.found)

    @property
    def not_again(self) -> int:
        return sum(each.not_again is not None for each in self.found)

    @property
    def same(self) -> int:
        return len(self.found) - self.different - self.not_again


_FIELDS: Sequence[Field[_Sum]] = (
    Field("POLICY", "text", 24, "", lambda each: each.policy, left=True),
    Field("CYCLES", "integer", 8, "", lambda each: len(each.found)),
    Field("SAME", "integer", 8, "", lambda each: each.same),
    Field("DIFFERENT", "integer", 9, "", lambda each: each.different),
    Field("NOTAGAIN", "integer", 8, "", lambda each: each.not_again),
    Field("FIRST", "time", 19, "", lambda each: each.found[0].cycle.at),
    Field("LAST", "time", 19, "", lambda each: each.found[-1].cycle.at),
)


def _sums(found: Sequence[Audited]) -> list[_Sum]:
    groups: dict[str, list[Audited]] = defaultdict(list)
    for each in found:
        groups[each.cycle.policy].append(each)
    return [_Sum(policy, groups[policy]) for policy in sorted(groups)]


def _by_reason(found: Sequence[Audited]) -> Mapping[NotAgain, list[int]]:
    groups: dict[NotAgain, list[int]] = defaultdict(list)
    for each in found:
        if each.not_again is not None:
            groups[each.not_again].append(each.cycle.id)
    return groups


def as_json(found: Sequence[Audited]) -> dict[str, Any]:
    """What `slurmplug audit --json` prints."""
    whole = _Sum("", found)
    return {
        "cycles": len(found),
        "same": whole.same,
        "different": [_difference_as_json(each.cycle, each.different) for each in found if each.different],
        "not_again": [{**why._asdict(), "cycles": cycles} for why, cycles in _by_reason(found).items()],
        "policies": [table.as_dict(_FIELDS, each) for each in _sums(found)],
    }


def _difference_as_json(cycle: KeptCycle, found: Difference) -> dict[str, Any]:
    job = found.job.job_id if found.job else None
    return {"cycle": cycle.id, "at": cycle.at, "policy": cycle.policy, **found._asdict(), "job": job}


def lines(found: Sequence[Audited]) -> Iterator[str]:
    """What `slurmplug audit` prints."""
    if not found:
        yield (
            "No inputs are kept of such cycles: those that wrote to Slurm have them, and one in five minutes, "
            "or in one where jobs came, started or ended (ledger.keep_inputs_days)."
        )
        return
    sums = _sums(found)
    yield from (
        line.rstrip() for line in table.format_lines(_FIELDS, table.columns(_FIELDS, sums), rule=False, fit=True)
    )
    different = [each for each in found if each.different]
    for each in different[:SHOWN]:
        yield _sentence(each.cycle, each.different)
    if len(different) > SHOWN:
        yield f"... and {counted(len(different) - SHOWN, 'cycle')} more that differ: --json has all."
    for why, cycles in _by_reason(found).items():
        yield printable(f"{_named(cycles)} could not be decided again: {why.reason}.")
    if all(each.same == len(each.found) for each in sums):
        yield "Every cycle was decided again, with the same plan to the last bit."


def _sentence(cycle: KeptCycle, found: Difference | None) -> str:
    assert found is not None
    of = f" of job {found.job.job_id}" if found.job else ""
    return printable(
        f"Cycle {cycle.id} ({times.format_time(cycle.at)}) differs: {found.field}{of} was {found.recorded} and is "
        f"{found.again} now."
    )


def _named(cycles: Sequence[int]) -> str:
    if len(cycles) == 1:
        return f"Cycle {cycles[0]}"
    return f"{counted(len(cycles), 'cycle')} (from {cycles[0]} to {cycles[-1]})"
