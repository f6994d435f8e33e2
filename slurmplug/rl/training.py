"""One training: which module trains which learnt policy, with which settings, and what it leaves beside its model."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from policies.model import Model
from slurmplug.config import model_files
from slurmplug.config.mistakes import requirement
from slurmplug.errors import DataError, UsageError
from slurmplug.rl.checkpoint import Checkpoint

TRAINED_BY = {"dl2": "slurmplug.rl.dl2", "mlf-rl": "slurmplug.rl.mlf_rl"}
"""A module has `Settings`, a dataclass, and `train(settings, progress, checkpoint)`."""
Progress = Callable[[str, int, Mapping[str, float]], Any]
"""Called with the stage, its step and figures by name."""


@dataclass(frozen=True)
class Training:
    """policy: its name. given: settings by name, the others have their defaults. out: the file of the model; beside it
    is the folder OUT.run, with the checkpoint while it trains, and the curves."""

    policy: str
    given: Mapping[str, Any]
    out: Path

    @property
    def folder(self) -> Path:
        """OUT.run."""
        return self.out.with_name(f"{self.out.name}.run")

    def run(self, progress: Progress) -> Model:
        """Train, from the checkpoint on if there is one, and write the model.

        Raises:
            UsageError: a setting is unknown or cannot be used, or a library that training needs is not installed
            DataError: a file cannot be read or written
        """
        trainer, settings = _trainer(self.policy), self.settings()
        checkpoint = Checkpoint(self.folder / "checkpoint", self._about(settings))
        with closing(library("slurmplug.rl.curves").Curves(self.folder)) as curves:

            def show(stage: str, step: int, figures: Mapping[str, float]) -> None:
                curves.add(stage, step, figures)
                progress(stage, step, figures)

            model: Model = trainer.train(settings, show, checkpoint)
        model = replace(model, facts={**model.facts, "slurmplug": version("slurmplug")})
        model_files.write(model, self.out)
        checkpoint.remove()
        return model

    def settings(self) -> Any:
        """The settings of the policy's training, all of them.

        Raises:
            UsageError
        """
        kind = _trainer(self.policy).Settings
        known = [field.name for field in fields(kind)]
        for name in self.given.keys() - set(known):
            raise UsageError(f"training of {self.policy} has no setting {name!r}; known: {', '.join(known)}")
        try:
            return TypeAdapter(kind).validate_python(dict(self.given))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"{where}: {requirement(first)}, not {first['input']!r}") from error

    def finished(self) -> bool:
        """Whether the model is there, made with these settings.

        Raises:
            UsageError
        """
        try:
            model = model_files.read(self.out) if self.out.exists() else None
        except DataError:
            return False
        about = self._about(self.settings())
        return model is not None and {"policy": model.policy, **model.facts}.items() >= about.items()

    def _about(self, settings: Any) -> dict[str, str]:
        return {"policy": self.policy, **{name: str(value) for name, value in asdict(settings).items()}}


def _trainer(policy: str) -> Any:
    return library(TRAINED_BY[policy])


def library(module: str) -> Any:
    """A module that imports what may not be installed.

    Raises:
        UsageError: it is not
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"training needs {error.name}, which is not installed: pip install 'slurmplug[rl]'") from error
