"""Values of the configuration by their types: what is taken, what is converted, and what is said of the rest."""

import pickle
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from slurmplug.config.schema import Config, Modes
from slurmplug.config.values import (
    AbsolutePath,
    Count,
    Invalid,
    NonNegative,
    Positive,
    Seconds,
    Share,
    at_least,
    below,
    matching,
    value_of,
)

NAN, INFINITE = float("nan"), float("inf")
Letter = Literal["a", "b", "c"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (float, 3, 3.0),
        (int, 3, 3),
        (str, "", ""),
        (bool, False, False),
        (Path, "x", Path("x")),
        (AbsolutePath | None, None, None),
        (AbsolutePath | None, "/x", Path("/x")),
        (Letter, "b", "b"),
        (frozenset[str], ["x", "y", "x"], frozenset("xy")),
        (frozenset[Letter], [], frozenset()),
        (dict[str, Seconds], {"x": 1}, {"x": 1.0}),
        (dict[str, dict[str, Any]], {"x": {"y": [1]}}, {"x": {"y": [1]}}),
        (Annotated[float, at_least(1)], INFINITE, INFINITE),
        (Share, 1, 1.0),
        (Count, 0, 0),
        (NonNegative, 0, 0.0),
        (Modes, {"default": "act"}, Modes(default="act")),
        (Modes, Modes(stop="act"), Modes(stop="act")),
    ],
)
def test_what_is_of_the_type_is_taken(kind: Any, value: Any, expected: Any) -> None:
    found = value_of(kind, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (float, True, "must be a number"),
        (float, "3", "must be a number"),
        (float, None, "must be a number"),
        (Seconds, 10**400, "must be a finite number"),
        (Seconds, NAN, "must be a finite number"),
        (Seconds, 0, "must be greater than 0"),
        (Annotated[float, at_least(1)], NAN, "must be greater than or equal to 1"),
        (Annotated[float, below(1)], 1, "must be less than 1"),
        (Share, 1.5, "must be less than or equal to 1"),
        (int, True, "must be a whole number"),
        (int, 1.0, "must be a whole number"),
        (Positive, 0, "must be greater than 0"),
        (Count | None, -1, "must be greater than or equal to 0"),
        (str, 3, "must be a text"),
        (bool, 1, "must be true or false"),
        (AbsolutePath, 3, "must be a path, as a text"),
        (AbsolutePath, "x", "must begin with /, not 'x'"),
        (Letter, "d", "must be 'a', 'b' or 'c'"),
        (Letter, ["a"], "must be 'a', 'b' or 'c'"),
        (frozenset[str], "x", "must be a list of texts"),
        (frozenset[str], ["x", 1, None], "1: must be a text; 2: must be a text"),
        (dict[str, Seconds], [1], "must be a table"),
        (dict[str, Seconds], {"x": 0, "y": 1, "z": ""}, "x: must be greater than 0; z: must be a number"),
        (Annotated[str, matching("[a-z]", "a letter")], "a\n", "expected a letter"),
        (Modes, "act", "must be a table"),
        (Modes, {"stop": "no", "rankk": 1}, "stop: must be 'observe', 'advise' or 'act'; rankk: unknown key, did"),
    ],
)
def test_what_is_not_is_said_with_its_place(kind: Any, value: Any, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        value_of(kind, value)
    assert str(caught.value).startswith(said)


def test_a_configuration_cannot_be_assigned_to_and_is_replaced() -> None:
    config = Config()
    with pytest.raises(AttributeError, match=r"Config\.interval cannot be assigned to"):
        config.interval = 3.0  # type: ignore[misc]
    assert config.replaced(interval=3).interval == 3.0
    assert config.replaced(interval=3) != config
    with pytest.raises(Invalid, match="interval: must be greater than 0"):
        config.replaced(interval=0)


def test_tables_that_are_not_given_are_not_shared() -> None:
    assert Config().policies is not Config().policies


def test_a_configuration_and_its_mistakes_go_to_other_processes() -> None:
    config = Config.from_table({"mode": {"stop": "act"}, "guardrails": {"exclude_users": ["ada"]}})
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(Invalid) as caught:
        Config(interval=-1.0)
    assert pickle.loads(pickle.dumps(caught.value)).mistakes == caught.value.mistakes
