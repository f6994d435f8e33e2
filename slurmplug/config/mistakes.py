"""Mistakes in settings of policies, said so that they can be mended."""

from collections.abc import Mapping
from typing import Any

from slurmplug.config.values import REQUIREMENTS

_REQUIREMENTS: Mapping[str, str] = {
    "string_type": REQUIREMENTS[str],
    "float_type": REQUIREMENTS[float],
    "int_type": REQUIREMENTS[int],
    "bool_type": REQUIREMENTS[bool],
    "frozen_set_type": "must be a list of texts",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
}
"""Plain wording for the errors of pydantic that would name Python's types."""


def requirement(error: Any) -> str:
    """What one of pydantic's errors (`ValidationError.errors()`) requires of a value: "must be a number"."""
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return _REQUIREMENTS.get(error["type"], message)
