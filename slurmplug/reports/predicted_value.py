"""A forecast as the reports show it, beside what came."""

from typing import NamedTuple


class PredictedValue(NamedTuple):
    """A prediction and the ends of its 90 % interval; None where nothing was predicted."""

    value: float | None
    low: float | None
    high: float | None

    def signed(self, sign: float) -> "PredictedValue":
        """With the job's own sign: predictors get the negative of a quantity that is better when lower (sign -1)."""
        if sign > 0 or self.value is None or self.low is None or self.high is None:
            return self
        return PredictedValue(-self.value, -self.high, -self.low)

    def holds(self, actual: float | None) -> bool | None:
        """Whether the actual value lies in the interval; None where either is not known."""
        if actual is None or self.low is None or self.high is None:
            return None
        return self.low <= actual <= self.high


UNPREDICTED = PredictedValue(None, None, None)
