"""Policies by name: those that come with slurmplug, and what is said of those that do not load."""

from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.model import Model
from policies.policy import Policy
from predictors.forecast import Forecasts
from slurmplug.config import policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import ConfigError
from tests.builders import jobs, nodes, snapshot
from tests.learnt_models import file_of, mlf_rl, network_that_prefers, shipped


def made(name: str = "mlfs", **policies: Any) -> Any:
    return policy_registry.policy(Config.from_table({"policy": name, "interval": 30.0, "policies": policies}))


@pytest.mark.parametrize("name", policy_names.names())
def test_every_installed_policy_is_made_by_its_own_name_with_its_defaults(name: str) -> None:
    assert made(name).name == name


def test_the_policies_of_mlfs_are_installed() -> None:
    assert {"mlf-h", "mlfs"} <= set(policy_names.names())


def test_a_policy_is_made_with_its_table_and_not_with_anothers() -> None:
    assert made(mlfs={"epsilon": 0.25}, other={"x": 1}).settings.epsilon == 0.25


@pytest.mark.parametrize(("name", "message"), [("mlfss", "did you mean mlfs?"), ("zzzz", "mlf-h, mlf-rl, mlfs")])
def test_a_name_that_none_has_is_answered_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no policy '{name}'") as caught:
        made(name)
    assert message in str(caught.value)


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"policies\.mlfs\.epsilom: unknown key; did you mean epsilon\?"):
        made(mlfs={"epsilom": 0.25})


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("grow", "yes", "true or false"),
        ("grow", 1, "true or false"),
        ("epsilon", "much", "a number"),
        ("epsilon", True, "a number"),
        ("smoothing", 1.5, "a whole number"),
        ("form", 3, "'scaled' or 'literal'"),
        ("form", "scald", "'scaled' or 'literal'"),
        ("alpha", "0.1", "a number"),
    ],
)
def test_a_setting_of_another_type_is_refused_with_what_it_must_be(key: str, value: Any, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"policies\.mlfs\.{key}: must be {kind}, not {value!r}"):
        made(mlfs={key: value})


def test_a_list_is_asked_for_where_the_default_is_one() -> None:
    with pytest.raises(ConfigError, match=r"policies\.tiresias\.queues: must be a list, not 3"):
        made("tiresias", tiresias={"queues": 3})


def test_of_a_list_the_element_of_another_type_is_named() -> None:
    with pytest.raises(ConfigError, match=r"policies\.tiresias\.queues\.1: must be a number, not 'x'"):
        made("tiresias", tiresias={"queues": [3600, "x"]})


def test_a_list_is_accepted_for_a_tuple_and_nan_for_a_number() -> None:
    assert made("tiresias", tiresias={"queues": [3600, 7200.0]}).settings.queues == (3600, 7200.0)
    assert np.isnan(made(mlfs={"minimum_accuracy": float("nan")}).settings.minimum_accuracy)


def test_a_whole_number_is_a_number_too() -> None:
    assert made("fair", fair={"quantum": 60}).settings.quantum == 60


def test_a_policy_without_settings_says_so() -> None:
    with pytest.raises(ConfigError, match=r"policies\.slurm\.x: unknown key; it has no settings"):
        made("slurm", slurm={"x": 1})


def test_a_file_without_its_class_is_told_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match=r"there is no policy 'ours\.py'; a policy of your own is FILE\.py:CLASS"):
        made("ours.py")


@pytest.mark.parametrize("settings", [{"epsilon": 2.0}, {"overload_enter": 0}])
def test_a_setting_that_the_policy_refuses_is_an_error_of_the_configuration(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"policies\.mlfs: "):
        made(mlfs=settings)


@dataclass(frozen=True)
class Timed:
    interval: float = 60.0


class Clock:
    name = "clock"
    needs: frozenset[str] = frozenset()

    def decide(self) -> None: ...

    def __init__(self, settings: Timed | None = None) -> None:
        self.settings = settings or Timed()


class NoSettings:
    name = "none"
    settings = None


def raises() -> None:
    raise RuntimeError("its own trouble")


HERE = "tests.unit.config.test_policy_registry"
BROKEN = {
    "missing module": "no.such.module:Policy",
    "missing name": f"{HERE}:Nothing",
    "raises": f"{HERE}:raises",
    "no settings": f"{HERE}:NoSettings",
}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"clock": f"{HERE}:Clock", **BROKEN}
    found = [EntryPoint(name, value, policy_names.GROUP) for name, value in points.items()]
    monkeypatch.setattr(policy_registry, "entry_points", lambda group: found)


@pytest.mark.usefixtures("installed")
def test_a_policy_that_knows_of_an_interval_is_told_the_daemons() -> None:
    assert made("clock").settings.interval == 30.0
    assert made("clock", clock={"interval": 5.0}).settings.interval == 5.0


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", BROKEN)
def test_a_policy_that_does_not_load_is_named_with_where_it_is(name: str) -> None:
    with pytest.raises(ConfigError, match=f"policy {name} cannot be loaded from {BROKEN[name]}"):
        made(name)


