"""Values of the configuration, as TOML has them, by the types that are declared for them.

A type is `str`, `bool`, `int`, `float`, `Path`, `Any`, a `Literal` of texts, a type or None, a frozenset, a dict with
texts as keys, a class with `from_table`, or `Annotated` of one of these with rules: functions that return the value, or
raise ValueError with what is required of it. Texts and truth values are not accepted as numbers.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias, Union, get_args, get_origin

REQUIREMENTS: Mapping[type, str] = {
    str: "must be a text",
    float: "must be a number",
    int: "must be a whole number",
    bool: "must be true or false",
    Path: "must be a path, as a text",
}


class Mistake(NamedTuple):
    """What is required of a value. place: its keys and indices, from the outermost."""

    place: tuple[str | int, ...]
    what: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.place))}: {self.what}" if self.place else self.what


class Invalid(ValueError):
    """A value is not of its type. mistakes: all that is wrong with it."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = mistakes

    @classmethod
    def of(cls, what: str) -> Self:
        """With one mistake, about the whole value."""
        return cls([Mistake((), what)])

    def within(self, step: str | int) -> list[Mistake]:
        """The mistakes as those of the value with this key or index."""
        return [Mistake((step, *each.place), each.what) for each in self.mistakes]

    def __reduce__(self) -> tuple[type[Self], tuple[Sequence[Mistake]]]:
        return type(self), (self.mistakes,)


def value_of(kind: Any, value: Any) -> Any:
    """The value as one of this type. Raises Invalid, with every mistake."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _ruled(value_of(arguments[0], value), arguments[1:])
    if origin in (Union, UnionType):
        [inner] = [each for each in arguments if each is not NoneType]
        return None if value is None else value_of(inner, value)
    if origin is Literal:
        if value not in arguments:
            *others, last = map(repr, arguments)
            raise Invalid.of(f"must be {', '.join(others)} or {last}")
        return value
    if origin is frozenset:
        if not isinstance(value, list | tuple | set | frozenset):
            raise Invalid.of("must be a list of texts")
        return frozenset(_each(arguments[0], enumerate(value)).values())
    if origin is dict:
        if not isinstance(value, Mapping):
            raise Invalid.of("must be a table")
        return _each(arguments[1], value.items())
    if hasattr(kind, "from_table"):
        return value if isinstance(value, kind) else kind.from_table(value)
    return _plain(kind, value)


def _plain(kind: Any, value: Any) -> Any:
    if kind is Any or type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise Invalid.of("must be a finite number") from error
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise Invalid.of(REQUIREMENTS[kind])


def _ruled(value: Any, rules: Iterable["Rule"]) -> Any:
    try:
        for rule in rules:
            value = rule(value)
    except ValueError as error:
        raise Invalid.of(str(error)) from error
    return value


def _each(kind: Any, items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    mistakes: list[Mistake] = []
    for step, value in items:
        try:
            found[step] = value_of(kind, value)
        except Invalid as error:
            mistakes += error.within(step)
    if mistakes:
        raise Invalid(mistakes)
    return found


Rule: TypeAlias = Callable[[Any], Any]


def _bound(holds: Callable[[Any, Any], bool], required: str) -> Callable[[float], Rule]:
    """Makes rules of numbers, which may be infinite: those for which this holds beside the limit."""

    def limited(limit: float) -> Rule:
        def rule(value: float) -> float:
            if not holds(value, limit):
                raise ValueError(f"must be {required} {limit}")
            return value

        return rule

    return limited


above = _bound(operator.gt, "greater than")
at_least = _bound(operator.ge, "greater than or equal to")
below = _bound(operator.lt, "less than")
at_most = _bound(operator.le, "less than or equal to")


def finite(value: float) -> float:
    """A rule: neither NaN nor infinite."""
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def matching(pattern: str, expected: str) -> Rule:
    """A text that this regular expression matches as a whole. expected: what that is, in words."""

    def rule(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f"expected {expected}")
        return value

    return rule


def _absolute(path: Path) -> Path:
    """A relative path would mean another file to the daemon, the commands and the jobs."""
    if not path.is_absolute():
        raise ValueError(f"must begin with /, not {str(path)!r}")
    return path


AbsolutePath: TypeAlias = Annotated[Path, _absolute]
Seconds: TypeAlias = Annotated[float, finite, above(0)]
NonNegative: TypeAlias = Annotated[float, finite, at_least(0)]
Share: TypeAlias = Annotated[float, at_least(0), at_most(1)]
Count: TypeAlias = Annotated[int, at_least(0)]
Positive: TypeAlias = Annotated[int, above(0)]
