"""What the jobs of a QOS, an account or a user have used, TRES times seconds, which limits like GrpTRESMins go by."""

import numpy as np

from predictors.arrays import Bools, Floats


class UsedSeconds:
    """The use of each tally, `amounts` (tallies, kinds), which halves every half-life (PriorityDecayHalfLife)."""

    def __init__(self, decays: Bools, kinds: int, half_life: float) -> None:
        """decays: (tallies,) whether it does for a tally, as for all but QOS with the flag NoDecay. half_life: seconds,
        0 for never."""
        self.amounts: Floats = np.zeros((len(decays), kinds))
        self._holding = np.zeros_like(self.amounts)
        self._decays, self._half_life = (decays & (half_life > 0))[:, None], half_life
        self._at = 0.0

    @property
    def decay(self) -> bool:
        """Whether any becomes less with time."""
        return bool(self._decays.any())

    def advance(self, now: float) -> None:
        """Count what was held until now."""
        passed, half_life = now - self._at, self._half_life
        left = np.where(self._decays, 0.5 ** (passed / half_life) if half_life > 0 else 1.0, 1.0)
        gathered = np.where(self._decays, (1 - left) * half_life / np.log(2), passed)
        self.amounts = self.amounts * left + self._holding * gathered
        self._at = now

    def note_held(self, amounts: Floats) -> None:
        """The running jobs of each tally hold these amounts (tallies, kinds) from now on."""
        self._holding = amounts
