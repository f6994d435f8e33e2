"""Finding and making policies: the entry points of the group `slurmplug.policies`, and a site's own file."""

import difflib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import fields, replace
from hashlib import sha256
from importlib.metadata import entry_points, version
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import from_json, to_json

from policies.mlfs.mlfs import MLFSSettings
from policies.mlfs.with_early_stopping import WithEarlyStopping
from policies.model import Model
from policies.policy import DECIDES_ON, LearntPolicy, Policy
from predictors.forecast import NEEDS
from slurmplug.config import model_files
from slurmplug.config.mistakes import requirement
from slurmplug.config.policy_names import GROUP, names
from slurmplug.config.schema import Config
from slurmplug.errors import ConfigError, DataError

FALLBACK = "mlf-h"
"""decides where a learnt policy may not"""


def policy(config: Config, model: Model | None = None) -> Policy:
    """Make the policy that the configuration names, with its settings from there.

    The name is that of an entry point, or FILE.py:CLASS; the settings of the latter are in the table of the class's
    own `name`. A policy with a setting `interval` gets the daemon's, unless its table has another.

    model: of a learnt policy, instead of the one that its settings name.

    Raises:
        ConfigError: there is no such policy, it cannot be loaded, or a setting is not valid.
    """
    kind, default = _load_class(config.policy)
    name, known = kind.name, [field.name for field in fields(default)]
    settings = config.policies.get(config.policy, config.policies.get(name, {}))
    for key in settings:
        if key not in known:
            hint = _hint(key, known) if known else "it has no settings"
            raise ConfigError(f"policies.{name}.{key}: unknown key; {hint}")
    types = _types(default)
    for key, value in settings.items():
        for mistake in _mistakes(types[key], value):
            raise ConfigError(f"policies.{name}.{key}{mistake}")
    made = {**({"interval": config.interval} if "interval" in known else {}), **settings}
    complete = _make(kind, name, _replaced(name, default, made), model)
    object.__setattr__(complete, "made_from", _made_from(config, complete))  # a site's policy may be a frozen dataclass
    return complete


def made_again(made_from: Mapping[str, str], promoted_model: Callable[[str], Model], own_file: str) -> Policy:
    """A policy that is made of the same as that one: its configuration, and the promoted model, if it decided by one.

    Its own `made_from` differs where its code or model is not the same any more.

    promoted_model: that of this digest. own_file: the only FILE.py:CLASS that may be run.

    Raises:
        ConfigError: as for `policy`
    """
    try:
        config = Config.from_table(from_json(made_from["configuration"]))
    except ValueError as error:
        raise ConfigError(f"the record of the policy that decided cannot be read: {error}") from error
    if _is_file(config.policy) and config.policy != own_file:
        raise ConfigError(f"{config.policy} is not run, as the configuration does not name it any more")
    configured = policy(config)
    return promoted(config, promoted_model(made_from["promoted"]), configured) if made_from["promoted"] else configured


def _made_from(config: Config, made: Policy) -> Mapping[str, str]:
    """All that its decisions rest on but its inputs: its code, its part of the configuration, and its model."""
    part = {"policy": config.policy, "interval": config.interval, "policies": config.policies}
    file = config.policy.rsplit(":", 1)[0] if _is_file(config.policy) else ""
    return MappingProxyType(
        {
            "configuration": to_json(part, inf_nan_mode="constants").decode(),
            "promoted": "",
            "model": made.model_digest if isinstance(made, LearntPolicy) else "",
            "code": sha256(Path(file).read_bytes()).hexdigest() if file else "",
            "slurmplug": version("slurmplug"),
            "numpy": np.__version__,
        }
    )


def with_model(config: Config, model: Model) -> Policy:
    """The installed learnt policy that this model is of, deciding by it; its other settings are the configuration's.

    Raises:
        ConfigError: there is no such policy, or it cannot decide by this model
    """
    if model.policy not in names():
        raise ConfigError(f"it is a model of {model.policy!r:.100}; {_hint(model.policy, names())}")
    made = policy(config.replaced(policy=model.policy), model)
    if not made.learnt:
        raise ConfigError(f"policy {model.policy} decides by no model")
    return made


def promoted(config: Config, model: Model, configured: Policy) -> Policy:
    """What decides once this model is promoted: its policy in place of the configured one. Where that has MLF-C's load
    control, the model's policy has it too.

    Raises:
        ConfigError: as for `with_model`
    """
    learnt, settings = with_model(config, model), configured.settings
    stops = isinstance(settings, MLFSSettings) and settings.load_control
    made = WithEarlyStopping(learnt, settings) if stops else learnt
    made.made_from = MappingProxyType({**configured.made_from, "promoted": model.digest})
    return made


def fallback(config: Config, acting: Policy, configured: Policy) -> Policy | None:
    """The policy that decides where a learnt one may not: the configured one, or mlf-h where that is learnt itself.

    None is needed beside a policy that has learnt nothing.

    Raises:
        ConfigError: as for `policy`, of the fallback's own settings
    """
    if not acting.learnt:
        return None
    return policy(config.replaced(policy=FALLBACK)) if configured.learnt else configured


def own_name(policy: str) -> str:
    """The name under which a policy has its settings: its class's `name`.

    Args:
        policy: as `policy = ` of the configuration has it.

    Raises:
        ConfigError: there is no such policy, or it cannot be loaded.
    """
    return str(_load_class(policy)[0].name)


