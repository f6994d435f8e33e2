"""What every table of the configuration is made of."""

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Strict


def _absolute(path: Path) -> Path:
    """A relative path would mean another file to the daemon, the commands and the jobs."""
    if not path.is_absolute():
        raise ValueError(f"must begin with /, not {str(path)!r}")
    return path


AbsolutePath: TypeAlias = Annotated[Path, Strict(False), AfterValidator(_absolute)]


class Section(BaseModel):
    """A table of the file. Unknown keys are errors; texts and truth values are not accepted as numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
