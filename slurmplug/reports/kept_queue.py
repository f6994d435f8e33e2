"""The queue that the ledger kept last, and what the daemon has learnt by which it is forecast."""

from policies.snapshot import Snapshot
from predictors.learning_curve import LearningCurvePredictor
from predictors.runtime import RuntimePredictor
from slurmplug.cluster.limits import Limits
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.forecasting.starts.start_outcomes import NO_OUTCOMES, STARTS, StartOutcomes
from slurmplug.forecasting.starts.wait_model import WAITS, WaitModel
from slurmplug.ledger import codec, cycle_queries, kept_limits
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.inputs import inputs, kept


def latest(ledger: LedgerFile) -> Snapshot | None:
    """The snapshot of the last cycle whose inputs are kept; None where there is none. Raises LedgerError."""
    cycles = kept(ledger)
    found = inputs(ledger, cycles[-1].id) if cycles else None
    if found is None:
        return None
    try:
        snapshot: Snapshot = codec.rebuild(Snapshot, found[0])
    except ValueError as error:
        raise ledger.damaged(error) from error
    return snapshot


def limits(ledger: LedgerFile) -> Limits | None:
    """The limits of QOS and associations, as the daemon last read them; None where it has not. Raises LedgerError."""
    return kept_limits.last(ledger)


def outcomes(ledger: LedgerFile) -> StartOutcomes:
    """How starts came that were forecast, as the daemon last learnt; none, where that is of another release."""
    saved = cycle_queries.model(ledger, STARTS)
    return NO_OUTCOMES if saved is None or saved[0] != StartOutcomes.version else StartOutcomes.from_state(saved[2])


def wait_model(ledger: LedgerFile) -> WaitModel | None:
    """The daemon's model of waits; None where there is none of this release."""
    saved = cycle_queries.model(ledger, WAITS)
    return None if saved is None or saved[0] != WaitModel.version else WaitModel.from_state(saved[2])


def forecaster(ledger: LedgerFile) -> Forecaster:
    """One with the daemon's saved predictors; one that has learnt nothing, where there are none of this release."""
    runtime, speed = (cycle_queries.model(ledger, name) for name in ("runtime", "speed"))
    made = Forecaster()
    try:
        made.use(
            RuntimePredictor() if runtime is None else RuntimePredictor.from_state(runtime[2]),
            LearningCurvePredictor(),
            None if speed is None else SeenSpeeds.from_state(speed[2]),
        )
    except ValueError:  # of another release: the daemon trains them anew
        return Forecaster()
    return made
