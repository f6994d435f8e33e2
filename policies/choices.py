"""A plan as a sequence of choices among numbered ones: the form in which a policy that learns decides."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from policies.plan import Plan
from predictors.arrays import Bools


class Choices(Protocol):
    """One decision under way. A policy's `decide` and whoever trains it both go: until `done`, `choose` by `state` and
    `mask`; then `plan`.

    state: what the present choice is made by, arrays of float32 by name; each always has the same number of axes, and
    the leading ones may be as long as there are jobs or nodes. mask: (k,) which numbers may be chosen, at least one of
    them; in another choice k may be another. After the last choice `state` and `mask` are undefined.
    """

    done: bool
    """whether nothing is left to choose"""

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        """What the present choice is made by."""
        ...

    @property
    def mask(self) -> Bools:
        """Which numbers may be chosen."""
        ...

    def choose(self, number: int) -> None:
        """Make the present choice."""
        ...

    def plan(self) -> Plan:
        """The plan that the choices made so far amount to."""
        ...
