"""What DL2's online stage learns from: choices made, with what came of them."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from policies.model import Singles
from predictors.arrays import Bools, Floats, Ints


class Choice(NamedTuple):
    """A choice made.

    state (k, features), mask (k + 1,), with parameter servers (3 k + 1,): those that it was made by. number: what was
    chosen. after (k, features + 1): the state after it with the same rows, as the value network reads it; None where
    that is not known. returns (k,): what each job trained from the beginning of the slot on, with a discount of later
    slots. reward: of the slot.
    """

    state: Singles
    mask: Bools
    number: int
    after: Singles | None
    returns: Singles
    reward: float


class Replay:
    """The latest choices, so many at most; a part of a training's state, as `torch_state` keeps it."""

    def __init__(self, most: int) -> None:
        self._kept: deque[Choice] = deque(maxlen=most)

    def add(self, choices: Iterable[Choice]) -> None:
        """Keep these, in place of the oldest ones where there are too many."""
        self._kept.extend(choices)

    @property
    def choices(self) -> Sequence[Choice]:
        """All that are kept, the oldest first."""
        return self._kept

    def state_dict(self) -> dict[str, Any]:
        """The choices by columns, those of all choices one after the other."""
        if not self._kept:
            return {}
        states, masks, numbers, afters, returns, rewards = zip(*self._kept, strict=True)
        known = [each for each in afters if each is not None]
        width = states[0].shape[1] + 1
        return {
            "jobs": np.array([len(each) for each in states]),
            "state": np.concatenate(states),
            "mask": np.concatenate(masks),
            "number": np.array(numbers),
            "known": np.array([each is not None for each in afters]),
            "after": np.concatenate(known) if known else np.zeros((0, width), dtype=np.float32),
            "returns": np.concatenate(returns),
            "reward": np.array(rewards),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep the choices that `state_dict` gave, and no others.

        Raises:
            KeyError, ValueError: it gave no such thing
        """
        self._kept.clear()
        if not state:
            return
        column = {name: np.asarray(each) for name, each in state.items()}
        jobs, known = column["jobs"], column["known"]
        actions = (len(column["mask"]) - len(jobs)) // int(jobs.sum())
        afters = iter(_split(column["after"], jobs[known]))
        rows = zip(
            _split(column["state"], jobs), _split(column["mask"], actions * jobs + 1), column["number"].tolist(),
            known.tolist(), _split(column["returns"], jobs), column["reward"].tolist(), strict=True,
        )  # fmt: skip
        self.add(
            Choice(each, mask, number, next(afters) if is_known else None, returns, reward)
            for each, mask, number, is_known, returns, reward in rows
        )


def _split(column: Floats, sizes: Ints) -> list[Any]:
    """The column cut into parts of these sizes. Raises ValueError where their sum is another."""
    if sizes.sum() != len(column):
        raise ValueError(f"{len(column)} values are not those of {sizes.sum()} jobs")
    return np.split(column, np.cumsum(sizes)[:-1]) if len(sizes) else []
