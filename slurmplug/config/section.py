"""What the tables of the configuration are made of: settings, each with its type, its default and its description.

pydantic would do the same, but takes 0.1 s to load, and every report of every user reads the configuration.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from slurmplug.config.values import Invalid, Mistake, value_of


class Setting(NamedTuple):
    """A key of a table. kind: its type, as `values.value_of` takes it."""

    kind: Any
    default: Callable[[], Any]
    description: str


def setting(default: Any = None, *, default_factory: Callable[[], Any] | None = None, description: str = "") -> Any:
    """Declares a key in the body of a `Section`, as in `grace: Seconds = setting(300.0, description="...")`."""
    return default_factory or (lambda: default), description


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section:
    """A table of the file. Unknown keys are errors. Its values cannot be assigned to."""

    settings: ClassVar[Mapping[str, Setting]]

    def __init_subclass__(cls) -> None:
        """Takes the keys from the annotations; the default of one that is itself a table is that table."""
        found = {}
        for name, kind in cls.__annotations__.items():
            declared = cls.__dict__[name]
            inner = isinstance(declared, Section)
            found[name] = Setting(kind, *((lambda table=declared: table, "") if inner else declared))
            delattr(cls, name)
        cls.settings = found

    def __init__(self, /, **values: Any) -> None:
        """values: those of keys; the others have their defaults.

        Raises:
            Invalid: with every mistake.
        """
        mistakes: list[Mistake] = []
        for name, each in self.settings.items():
            try:
                self.__dict__[name] = value_of(each.kind, values[name]) if name in values else each.default()
            except Invalid as error:
                mistakes += error.within(name)
        mistakes += [Mistake((name,), self._unknown(name)) for name in values if name not in self.settings]
        if mistakes:
            raise Invalid(mistakes)
        self.check()

    @classmethod
    def from_table(cls, table: Any) -> Self:
        """A table of the file as TOML has it. Raises Invalid, with every mistake."""
        if not isinstance(table, Mapping):
            raise Invalid.of("must be a table")
        return cls(**table)

    def check(self) -> None:
        """Raises Invalid where its values, each valid, do not go together."""

    def replaced(self, **values: Any) -> Self:
        """The same with these values. Raises Invalid."""
        return type(self)(**{**self.__dict__, **values})

    def _unknown(self, name: str) -> str:
        import difflib  # noqa: PLC0415  only where there is a mistake

        near = difflib.get_close_matches(name, self.settings, n=1)
        return f"unknown key, did you mean {near[0]}?" if near else f"unknown key; known: {', '.join(self.settings)}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be assigned to; use replaced()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"