def _is_file(policy: str) -> bool:
    """Whether that names a class in a site's own file."""
    return ".py:" in policy


def _load_class(policy: str) -> tuple[Any, Any]:
    """The class, and its default settings."""
    try:
        return _checked_class(
            _class_from_file(*policy.rsplit(":", 1)) if _is_file(policy) else _installed_class(policy)
        )
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        where = {point.name: point.value for point in entry_points(group=GROUP)}.get(policy)
        origin = f"policy {policy} cannot be loaded" + (f" from {where}" if where else "")
        raise ConfigError(f"{origin}: {type(error).__name__}: {error}") from error


def _replaced(name: str, default: Any, settings: Mapping[str, Any]) -> Any:
    try:
        return replace(default, **settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"policies.{name}: {error}") from error


def _make(kind: Any, name: str, settings: Any, model: Model | None) -> Policy:
    try:
        learns = issubclass(kind, LearntPolicy)
        if not learns or not (kind.learnt or model or settings.model):
            plain: Policy = kind(settings)
            return plain
        whose = kind.models or name
        model = model or _model(whose, settings.model)
        model.require(whose, kind.version, kind.shapes, kind.optional)
        learnt: LearntPolicy = kind(settings, model)
        object.__setattr__(learnt, "model_digest", model.digest)
    except (DataError, TypeError, ValueError) as error:
        where = f"policies.{name}.model: " if isinstance(error, DataError) else f"policies.{name}: "
        raise ConfigError(f"{where}{error}") from error
    return learnt


def _model(name: str, path: str) -> Model:
    """The model in that file, or the one that slurmplug comes with.

    Raises:
        DataError: it cannot be used, or there is none
    """
    if path:
        return model_files.read(Path(path).absolute())
    if (found := model_files.shipped(name)) is None:
        raise DataError(f"slurmplug comes with no model of {name}: name the file of one that `slurmplug train` wrote")
    return found


def _types(default: Any) -> Mapping[str, Any]:
    """The declared types of the settings; where one cannot be resolved, those of the defaults."""
    try:
        return get_type_hints(type(default), include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {field.name: type(getattr(default, field.name)) for field in fields(default)}


def _mistakes(kind: Any, value: Any) -> Iterator[str]:
    """What of a setting is not of its type; nothing where pydantic does not know the type.

    The value is read as JSON, which has lists where a type may be a tuple or a set.
    """
    try:
        TypeAdapter(kind).validate_json(to_json(value, inf_nan_mode="constants"), strict=True)
    except ValidationError as error:
        for each in error.errors():
            place = "".join(f".{step}" for step in each["loc"] if isinstance(step, int))
            yield f"{place}: {requirement(each)}, not {each['input']!r}"
    except PydanticUserError:
        return


def _installed_class(name: str) -> Any:
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        hint = "a policy of your own is FILE.py:CLASS" if name.endswith(".py") else _hint(name, sorted(found))
        raise ConfigError(f"there is no policy {name!r}; {hint}")
    return found[name].load()


def _class_from_file(file: str, name: str) -> Any:
    """The class of that name in a Python file that nobody but its owner and group can write."""
    path = Path(file).absolute()
    if not path.is_file():
        raise ConfigError(f"there is no policy file {path}")
    about = path.stat()
    if about.st_mode & stat.S_IWOTH or about.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{path} is not run: it belongs to another user, or everybody can write it")
    module = ModuleType(f"slurmplug_site_{path.stem}")
    module.__file__ = str(path)
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module  # dataclasses resolve annotations there
    try:
        exec(
            compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__
        )  # not imported: no stale or cached code
    except BaseException:
        sys.modules.pop(module.__name__)
        if before is not None:
            sys.modules[module.__name__] = before
        raise
    return getattr(module, name)


def _checked_class(kind: type) -> tuple[Any, Any]:
    """The class, with the defaults of `Policy` for what it does not declare, and its default settings.

    Raises:
        ConfigError, TypeError: it is no policy.
    """
    if not isinstance(kind, type):
        raise TypeError("it is not a class")
    base = LearntPolicy if getattr(kind, "learnt", False) else Policy
    complete: Any = kind if issubclass(kind, base) else type(kind.__name__, (kind, base), {})
    default = complete().settings
    fields(default)
    name, needs, decides_on = complete.name, complete.needs, complete.decides_on
    if not isinstance(name, str) or not name:
        raise ConfigError(f'policy {kind.__name__} has no name: give the class `name = "..."`')
    if not isinstance(needs, Set) or not needs <= NEEDS:
        raise ConfigError(
            f"policy {name} needs {needs!r}: say which forecasts, a frozenset of {', '.join(sorted(NEEDS))}"
        )
    if decides_on not in DECIDES_ON:
        raise ConfigError(f"policy {name} decides on {decides_on!r}: say one of {', '.join(sorted(DECIDES_ON))}")
    if complete.decide is Policy.decide or not callable(complete.decide):
        raise ConfigError(f"policy {name} does not decide: give it `def decide(self, snapshot, forecasts, memory)`")
    if complete.learnt and "model" not in {each.name for each in fields(default)}:
        raise ConfigError(
            f'policy {name} has learnt = True: give its settings `model: str = ""`, the path of its model'
        )
    return complete, default


def _hint(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(words)}"