OURS = """
from dataclasses import dataclass
import numpy as np
from policies.plan import Plan

@dataclass(frozen=True)
class Settings:
    weight: float = 1.0

class Ours:
    name, needs = "ours", frozenset()

    def __init__(self, settings=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        return Plan(self.settings.weight * snapshot.jobs.gpus)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ours.py"
    path.write_text(OURS)
    path.chmod(0o644)
    return path


def test_a_policy_is_a_class_in_a_file_of_the_sites_own(file: Path) -> None:
    assert made(f"{file}:Ours", ours={"weight": 2.5}).settings.weight == 2.5


def test_a_file_that_was_changed_is_read_anew(file: Path) -> None:
    assert made(f"{file}:Ours").settings.weight == 1.0
    file.write_text(OURS.replace("1.0", "10.0"))
    assert made(f"{file}:Ours").settings.weight == 10.0


def test_an_unknown_setting_of_a_file_is_answered_with_the_nearest(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"policies\.ours\.weigth: unknown key; did you mean weight\?"):
        made(f"{file}:Ours", ours={"weigth": 1.0})


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("import numpy", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("class Ours:", "class Ours", "SyntaxError"),
        ("class Ours:", "raise SystemExit(3)\nclass Ours:", "SystemExit: 3"),
        ("class Ours:", "class Yours:", "AttributeError: .* no attribute 'Ours'"),
        ("settings or Settings()", "None", "TypeError"),
        ('"ours", frozenset()', '"", frozenset()', "policy Ours has no name"),
        ('"ours", frozenset()', '"ours", frozenset({"tea"})', "say which forecasts"),
        ('"ours", frozenset()', '"ours", None', "say which forecasts"),
        ("def decide", "def judge", "does not decide"),
        (
            "frozenset()",
            'frozenset(); decides_on = "whim"',
            "policy ours decides on 'whim': say one of events, reports",
        ),
    ],
)
def test_a_broken_file_is_refused_with_what_is_wrong(file: Path, before: str, after: str, message: str) -> None:
    file.write_text(OURS.replace(before, after))
    with pytest.raises(ConfigError, match=message):
        made(f"{file}:Ours")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"there is no policy file {tmp_path}/none.py"):
        made(f"{tmp_path}/none.py:Ours")


def test_a_file_that_everybody_can_write_is_not_run(file: Path) -> None:
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="everybody can write it"):
        made(f"{file}:Ours")


def test_a_site_policy_that_declares_nothing_needs_no_forecast_and_may_decide_otherwise_at_any_time(file: Path) -> None:
    file.write_text(OURS.replace('name, needs = "ours", frozenset()', 'name = "ours"'))
    policy = made(f"{file}:Ours", ours={"weight": 2.0})
    given = snapshot(jobs(2, gpus=[1, 3]), nodes(1))
    assert (policy.needs, policy.decides_on, policy.until(given)) == (frozenset(), "time", None)
    assert policy.decide(given, Forecasts.unknown(2), {}).score.tolist() == [2.0, 6.0]
    assert isinstance(policy, Policy)


def test_what_a_site_policy_declares_goes_before_the_defaults(file: Path) -> None:
    file.write_text(OURS.replace("frozenset()", "frozenset({'total'}); decides_on = \"events\""))
    policy = made(f"{file}:Ours")
    assert (policy.needs, policy.decides_on, policy.until(snapshot())) == ({"total"}, "events", float("inf"))


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        ("float", "x", "must be a number, not 'x'"),
        ("'float | None'", [], r"must be a number, not \[\]"),
        ("'NoSuchName'", "x", "must be a number, not 'x'"),
        ("'NoSuchName'", 3, ""),
        ("np.random.Generator", "x", ""),
    ],
)
def test_a_setting_of_a_site_policy_is_checked_by_its_annotation(
    file: Path, annotation: str, value: object, message: str
) -> None:
    """Where that cannot be resolved by the type of its default, and not at all where pydantic does not know it."""
    file.write_text(OURS.replace("weight: float", f"weight: {annotation}"))
    with pytest.raises(ConfigError, match=r"policies\.ours\.weight: " + message) if message else nullcontext():
        made(f"{file}:Ours", ours={"weight": value})


@pytest.mark.parametrize("name", policy_names.names())
def test_every_installed_policy_declares_what_changes_its_decision(name: str) -> None:
    policy = made(name)
    assert isinstance(policy, Policy)
    until = policy.until(snapshot(jobs(2, max_iterations=9.0)))
    assert (until is None) == (policy.decides_on == "time" and name not in {"tiresias", "elasticflow", "dl2"})


def test_mlfs_decides_by_a_model_of_mlf_rl_where_one_is_named(tmp_path: Path) -> None:
    path, other = file_of(mlf_rl(network_that_prefers()), tmp_path), file_of(shipped(), tmp_path)
    assert not made("mlfs").learnt
    assert made("mlfs", mlfs={"model": str(path)}).learnt
    assert policy_registry.policy(Config.from_table({"policy": "mlfs"}), mlf_rl(network_that_prefers())).learnt
    with pytest.raises(ConfigError, match=r"policies\.mlfs: it is a model of 'dl2', not of 'mlf-rl'"):
        made("mlfs", mlfs={"model": str(other)})
    with pytest.raises(ConfigError, match=r"policies\.mlfs\.model: model .* cannot be read"):
        made("mlfs", mlfs={"model": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "it is of version 2 of mlf-rl's features, and this slurmplug has version 1: train it again"),
        ({"arrays": {"own.weight": np.zeros((16, 15), np.float32)}}, r"array own.weight is of shape \(16, 15\)"),
        ({"arrays": {"more": np.zeros(1, np.float32)}}, "array more is not one of the policy's"),
    ],
)
def test_a_model_of_mlf_rl_that_is_of_another_version_or_shape_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    of = mlf_rl(network_that_prefers())
    model = Model(of.policy, change.get("version", of.version), {**of.arrays, **change.get("arrays", {})})
    with pytest.raises(ConfigError, match=r"policies\.mlf-rl: " + message):
        made("mlf-rl", **{"mlf-rl": {"model": str(file_of(model, tmp_path))}})
