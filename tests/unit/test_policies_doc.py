"""docs/policies.md: its example works, and it names every policy."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from policies.policy import Policy
from predictors.forecast import Forecasts
from slurmplug.config import policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.rules import valid_plan
from tests.builders import NOW, jobs, nodes, snapshot

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/policies.md").read_text(encoding="utf-8")
EXAMPLE, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CONFIGURATION, ENTRY_POINT = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ours.py"
    path.write_text(EXAMPLE, encoding="utf-8")
    path.chmod(0o644)
    return path


def made(file: Path) -> Policy:
    report = tomllib.loads(CONFIGURATION.replace("/etc/slurmplug/ours.py", str(file)))
    return policy_registry.policy(Config.from_table(report))


def test_the_example_is_a_complete_policy_of_under_thirty_lines(file: Path) -> None:
    assert len(EXAMPLE.splitlines()) < 30
    policy = made(file)
    assert policy.name == "earliest-deadline"
    assert policy.settings.preempt
    given = snapshot(jobs(4, gpus=[4, 4, 8, 1], deadline=[np.nan, NOW + 60, np.nan, NOW + 30]), nodes(3))
    plan = valid_plan.validate_plan(given, policy.decide(given, Forecasts.unknown(4), {}))
    assert np.argsort(-plan.score).tolist() == [3, 1, 2, 0]
    assert [action.job.job_id for action in plan.actions if action.kind == "place"] == [4, 2, 1]


def test_the_example_is_one_that_an_entry_point_can_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    (points,) = tomllib.loads(ENTRY_POINT)["project"]["entry-points"].values()
    from importlib.metadata import EntryPoint

    found = [EntryPoint(name, value, policy_names.GROUP) for name, value in points.items()]
    monkeypatch.setattr(policy_registry, "entry_points", lambda group: found)
    assert policy_registry.policy(Config.from_table({"policy": "earliest-deadline"})).name == "earliest-deadline"


def test_every_policy_that_comes_with_slurmplug_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    section = PAGE.partition("## Included policies")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(project["entry-points"][policy_names.GROUP])
