"""Mistakes in a configuration, said so that they can be mended."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_REQUIREMENTS: Mapping[str, str] = {
    "string_type": "must be a text",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "path_type": "must be a path, as a text",
    "frozen_set_type": "must be a list of texts",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
}
"""Plain wording for the errors of pydantic that would name Python's types."""


def requirement(error: Any) -> str:
    """What one of pydantic's errors (`ValidationError.errors()`) requires of a value: "must be a number"."""
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return _REQUIREMENTS.get(error["type"], message)


def mistake(error: Any, config: type[BaseModel]) -> str:
    """One of these errors in a line: where it is, what is required there, and the nearest valid key."""
    where = ".".join(map(str, error["loc"]))
    section: Any = config
    for step in error["loc"][:-1]:
        inner = section.model_fields[step].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        section = inner
    if error["type"] == "string_pattern_mismatch":
        return f"  {where}: expected {section.model_fields[error['loc'][-1]].description}"
    if error["type"] != "extra_forbidden":
        return f"  {where}: {requirement(error)}" if where else f"  {requirement(error)}"
    word = str(error["loc"][-1])
    near = difflib.get_close_matches(word, section.model_fields, n=1)
    return f"  {where}: unknown key" + (
        f", did you mean {near[0]}?" if near else f"; known: {', '.join(section.model_fields)}"
    )
