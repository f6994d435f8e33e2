"""A learnt policy on a real Slurm: from training to acting and back, and models that must not stay in charge."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from policies.model import Model
from slurmplug.config import model_files
from slurmplug.ledger import policy_models
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.policy_models import Decided
from slurmplug.sandbox import Sandbox
from tests.learnt_models import OF_OTHER_VERSION, OTHER_VERSION, install_scripted, like_shipped, poisoned, scripted
from tests.live.daemon_process import DaemonProcess, daemon_beside

PATIENCE = 240.0
HOLDS = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:3\nsleep 900\n"
WAITS = "#!/bin/sh\n#SBATCH --gres=gpu:4 --time={minutes}\n#PLUG --urgency={urgency}\nsleep {seconds}\n"
ANY_STATE = np.array([1e30], dtype=np.float32)
TINY = ("jobs=8", "workloads=1", "passes=1", "hidden=4", 'clusters=["8x4"]')


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    """With the scripted policy installed."""
    with daemon_beside(cluster) as one:
        install_scripted(one.config.parent)
        one.environment = {"PYTHONPATH": str(one.config.parent)}
        yield one


@pytest.fixture
def full(cluster: Sandbox) -> Sandbox:
    """A GPU of each node is free, and jobs of different lengths wait for four of one node."""
    cluster.wait_job(cluster.sbatch(cluster.researchers[2], HOLDS), "RUNNING")
    for minutes in (40, 10, 30, 20):
        cluster.sbatch(cluster.researchers[0], WAITS.format(minutes=minutes, urgency=5, seconds=600))
    return cluster


def ask(daemon: DaemonProcess, *arguments: str) -> str:
    """What `slurmplug` with these arguments answers, as the operator; any error fails the test."""
    done = daemon.command(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def add(daemon: DaemonProcess, model: Model) -> str:
    """Keep a model; the beginning of its digest."""
    file = daemon.config.parent / "model.safetensors"
    model_files.write(model, file)
    assert "added, as a candidate" in ask(daemon, "policy", "add", str(file))
    return model.digest[:12]


def last_policies(daemon: DaemonProcess, count: int) -> list[str]:
    rows = daemon.query("SELECT policy FROM cycles ORDER BY id DESC LIMIT ?", count)
    return [row["policy"] for row in rows]


def in_charge(daemon: DaemonProcess) -> dict[str, Any]:
    """The model that acts or is in shadow, as `status --json` shows it; empty where there is none."""
    shown = json.loads(ask(daemon, "status", "--json"))["models"]
    return dict(shown[0]) if shown else {}


def history(daemon: DaemonProcess) -> str:
    return ask(daemon, "policy", "list")


@pytest.mark.rl
def test_the_way_from_training_to_acting_and_back(full: Sandbox, daemon: DaemonProcess) -> None:
    daemon.start()
    trained = daemon.config.parent / "trained.safetensors"
    ask(daemon, "train", "dl2", "--out", str(trained), *(word for each in TINY for word in ("--set", each)))
    model = model_files.parse(trained.read_bytes(), "trained")
    # So small a training knows no state of this cluster: let it pass for one that does.
    digits = add(daemon, Model("dl2", model.version, {**model.arrays, "seen.limit": ANY_STATE}, model.facts))
    slower = daemon.config.with_name("slower.toml")  # a cycle a second is for a cluster whose jobs take seconds
    slower.write_text(daemon.config.read_text().replace("interval = 1\n", "interval = 600\n"))
    tried = (
        "--config",
        str(slower),
        "--cluster",
        "8x4",
        "--jobs",
        "10",
        "--on",
        "gen:dl2",
        "--seed",
        "0",
        "--seed",
        "1",
    )
    assert "jct_mean" in ask(daemon, "policy", "evaluate", digits, *tried)
    ask(daemon, "policy", "shadow", digits)
    full.wait(lambda: in_charge(daemon).get("cycles", 0) >= 2, PATIENCE, "the model in shadow")
    shadow = in_charge(daemon)
    assert (shadow["role"], shadow["errors"]) == ("shadow", 0), shadow
    assert set(last_policies(daemon, 3)) == {"mlfs"}
    ask(daemon, "policy", "promote", digits, "it was tried")
    full.wait(lambda: last_policies(daemon, 2) == ["dl2", "dl2"], PATIENCE, "its process, which then decides")
    assert in_charge(daemon)["role"] == "acting"
    ask(daemon, "policy", "demote", digits)
    daemon.pass_cycles(3)
    assert set(last_policies(daemon, 2)) == {"mlfs"}
    assert daemon.query("SELECT error FROM cycles WHERE error != ''") == []
    told = history(daemon)
    for line in ("promoted by", "it was tried", "demoted by", "evaluated against mlfs on gen:dl2"):
        assert line in told


def test_a_poisoned_model_is_not_followed_in_any_cycle_and_is_demoted(full: Sandbox, daemon: DaemonProcess) -> None:
    daemon.start("[promotion]\nfallbacks = 3")
    digits = add(daemon, poisoned())
    ask(daemon, "policy", "shadow", digits)
    full.wait(lambda: in_charge(daemon).get("errors"), PATIENCE, "an error in shadow")
    assert "not finite numbers" in in_charge(daemon)["last_error"]
    ask(daemon, "policy", "promote", digits)
    full.wait(lambda: not in_charge(daemon), PATIENCE, "its demotion")
    errors = daemon.query("SELECT policy, error FROM cycles WHERE error != '' ORDER BY id")
    assert len(errors) == 3
    assert {row["policy"] for row in errors} == {"mlfs"}
    assert "not finite numbers" in errors[0]["error"]
    assert "it could not be followed in 3 cycles of an hour" in history(daemon)


def test_a_slow_model_delays_no_cycle_in_shadow_and_is_demoted_when_it_acts(
    full: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start("[promotion]\nfallbacks = 2")
    digits = add(daemon, scripted(seconds=600.0))
    ask(daemon, "policy", "shadow", digits)
    full.wait(lambda: in_charge(daemon).get("errors"), PATIENCE, "an error in shadow")
    assert "longer than 1 s to decide" in in_charge(daemon)["last_error"]
    assert max(row["took"] for row in daemon.query("SELECT finished - started AS took FROM cycles")) < 60.0
    slow = add(daemon, scripted(seconds=3.0))
    ask(daemon, "policy", "promote", slow)
    full.wait(lambda: "could not be followed in 2 cycles" in history(daemon), PATIENCE, "its demotion")
    late = daemon.query("SELECT policy, error FROM cycles WHERE error != '' ORDER BY id")
    assert [row["policy"] for row in late] == ["mlfs", "mlfs"]
    assert "had not decided after 1 s, and its process was ended" in late[0]["error"]


def test_a_configured_policy_that_never_decides_is_ended_and_mlf_h_decides_in_the_same_cycle(
    full: Sandbox, daemon: DaemonProcess
) -> None:
    file = daemon.config.parent / "model.safetensors"
    model_files.write(scripted(seconds=1e6), file)
    daemon.start(f'[policies.scripted]\nmodel = "{file}"', policy="scripted")
    ended = (
        "SELECT id, policy, error, finished - started AS took FROM cycles WHERE error LIKE '%its process was ended%'"
    )
    full.wait(lambda: len(daemon.query(ended)) > 1, PATIENCE, "two decisions that were ended")
    for row in daemon.query(ended):
        assert row["policy"] == "mlf-h"
        assert "had not decided after 1 s" in row["error"]
        assert "mlf-h decided" in row["error"]
        assert row["took"] < 60.0
    assert set(last_policies(daemon, 3)) == {"mlf-h"}
    assert "error       policy scripted is not followed" in ask(daemon, "status")
    assert daemon.signal(signal.SIGTERM) == 0


def test_a_model_of_another_version_is_refused_and_one_that_acted_before_an_upgrade_is_demoted(
    full: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    other = like_shipped(version=OTHER_VERSION, seen_limit=ANY_STATE)
    file = daemon.config.parent / "other.safetensors"
    model_files.write(other, file)
    refused = daemon.command("policy", "add", str(file))
    assert refused.returncode == 1
    assert OF_OTHER_VERSION in refused.stderr
    ledger = Ledger(daemon.ledger_path)
    by = Decided("ada", 0.0)
    policy_models.add(ledger, other, file.read_bytes(), by)
    policy_models.set_role(ledger, policy_models.find(ledger, other.digest), "acting", by)
    ledger.close()
    full.wait(lambda: not in_charge(daemon), PATIENCE, "its demotion")
    daemon.pass_cycles()
    assert set(last_policies(daemon, 2)) == {"mlfs"}
    assert "demoted by slurmplug: it cannot decide: " in history(daemon)


def test_a_model_in_the_wrong_order_shows_in_shadow_and_is_demoted_when_jobs_take_longer(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    user = cluster.researchers[0]

    def pass_jobs(count: int, seconds: float) -> None:
        """Jobs of which four run at a time, which wait together however long it takes to submit them.

        They are of two urgencies: of one, those submitted in one second rank alike.
        """
        texts = [WAITS.format(minutes=1, urgency=5 + at % 2, seconds=seconds) for at in range(count)]
        jobs = [cluster.sbatch(user, text, "--hold") for text in texts]
        cluster.run(user, ["scontrol", "release", ",".join(map(str, jobs))])
        for job in jobs:
            cluster.wait_job(job, "COMPLETED", PATIENCE)

    daemon.start()
    digits = add(daemon, scripted(factor=-1.0))
    pass_jobs(12, 1.0)  # from which run times are learnt
    cluster.wait(lambda: daemon.query("SELECT 1 FROM models WHERE name = 'runtime'"), PATIENCE, "learnt run times")
    ask(daemon, "policy", "shadow", digits)
    pass_jobs(32, 1.0)
    cluster.wait(lambda: in_charge(daemon).get("ranks") is not None, PATIENCE, "what is in shadow")
    assert in_charge(daemon)["ranks"] < 0.0
    ask(daemon, "policy", "promote", digits)
    cluster.wait(lambda: last_policies(daemon, 1) == ["scripted"], PATIENCE, "its process, which then decides")
    pass_jobs(32, 6.0)
    cluster.wait(lambda: not in_charge(daemon), PATIENCE, "its demotion")
    daemon.pass_cycles()
    assert set(last_policies(daemon, 1)) == {"mlfs"}
    assert "times as long as was forecast of them" in history(daemon)
