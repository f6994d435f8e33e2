"""The templates of one training, on a real Slurm: moved, requeued before their time limit, stopped at their target."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import joblib
import pytest
from safetensors.numpy import load_file

from policies.mlfs.with_early_stopping import WithEarlyStopping
from slurmplug.sandbox import Sandbox
from tests.live.live_site import LiveSite, fresh_site, start_again
from tests.live.template_copies import Copies
from tests.schedulers import begun

IN_A_SANDBOX = {r"head=\$\(scontrol.*": "head=localhost"}
"""whose nodes' names are no host's"""
SAVED = {
    "elastic": "checkpoint-*.joblib",
    "pytorch_ddp": "checkpoint-*.pt",
    "lightning_digits": "lightning_digits.pt",
    "huggingface": "huggingface-*/last/model.safetensors",
}
"""the weights of those that save checkpoints, at the end of the training"""
BY_SIGNAL = """
import signal
from slurmplug_report import checkpoint_on_signal
checkpoint_on_signal(signal.SIGUSR1)
"""
LONG = MappingProxyType({r"EPOCHS = \d+": "EPOCHS = 5000", r"--max-iterations=\d+": "--max-iterations=5000"})
"""so that a training lasts until it is stopped"""
ALL = [pytest.param(name, marks=pytest.mark.rl if name != "elastic" else ()) for name in SAVED]


class Training:
    """A template that was submitted from a folder of its own."""

    def __init__(
        self, site: LiveSite, name: str, options: str = "", changes: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._site, self._name, self._copies = site, name, Copies(site.cluster, name)
        self._copies.change({**IN_A_SANDBOX, **changes})
        self.job = int(self._copies.run(f"sbatch --parsable {options} {name}.sbatch"))

    @property
    def state(self) -> str:
        return str(self._site.cluster.job(self.job)["JobState"])

    def iterations(self, run: int) -> list[float]:
        """Those that a run of the job has reported."""
        paths = (self._site.cluster.spool / "reports").glob(f"{self.job}.{run}*.jsonl")
        lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return [line["iteration"] for line in lines if "iteration" in line]

    def until_reported(self) -> None:
        self._site.until(lambda: self.iterations(0), 120, f"a report of job {self.job}")

    def until_completed(self) -> None:
        self._site.until(lambda: self.state not in ("PENDING", "RUNNING", "COMPLETING"), 180, f"the end of {self.job}")
        assert self.state == "COMPLETED"

    def weights(self) -> list[Any]:
        """Of the model that it has saved at its end."""
        [path] = self._copies.folder.glob(SAVED[self._name])
        return _weights(path)


def _weights(path: Path) -> list[Any]:
    if path.suffix == ".joblib":
        model, _ = joblib.load(path)
        return [*model.coefs_, *model.intercepts_]
    if path.suffix == ".safetensors":
        return [each for _, each in sorted(load_file(path).items())]
    saved = import_module("torch").load(path, weights_only=True)
    return [each.numpy() for _, each in sorted(saved.get("net", saved).items())]


def let_stop(site: LiveSite) -> None:
    """From now on jobs are stopped as their directives say."""
    site.scheduler = begun(site.port, WithEarlyStopping(site.policy), site.ledger, site.config)


def let_requeue_before_the_limit(site: LiveSite) -> None:
    guardrails = site.config.guardrails.replaced(requeue_before_limit=1.0)
    config = site.config.replaced(guardrails=guardrails)
    site.scheduler = begun(site.port, site.policy, site.ledger, config)


@pytest.mark.parametrize("name", ALL)
def test_one_that_is_moved_ends_with_the_weights_of_one_that_is_not(
    cluster: Sandbox, tmp_path: Path, name: str
) -> None:
    with fresh_site(cluster, tmp_path) as site:
        moved, other = Training(site, name), Training(site, name)
        moved.until_reported()
        node = cluster.job(moved.job)["NodeList"]
        site.wants(moved.job, kind="migrate")
        assert site.until_over(moved.job) == "done"
        assert cluster.job(moved.job)["NodeList"] != node
        for each in (moved, other):
            each.until_completed()
        assert moved.iterations(1)[0] > 0
        assert moved.iterations(1)[-1] == other.iterations(0)[-1]
        for found, expected in zip(moved.weights(), other.weights(), strict=True):
            assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("name", ALL)
def test_one_that_its_time_limit_would_end_is_requeued_before_and_stopped_at_its_target_afterwards(
    cluster: Sandbox, tmp_path: Path, name: str
) -> None:
    """Of two minutes the grace period, a cycle and a second are no more than left; the epochs take longer.

    It is requested to save by a signal, except under torchrun, which a signal would end.
    """
    changes = dict(LONG)
    if name != "pytorch_ddp":
        changes[r"EPOCHS = \d+"] += BY_SIGNAL
        changes["--checkpoint=file"] = "--checkpoint=USR1:steps"
    with fresh_site(cluster, tmp_path) as site:
        training = Training(site, name, "--time=2", changes)
        training.until_reported()
        let_requeue_before_the_limit(site)
        site.until(lambda: site.operations(training.job), 90)
        assert site.until_over(training.job) == "done"
        [operation] = site.operations(training.job)
        assert (operation["kind"], operation["rule"]) == ("preempt", "time limit ahead")
        let_stop(site)
        start_again(cluster, training.job)
        training.until_completed()
        assert training.iterations(1)[0] > 0
        assert [each["kind"] for each in site.operations(training.job)] == ["preempt", "stop"]
        assert site.operations(training.job)[-1]["rule"] == "target"


@pytest.mark.parametrize("name", ["scikit_learn", "unchanged"])
def test_one_without_checkpoints_is_stopped_at_its_target(cluster: Sandbox, tmp_path: Path, name: str) -> None:
    with fresh_site(cluster, tmp_path) as site:
        let_stop(site)
        training = Training(site, name, changes=LONG)
        training.until_completed()
        [operation] = site.operations(training.job)
        assert (operation["kind"], operation["rule"]) == ("stop", "target")
